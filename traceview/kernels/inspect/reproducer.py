"""A script that makes one launch of a kernel, without the program that it was found in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError
from traceview.base.hardware import limits_of
from traceview.kernels.ptx.model import Compiled

_HEAD = '''"""One launch of {name}, {about}.

    python {file}               launches it on the GPU; without one, compiles it for {arch}
    python {file} --interpret   runs it in Triton's interpreter

Tensors have the launch's shapes, strides and types; floats are random, integers are 0.
"""

import os
import sys

if "--interpret" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

'''
_TAIL = '''

GRID = {grid}
OPTIONS = {options}
SIGNATURE = {signature}
CONSTEXPRS = {constexprs}
DIVISIBLE = {divisible}


def memory_of(size, dtype, device):
    """At least `size` bytes of memory; its address is a multiple of 16."""
    count = -(-size // dtype.itemsize)
    if dtype.is_floating_point:
        numbers = torch.randn(count, device=device).to(dtype)
    else:
        numbers = torch.zeros(count, dtype=dtype, device=device)
    return numbers.view(torch.uint8)


def tensor(memory, begin, end, dtype, shape, stride):
    """A tensor of this layout in the bytes `begin` to `end` of a memory."""
    return memory[begin:end].view(dtype).as_strided(shape, stride)


def arguments(device):
    memory = [
{memories}
    ]
    return {{
{arguments}
    }}


def compile_only():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(SIGNATURE)
    constants = {{(names.index(name),): value for name, value in CONSTEXPRS.items()}}
    attributes = {{(names.index(name),): [["tt.divisibility", 16]] for name in DIVISIBLE}}
    source = ASTSource({name}, SIGNATURE, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", {capability}, 32), options=OPTIONS)


if __name__ == "__main__":
    if "--interpret" in sys.argv:
        {name}[GRID](**arguments("cpu"))
        print("{name} ran in the interpreter")
    elif torch.cuda.is_available():
        {name}[GRID](**OPTIONS | arguments("cuda"))
        torch.cuda.synchronize()
        print("{name} ran on", torch.cuda.get_device_name())
    else:
        code = compile_only().asm["cubin"]
        print("{name} compiles for {arch}:", len(code), "bytes of cubin")
'''


def reproducer(kernels: Sequence[Compiled], file: str) -> str:
    """The text of a script that makes the first launch among these kernels; `file` is its name.

    Raises InputError if none was launched, or if arguments of the first cannot be written.
    """
    compiled = next((each for each in kernels if each.launch), None)
    if compiled is None or compiled.launch is None:
        remedy = "pass a script that launches one, and name it with --kernel"
        raise InputError("no launch of a kernel is known to reproduce", remedy)
    arguments: Mapping[str, Mapping[str, Any]] = compiled.launch["arguments"]
    if unknown := compiled.launch.get("unknown"):
        what = f"{compiled.name} {unknown}, which is not reproduced"
        raise InputError(what, "choose another kernel with --kernel")
    for name, value in arguments.items():
        if "unknown" in value:
            what = f"{compiled.name} takes {value['unknown']} as {name}, which is not reproduced"
            raise InputError(what, "choose another kernel with --kernel")
    by_name = {argument.name: argument for argument in compiled.arguments}
    options = {"num_warps": compiled.num_warps, "num_stages": compiled.num_stages}
    options |= compiled.launch.get("options", {})
    fixed = [each.name for each in by_name.values() if each.type == "constexpr"]
    constexprs = {name: arguments[name]["value"] for name in fixed}
    number = int(limits_of(compiled.arch).compute_capability.replace(".", ""))
    texts = {
        "name": compiled.name,
        "file": file,
        "arch": compiled.arch,
        "about": f"compiled from {Path(compiled.source_file or '').name}:{compiled.source_line}",
        "grid": compiled.grid or (1, 1, 1),
        "options": _mapping(options),
        "signature": {a.name: a.type for a in by_name.values()},
        "constexprs": _mapping(constexprs),
        "divisible": [a.name for a in by_name.values() if a.divisible_by_16],
        "memories": "\n".join(_memories(arguments)),
        "arguments": "\n".join(_lines(arguments)),
        "capability": number,
    }
    return _HEAD.format(**texts) + str(compiled.launch["source"]) + _TAIL.format(**texts)


def _mapping(expressions: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{name!r}: {value}' for name, value in expressions.items())}}}"


def _memories(arguments: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    tensors: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for value in arguments.values():
        if "shape" in value:
            tensors[value["memory"]].append(value)
    for _, sharing in sorted(tensors.items()):
        size = max(each["end"] for each in sharing)
        # Integers may be indices, which are to be 0.
        dtype = min((each["dtype"] for each in sharing), key=lambda dtype: "float" in dtype)
        yield f"        memory_of({size}, torch.{dtype}, device),"


def _lines(arguments: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, value in arguments.items():
        if "shape" in value:
            place = f"memory[{value['memory']}], {value['begin']}, {value['end']}"
            layout = f"torch.{value['dtype']}, {value['shape']}, {value['stride']}"
            yield f"        {name!r}: tensor({place}, {layout}),"
        else:
            yield f"        {name!r}: {value['value']},"
