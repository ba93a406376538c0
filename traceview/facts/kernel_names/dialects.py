"""C++ names as the two demanglers write them: that of nsys (EDG), and that of torch.profiler (GNU).

EDG  void at::native::<unnamed>::f<(int)4, (bool)1, [lambda(float) (instance 2)], char *>
GNU  void at::native::(anonymous namespace)::f<4, true, {lambda(float)#2}, char*>
"""

from __future__ import annotations

import re

_LAMBDA = re.compile(r"\{lambda\((.*?)\)#(\d+)\}")
_NUMBER = re.compile(r"(?<=[<,])( ?)(-?\d+)(u?l?)(?=[,>])")
_FLAG = re.compile(r"(?<=[<,])( ?)(true|false)(?=[,>])")
_TYPES = {"": "int", "u": "unsigned int", "l": "long", "ul": "unsigned long"}


def as_edg(name: str) -> str:
    """The name with unnamed namespaces, lambdas and constants as nsys writes them."""
    if "<" not in name and "(" not in name:
        return name
    name = name.replace("(anonymous namespace)", "<unnamed>")
    name = _LAMBDA.sub(r"[lambda(\1) (instance \2)]", name)
    name = _NUMBER.sub(lambda found: f"{found[1]}({_TYPES[found[3]]}){found[2]}", name)
    return _FLAG.sub(lambda found: f"{found[1]}(bool){int(found[2] == 'true')}", name)
