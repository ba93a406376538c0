"""Guess the arguments of a kernel that is never launched, from its source.

Pointers are the bases of addresses. The rest goes by name: sizes and strides are integers divisible
by 16, the last stride of a tensor is 1, `eps` is a float, BLOCK_… a power of two.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from traceview.base.records import record
from traceview.kernels.headless.dataflow import Functions, Usage
from traceview.kernels.headless.signatures import Parameter, Value, argument, constant, notation
from traceview.kernels.ptx.model import Argument

_FLOAT = re.compile(
    r"eps(ilon)?(_\w+)?|(\w+_)?scale(_[a-z])?|alpha|beta\d?|gamma|lr|learning_rate|momentum|weight_decay|decay|"
    r"p|prob|dropout(_p)?|temperature|softcap|slope|negative_slope|factor|inv_\w+|scalar",
    re.IGNORECASE,
)
# Of constexprs, which are sizes rather than numbers.
_FLOAT_CONSTANT = re.compile(
    r"eps(ilon)?(_\w+)?|temperature|(\w+_)?scale|lr|momentum|weight_decay|softcap|dropout(_p)?",
    re.IGNORECASE,
)
_INTEGER_DATA = re.compile(
    r"count|cnts|hist|lock|index|indices|idx|ids|label|lens|seq_?len|numel|offsets|indptr|to_token",
    re.IGNORECASE,
)
# Of a convolution: the sizes of its filter, and steps and borders of a wrapper's defaults.
_TAPS = re.compile(r"kernel_(size|height|width|[hwd])$", re.IGNORECASE)
_CONVOLUTION = re.compile(
    r"(kernel|stride|pad(ding)?|dilation)_(size|height|width|[hwd])", re.IGNORECASE
)
_TAP_COUNT = 3
_NOT_DIVISIBLE = re.compile(r"seed|offset|start|begin|pos|step", re.IGNORECASE)
_STRIDE = re.compile(r"(?P<tensor>stride\w*?)_?(?P<dimension>[a-z]|\d)", re.IGNORECASE)
# Of several tensors of one kind: stride_am1 and stride_ak1 are those of the first of A.
_NUMBERED = re.compile(
    r"(?P<tensor>stride_?[a-z]\w*?)_?(?P<dimension>[a-z])(?P<number>\d)", re.IGNORECASE
)
_STRIDE_OF = re.compile(r"(?P<tensor>stride_\w+)_(?P<dimension>[a-z]{2,})", re.IGNORECASE)
_STRIDE_WITHIN = re.compile(
    r"(?P<tensor>\w+_strides?)(_?(?P<dimension>[a-z]|\d)|_(?P<axis>[a-z]{2,}))", re.IGNORECASE
)
# x_stride_batch and x_stride_row may be followed by columns that are not scaled.
_COLUMNS = re.compile(r"col|dim|feat|inner|hidden", re.IGNORECASE)
# Of several dimensions: s_qk_h, s_qk_t and s_qk_d.
_STRIDE_SHORT = re.compile(r"(?P<tensor>s_[a-z]\w*)_(?P<dimension>[a-z])")
_STRIDE_LAST = re.compile(r"(?P<tensor>\w+?)_(?P<dimension>\w+)_stride", re.IGNORECASE)
_BARE = ("stride", "strides")
_INNER = (*"knd", *"123456789")
_FLAG = re.compile(r"(is|has|use|with|do|return|enable|allow)_|causal|even_", re.IGNORECASE)
# None is the default of tl.dot.
_PRECISION = re.compile(r"precision", re.IGNORECASE)
_DATA_TYPE = re.compile(r"dtype$|^acc_type$", re.IGNORECASE)
_SIZES = (
    (r"q(uant)?_?group", 128),
    (r"^n?_?bits$|bit_?width", 4),
    (r"group|top_?k$", 8),
    (r"num_?stages|stages", 2),
    (r"num_?warps", 4),
    (r"num_(?:sms|programs|ctas)", 132),
    (r"head_?dim|d_?model|d_?head", 64),
)
_ONE_BLOCK, _MATMUL_K = 1024, 32
FEW_TURNS = 4
"""Iterations of an unrolled loop."""


@record
class Defaults:
    """Defaults where the source says nothing: the element type and the size of a tile.

    `named`: a parameter that is compared with texts is the first of them, not the empty text.
    `operand` is the element type of operands of tl.dot, `index` that of arrays of indices.
    """

    element: str = "fp32"
    tile: int = 64
    named: bool = True
    operand: str = "fp16"
    index: str = "i64"


_USUAL = Defaults(named=False)
TRIED = (
    _USUAL,
    Defaults(),
    Defaults(index="i32"),
    Defaults("fp16"),
    Defaults("i32"),
    Defaults("fp16", 32),
    Defaults("bf16", 128),
    Defaults("i32", operand="i8"),
    Defaults("u8"),
    Defaults("i64", 16),
    Defaults("fp8e4nv", operand="fp8e4nv"),
)
"""Defaults in the order in which they are tried until a kernel compiles."""


def guess(
    parameters: Sequence[Parameter],
    usage: Usage,
    given: Mapping[str, Value] | None = None,
    defaults: Defaults = _USUAL,
) -> tuple[Argument, ...]:
    """One argument per parameter. `given` are the known constexprs."""
    known = dict(given or {})
    pointers = [p.name for p in parameters if _is_pointer(p.name, usage)]
    ones = _unit_strides([p.name for p in parameters], pointers) - usage.row_strides
    flags = {p.name: known.get(p.name, p.default if p.has_default else False) for p in parameters}
    numbers = {n for n, (flag, value) in usage.numbers.items() if bool(flags.get(flag)) == value}
    return tuple(
        argument(p.name, _scalar(p))
        if p.name in numbers
        else _guess(p, parameters, usage, known, ones, defaults)
        for p in parameters
    )


def in_words(
    arguments: Sequence[Argument],
    origin: str = "",
    *,
    constants: bool = True,
    guessed: Sequence[str] = (),
) -> str:
    """The arguments on one line, with the --signature to correct them.

    `origin` is the call in the source that passes them, if any, but for those that are `guessed`.
    Constants are left out where the heading of the kernel shows them.
    """
    listed = [
        f"{a.name} = {a.value!r}"
        if a.type == "constexpr"
        else f"{a.name} {a.type}{':16' if a.divisible_by_16 else ''}"
        for a in arguments
        if constants or a.type != "constexpr"
    ]
    remedy = f'correct them with --signature "{notation(arguments)}"'
    how = f"as the call at {origin} passes them" if origin else "guessed"
    how += f", with {', '.join(guessed)} guessed" if guessed else ""
    return f"arguments are {how}: {', '.join(listed)}; {remedy}"


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
    defaults: Defaults,
) -> Argument:
    name = parameter.name
    if name in known:
        return constant(name, known[name])
    if parameter.is_constexpr:
        return constant(name, _constexpr(parameter, parameters, usage, defaults))
    if parameter.type:
        return argument(name, parameter.type + (":16" if _may_be_divisible(parameter.type) else ""))
    if _is_pointer(name, usage):
        inferred = usage.pointers.get(name)
        element = {"fp16": defaults.operand, "i64": defaults.index}.get(inferred or "", inferred)
        element = element or ("i32" if _INTEGER_DATA.search(name) else defaults.element)
        return argument(name, f"*{element}:16")
    return constant(name, 1) if name in ones else argument(name, _scalar(parameter))


def _is_pointer(name: str, usage: Usage) -> bool:
    return name in usage.pointers or bool(re.search(r"_ptrs?$|Ptr$|^ptr", name))


def _may_be_divisible(type_: str) -> bool:
    return type_.startswith(("*", "i", "u")) and type_ not in ("i1", "u1")


def _scalar(parameter: Parameter) -> str:
    is_stride = "stride" in parameter.name.lower()
    is_float = isinstance(parameter.default, float) or _FLOAT.fullmatch(parameter.name)
    if is_float and not is_stride:
        return "fp32"
    return "i32" if _NOT_DIVISIBLE.search(parameter.name) else "i32:16"


def _unit_strides(names: Iterable[str], pointers: Iterable[str]) -> frozenset[str]:
    """The last stride of each tensor (stride_am, stride_ak), which is 1 if row-major.

    stride_x and stride_y are rather those of two tensors. So without a tensor name, the last must
    have the name of a usual innermost dimension (stride_m, stride_k), and none that of a pointer.
    """
    listed = list(names)
    numbered = _numbered_strides(listed)
    rest = set(listed).difference(*numbered)
    tensors: dict[str, list[re.Match[str]]] = defaultdict(list)
    patterns = (_STRIDE_OF, _STRIDE, _STRIDE_WITHIN, _STRIDE_LAST, _STRIDE_SHORT)
    matches = (next(filter(None, (p.fullmatch(n) for p in patterns)), None) for n in listed)
    for match in filter(None, matches):
        if match[0] in rest:
            tensors[match["tensor"]].append(match)
    named = {pointer.lower().partition("_")[0] for pointer in pointers}
    return frozenset(group[-1] for group in numbered) | frozenset(
        group[-1][0]
        for tensor, group in tensors.items()
        if len(group) > 1 and (tensor.lower() not in _BARE or _are_dimensions(group, named))
        if _COLUMNS.match(group[-1].groupdict().get("axis") or "col")
    )


def _numbered_strides(names: Iterable[str]) -> list[list[str]]:
    """The strides of each of several numbered tensors: [stride_am1, stride_ak1], …"""
    tensors: dict[tuple[str, str], list[re.Match[str]]] = defaultdict(list)
    for match in filter(None, map(_NUMBERED.fullmatch, names)):
        tensors[match["tensor"], match["number"]].append(match)
    dimensions = ([match[0] for match in group] for group in tensors.values())
    return [group for group in dimensions if len(group) > 1]


def _are_dimensions(strides: Sequence[re.Match[str]], tensors: Set[str]) -> bool:
    """Whether strides are named after dimensions of one tensor, not after several tensors."""
    called = [stride["dimension"].lower() for stride in strides]
    return called[-1] in _INNER and tensors.isdisjoint(called)


def _constexpr(
    parameter: Parameter, parameters: Sequence[Parameter], usage: Usage, defaults: Defaults
) -> Value:
    name = parameter.name
    if parameter.has_default:
        return parameter.default
    compared = usage.compared_to.get(name)
    if isinstance(compared, str):
        return compared if defaults.named else ""
    if compared is not None and not is_block(name):
        return compared
    if _PRECISION.search(name):
        return None
    if name in usage.load_types and usage.has_dot:
        return "tl.float16"
    if name in usage.types or _DATA_TYPE.search(name):
        return "tl.float32"
    if name in usage.flags or _FLAG.match(name):
        return False
    if _FLOAT_CONSTANT.fullmatch(name):
        return 1.0
    if _CONVOLUTION.fullmatch(name) and any(_TAPS.search(p.name) for p in parameters):
        return _TAP_COUNT if _TAPS.search(name) else 1
    stride = _stride_value(name, parameters)
    return _size(name, parameters, usage, defaults) if stride is None else stride


def _stride_value(name: str, parameters: Sequence[Parameter]) -> int | None:
    if "stride" not in name.lower():
        return None
    strides = [p.name for p in parameters if "stride" in p.name.lower()]
    return 1 if name in _unit_strides(strides, ()) else _ONE_BLOCK


def _size(name: str, parameters: Sequence[Parameter], usage: Usage, defaults: Defaults) -> int:
    if name in usage.unrolled and not usage.unrolled[name]:
        return FEW_TURNS
    for words, size in _SIZES:
        if re.search(words, name, re.IGNORECASE):
            return size
    sizes = [p for p in parameters if p.is_constexpr and p.name not in usage.flags]
    blocks = [p for p in sizes if is_block(p.name)]
    if is_block(name) and len(blocks) == 1 and not usage.has_dot:
        return _ONE_BLOCK
    small = usage.has_dot and name.upper().endswith("K")
    return min(_MATMUL_K, defaults.tile) if small else defaults.tile


def is_block(name: str) -> bool:
    """Whether a constexpr is the size of a tile by its name."""
    words = r"block|tile|segment_?size|^b[a-z]$|^xblock|^yblock|^rblock"
    return bool(re.search(words, name, re.IGNORECASE))
