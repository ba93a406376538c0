"""Triton's notation of a kernel's signature: `*fp32:16, i32:16, 1024`.

One entry per parameter, in order: a type, a type with a hint (`:16` divisible by 16, `:1` equal to
one), or a value, which makes the parameter a constexpr. Types may contain commas in brackets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from numbers import Real

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.base.units import counted
from traceview.kernels.ptx.model import Argument

Value = int | float | bool | str | None

_SCALARS = r"(?:i1|i8|i16|i32|i64|u1|u8|u16|u32|u64|fp16|bf16|fp32|f32|fp64|fp8e\w+)"
_TYPE = re.compile(rf"\**k?{_SCALARS}|tensordesc<{_SCALARS}\[[\d, ]+\]>|nvTmaDesc")
_DTYPE = re.compile(r"(?:tl|triton\.language)\.(\w+)")
TYPE_NAMES = {
    "bfloat16": "bf16",
    "int1": "i1",
    "bool": "i1",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
"""The name of a type in signatures, by its name in triton.language and PyTorch."""
EXAMPLE = '"*fp32:16, *fp32:16, i32:16, 1024"'


@record
class Parameter:
    """A parameter of a kernel as declared in its source; `default` is valid with `has_default`.

    `type` is the annotated type by Triton's name, or "". `is_specialized` tells whether the
    launcher compiles for its value being 1 or divisible by 16.
    """

    name: str
    is_constexpr: bool = False
    has_default: bool = False
    default: Value = None
    type: str = ""
    is_specialized: bool = True


def bind(
    signature: str, parameters: Sequence[Parameter], constexprs: Mapping[str, Value]
) -> tuple[Argument, ...]:
    """The arguments of a kernel from its signature and `constexprs`.

    The signature may omit parameters in `constexprs` and `tl.constexpr` parameters with a default.
    Raises InputError if it does not match the parameters.
    """
    check_names(constexprs, [parameter.name for parameter in parameters])
    entries = _entries(signature)
    typed = _typed_parameters(parameters, constexprs, len(entries))
    declared = {p.name: argument(p.name, e) for p, e in zip(typed, entries, strict=True)}
    declared |= {name: constant(name, value) for name, value in constexprs.items()}
    defaults = (p for p in parameters if p.name not in declared)
    declared |= {p.name: constant(p.name, p.default) for p in defaults}
    return tuple(declared[parameter.name] for parameter in parameters)


def is_whole(signature: str, parameters: Sequence[Parameter]) -> bool:
    """Whether a signature has an entry for every parameter, constexprs included."""
    return len(_entries(signature)) == len(parameters)


def argument(name: str, entry: str) -> Argument:
    """Parse one entry of a signature. Raises InputError if it is neither a type nor a value."""
    type_, _, hint = (part.strip() for part in entry.partition(":"))
    if _TYPE.fullmatch(type_):
        if hint == "1":
            return constant(name, 1)
        if hint not in ("", "16"):
            what = f"unknown hint :{hint[:20]} for {name}"
            raise InputError(what, "use :16 (divisible by 16) or :1 (equal to one)")
        return Argument(name, "fp32" if type_ == "f32" else type_, divisible_by_16=hint == "16")
    value = value_of(entry)
    # A bare word is rather a misspelt type than a value.
    is_word = isinstance(value, str) and value == entry.strip() and dtype_name(value) is None
    if hint or is_word:
        what = f"signature entry {entry[:60]!r} for {name} is neither a type nor a value"
        raise InputError(what, f"use Triton's notation, for example {EXAMPLE}")
    return constant(name, value)


def constant(name: str, value: Value) -> Argument:
    """A compile-time constant argument."""
    return Argument(name, "constexpr", value=value)


def value_of(text: str) -> Value:
    """The value of a constexpr on the command line: a number, True, None, tl.float16, or text."""
    text = text.strip()
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if value is None or isinstance(value, (int, float, str)) else text


def as_written(name: str, value: Value) -> str:
    """The text of a constexpr, the inverse of `value_of`.

    Raises InputError for a type that cannot be written, such as Triton's own objects.
    """
    if not isinstance(value, (str, Real, type(None))):
        what = f"constexpr {name[:60]} has the unsupported type {type(value).__name__}"
        raise InputError(what, 'pass a number or a string, such as "tl.float16"')
    return str(value)


def all_as_written(constexprs: Mapping[str, Value | Sequence[Value]]) -> dict[str, str | list[str]]:
    """The texts of constexprs, any of which may have a list of values."""
    return {
        name: as_written(name, value)
        if isinstance(value, str) or not isinstance(value, Sequence)
        else [as_written(name, each) for each in value]
        for name, value in constexprs.items()
    }


def notation(arguments: Sequence[Argument]) -> str:
    """The signature that declares these arguments."""
    return ", ".join(_written(argument) for argument in arguments)


def dtype_name(value: Value) -> str | None:
    """The Triton data type in a value such as `tl.float16`: `float16`; else None."""
    match = _DTYPE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def check_names(given: Collection[str], names: Sequence[str]) -> None:
    """Raise InputError for a name that is not a parameter of the kernel."""
    for name in given:
        if name not in names:
            remedy = f"its parameters are {', '.join(names)}"
            raise InputError(f"the kernel has no parameter {name[:60]!r}", remedy)


def _typed_parameters(
    parameters: Sequence[Parameter], constexprs: Mapping[str, Value], count: int
) -> list[Parameter]:
    """The parameters that the entries declare: the first selection of `count` parameters."""
    rest = [p for p in parameters if p.name not in constexprs]
    runtime = [p for p in rest if not (p.is_constexpr and p.has_default)]
    for choice in (list(parameters), rest, runtime):
        if len(choice) == count:
            return choice
    names = ", ".join(p.name for p in parameters)
    entries, of = counted(count, "entry", "entries"), counted(len(parameters), "parameter")
    what = f"the signature has {entries}, but the kernel has {of}"
    raise InputError(what, f"give one entry per parameter: {names}")


def _written(argument: Argument) -> str:
    if argument.type != "constexpr":
        return argument.type + (":16" if argument.divisible_by_16 else "")
    bare = dtype_name(argument.value) is not None
    return str(argument.value) if bare else repr(argument.value)


def _entries(signature: str) -> list[str]:
    entries = [entry.strip() for entry in _split(signature)]
    if entries and not entries[-1]:
        entries.pop()
    if not all(entries):
        raise InputError("the signature has an empty entry", f"for example {EXAMPLE}")
    return entries


def _split(signature: str) -> Iterator[str]:
    depth, quote, start = 0, "", 0
    for at, letter in enumerate(signature):
        if quote or letter in "'\"":
            quote = "" if letter == quote else quote or letter
        elif letter in "[<(":
            depth += 1
        elif letter in "]>)":
            depth -= 1
        elif letter == "," and depth == 0:
            yield signature[start:at]
            start = at + 1
    yield signature[start:]


# Element types in the comments and the docstrings on parameters.

_SHORT_TYPES = {"half": "fp16", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp64": "fp64"}
_TYPES = {**TYPE_NAMES, **_SHORT_TYPES}
_TYPE_WORD = re.compile(rf"\b({'|'.join(_TYPES)})\b")
_NAMED_FIRST = re.compile(r"#\s*(\w+)\s*:")
_DOCUMENTED = re.compile(r"^\s*(\w+)\s*((?:\([^)\n]*\))?\s*:.*)$", re.MULTILINE)


def documented_types(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    """The element types in a docstring that names one per parameter: `b: [K, N], fp16`."""
    lines = _DOCUMENTED.findall(ast.get_docstring(function) or "")
    found = {name: {_TYPES[word] for word in _TYPE_WORD.findall(text)} for name, text in lines}
    return {name: next(iter(types)) for name, types in found.items() if len(types) == 1}


def commented_types(text: str, function: ast.FunctionDef) -> dict[str, str]:
    """The element types in comments: `x_ptr,  # [T, 512] bf16` and `# cap: an int32 tensor`."""
    listed = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = {argument.arg for argument in listed}
    types = documented_types(function)
    for number, line in enumerate(text.splitlines(), 1):
        code, sign, comment = line.partition("#")
        word = _TYPE_WORD.search(comment) if sign and "'" not in code and '"' not in code else None
        if word is None:
            continue
        first = _NAMED_FIRST.match(sign + comment)
        here = [argument.arg for argument in listed if argument.lineno == number]
        if first and first[1] in names:
            types[first[1]] = _TYPES[word[1]]
        elif len(here) == 1:
            types[here[0]] = _TYPES[word[1]]
    return types
