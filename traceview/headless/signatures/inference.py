"""Guess the arguments of a kernel that is never launched from its source.

Pointers are the bases of addresses. The rest goes by name: sizes and strides are integers divisible
by 16, the last stride of a tensor is 1, `eps` is a float, BLOCK_… a power of two.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from traceview.headless.signatures.dataflow import Functions, Usage, is_pointer_name
from traceview.headless.signatures.notation import Parameter, Value, argument, constant, notation
from traceview.ptx.model import Argument

_FLOAT = re.compile(
    r"eps(ilon)?|(\w+_)?scale|alpha|beta\d?|gamma|lr|learning_rate|momentum|weight_decay|decay|"
    r"p|prob|dropout(_p)?|temperature|softcap|slope|negative_slope|factor|inv_\w+|scalar",
    re.IGNORECASE,
)
_INTEGER_DATA = re.compile(r"count|hist|lock|index|indices|idx|ids|label|seq_?len", re.IGNORECASE)
_NOT_DIVISIBLE = re.compile(r"seed|offset|start|begin|pos|step", re.IGNORECASE)
_STRIDE = re.compile(r"(?P<tensor>stride\w*?)_?(?P<dimension>[a-z]|\d)", re.IGNORECASE)
_BARE = ("stride", "strides")
_INNER = (*"knd", *"123456789")
_FLAG = re.compile(r"(is|has|use|with|do|return|enable|allow)_|causal|even_", re.IGNORECASE)
# None is the default of tl.dot.
_PRECISION = re.compile(r"precision", re.IGNORECASE)
_SIZES = (
    (r"group", 8),
    (r"num_?stages|stages", 2),
    (r"num_?warps", 4),
    (r"num_(?:sms|programs|ctas)", 132),
    (r"head_?dim|d_?model|d_?head", 64),
)
_ONE_BLOCK, _FEW_BLOCKS, _MATMUL_K = 1024, 64, 32


def guess(
    parameters: Sequence[Parameter], usage: Usage, given: Mapping[str, Value] | None = None
) -> tuple[Argument, ...]:
    """One argument per parameter. `given` are the known constexprs."""
    known = dict(given or {})
    pointers = [p.name for p in parameters if _is_pointer(p.name, usage)]
    ones = _unit_strides([p.name for p in parameters], pointers)
    return tuple(_guess(p, parameters, usage, known, ones) for p in parameters)


def in_words(arguments: Sequence[Argument]) -> str:
    """The guessed arguments on one line, with the --signature to correct them."""
    listed = (
        f"{a.name} = {a.value!r}"
        if a.type == "constexpr"
        else f"{a.name} {a.type}{':16' if a.divisible_by_16 else ''}"
        for a in arguments
    )
    remedy = f'correct them with --signature "{notation(arguments)}"'
    return f"arguments are guessed: {', '.join(listed)}; {remedy}"


def kernels_among(functions: Functions) -> list[str]:
    """The jitted functions that look like kernels: not called by others, returning nothing."""
    usages = {name: Usage(function) for name, function in functions.items()}
    called = {name for usage in usages.values() for name in usage.called}
    return [n for n, usage in usages.items() if n not in called and not usage.returns_value]


def parsed(source: str) -> ast.FunctionDef:
    """Parse the function in a source text without indentation. Raises ValueError if none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            return node
    raise ValueError("the source holds no function")


def _guess(
    parameter: Parameter,
    parameters: Sequence[Parameter],
    usage: Usage,
    known: Mapping[str, Value],
    ones: frozenset[str],
) -> Argument:
    name = parameter.name
    if name in known:
        return constant(name, known[name])
    if parameter.is_constexpr:
        return constant(name, _constexpr(parameter, parameters, usage))
    if parameter.type:
        return argument(name, parameter.type + (":16" if _may_be_divisible(parameter.type) else ""))
    if _is_pointer(name, usage):
        return argument(name, f"*{usage.pointers.get(name) or _pointee(name)}:16")
    return constant(name, 1) if name in ones else argument(name, _scalar(parameter))


def _is_pointer(name: str, usage: Usage) -> bool:
    return name in usage.pointers or is_pointer_name(name)


def _pointee(name: str) -> str:
    return "i32" if _INTEGER_DATA.search(name) else "fp32"


def _may_be_divisible(type_: str) -> bool:
    return type_.startswith(("*", "i", "u")) and type_ not in ("i1", "u1")


def _scalar(parameter: Parameter) -> str:
    if _FLOAT.fullmatch(parameter.name) or isinstance(parameter.default, float):
        return "fp32"
    return "i32" if _NOT_DIVISIBLE.search(parameter.name) else "i32:16"


def _unit_strides(names: Iterable[str], pointers: Iterable[str]) -> frozenset[str]:
    """The last stride of each tensor (stride_am, stride_ak), which is 1 if row-major.

    stride_x and stride_y are rather those of two tensors. So without a tensor name, the last must
    have the name of a usual innermost dimension (stride_m, stride_k), and none that of a pointer.
    """
    tensors: dict[str, list[re.Match[str]]] = defaultdict(list)
    for found in filter(None, map(_STRIDE.fullmatch, names)):
        tensors[found["tensor"]].append(found)
    named = {pointer.lower().partition("_")[0] for pointer in pointers}
    return frozenset(
        group[-1][0]
        for tensor, group in tensors.items()
        if len(group) > 1 and (tensor.lower() not in _BARE or _are_dimensions(group, named))
    )


def _are_dimensions(strides: Sequence[re.Match[str]], tensors: Set[str]) -> bool:
    """Whether strides are named after dimensions of one tensor, not after several tensors."""
    called = [stride["dimension"].lower() for stride in strides]
    return called[-1] in _INNER and tensors.isdisjoint(called)


def _constexpr(parameter: Parameter, parameters: Sequence[Parameter], usage: Usage) -> Value:
    name = parameter.name
    if parameter.has_default:
        return parameter.default
    if name in usage.compared_to_text:
        return ""
    if _PRECISION.search(name):
        return None
    if name in usage.types:
        return "tl.float32"
    if name in usage.flags or _FLAG.match(name):
        return False
    return _size(name, parameters, usage)


def _size(name: str, parameters: Sequence[Parameter], usage: Usage) -> int:
    for words, size in _SIZES:
        if re.search(words, name, re.IGNORECASE):
            return size
    blocks = [p for p in parameters if p.is_constexpr and _is_block(p.name)]
    if _is_block(name) and len(blocks) == 1 and not usage.has_dot:
        return _ONE_BLOCK
    return _MATMUL_K if usage.has_dot and name.upper().endswith("K") else _FEW_BLOCKS


def _is_block(name: str) -> bool:
    words = r"block|tile|^b[mnkxyt]$|^xblock|^yblock|^rblock"
    return bool(re.search(words, name, re.IGNORECASE))
