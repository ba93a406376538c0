"""A launch as data: the source of its kernel without its project, and its arguments."""

from __future__ import annotations

import ast
import math
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from traceview.kernels.headless.worker.event_log import leaves_of, plain

_IMPORTED = {("torch", "torch"), ("triton", "triton"), ("triton.language", "tl")}
# Modules that the script may import; those of the program become parts of it.
_PUBLIC = {*sys.stdlib_module_names, "torch", "triton", "numpy"}


def launch_of(
    src: Any, arguments: Sequence[Any], options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The source, arguments and compile options of a launch; None for a kernel that is not Python.

    Values are Python expressions. `unknown` says what the launch needs that has none, if anything.
    """
    function = getattr(src, "fn", None)
    if function is None or not hasattr(function, "raw_src"):
        return None
    described: dict[str, dict[str, Any]] = {}
    tensors = {}
    for place, name, type_ in leaves_of(src.signature):
        value = arguments[place[0]] if place[0] < len(arguments) else None
        if len(place) > 1:
            described[name] = {"unknown": "a tuple"}
        elif type_ == "constexpr":
            constant = src.constants.get(place)
            described[name] = _described(getattr(constant, "value", constant))
        elif hasattr(value, "stride") and hasattr(value, "dtype"):
            tensors[name] = value
            described[name] = {}
        else:
            described[name] = _described(value)
    for name, tensor in _placed(tensors):
        described[name] = tensor
    source, written = _Source(), {}
    try:
        source.add_function(function)
        for name, value in options.items():
            try:
                written[name] = _expression(value)
            except _UnwrittenError as error:
                raise _UnwrittenError(f"has the option {name}, {error}") from None
    except _UnwrittenError as error:
        return {"source": "", "arguments": described, "unknown": str(error)}
    text = "\n".join(source.parts.values())
    return {"source": text, "arguments": described, "options": written}


def _placed(tensors: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each tensor and its bytes in a memory, by number, that it shares with those it overlaps.

    A memory begins at a multiple of 16, as alignment to that changes the code.
    """
    memory, begin, end = -1, 0, 0
    for name, tensor in sorted(tensors.items(), key=lambda each: int(each[1].data_ptr())):
        shape, stride, first = list(tensor.shape), list(tensor.stride()), int(tensor.data_ptr())
        last = sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        past = first + (last + 1 if all(shape) else 0) * int(tensor.element_size())
        # Tensors without memory are all at 0.
        if not first or first >= end:
            memory, begin = memory + 1, first - first % 16
        end = max(end, past)
        dtype = str(tensor.dtype).rpartition(".")[2]
        place = {"memory": memory, "begin": first - begin, "end": past - begin}
        yield name, {"shape": shape, "stride": stride, "dtype": dtype, **place}


def _described(value: Any) -> dict[str, Any]:
    try:
        return {"value": _expression(value)}
    except _UnwrittenError as error:
        return {"unknown": str(error)}


class _UnwrittenError(Exception):
    """The source needs a value that no expression gives."""


@dataclass
class _Source:
    """The statements of a module that defines a kernel, each behind those that it needs.

    `parts` has them by the name that they bind, `values` what each name stands for.
    """

    parts: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def add_function(self, function: Any) -> None:
        """Add a jitted function, the functions that it calls, and the globals that these read."""
        if not self._is_new(function.__name__, function):
            return
        source = textwrap.dedent("".join(function.raw_src))
        known = dict(function.fn.__globals__)
        cells = zip(function.fn.__code__.co_freevars, function.fn.__closure__ or (), strict=True)
        known |= {name: cell.cell_contents for name, cell in cells}
        for name, attribute in _read(ast.parse(source), function.fn.__code__.co_varnames):
            value = known.get(name, self)
            if value is not self:
                self._bind(name, value, attribute)
        start = source.index("def ") if not source.startswith("def ") else 0
        text = f"\n@triton.{_decorator(function)}\n{source[start:].rstrip()}\n"
        self.parts[f"def {function.__name__}"] = text

    def _bind(self, name: str, value: Any, attribute: str) -> None:
        """Add the statement that binds a name; of a module of the program, one of its members."""
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in _PUBLIC:
                self._bind_member(name, value, attribute)
            elif (value.__name__, name) not in _IMPORTED and self._is_new(name, value):
                self.parts[name] = f"import {value.__name__} as {name}"
        elif hasattr(value, "raw_src") and hasattr(value, "fn"):
            if value.fn.__module__.partition(".")[0] == "triton":
                self._import(name, value, value.fn.__module__)
                return
            self.add_function(value)
            if name != value.__name__ and self._is_new(name, value):
                self.parts[name] = f"{name} = {value.__name__}"
        elif _is_of_triton(value):
            self._import(name, value, value.__module__)
        elif self._is_new(name, value):
            try:
                self.parts[name] = f"{name} = {_expression(value)}"
            except _UnwrittenError as error:
                raise _UnwrittenError(f"reads {name}, {error}") from None

    def _bind_member(self, name: str, module: ModuleType, attribute: str) -> None:
        if self._is_new(name, module):
            self.parts[name] = f'{name} = type(sys)("{name}")'
        member = getattr(module, attribute, self)
        if isinstance(member, ModuleType):
            raise _UnwrittenError(f"reads {name}.{attribute}, a module")
        if member is not self and self._is_new(f"{name}.{attribute}", member):
            self._bind(attribute, member, "")
            self.parts[f"{name}.{attribute}"] = f"{name}.{attribute} = {attribute}"

    def _import(self, name: str, value: Any, module: str) -> None:
        if self._is_new(name, value):
            self.parts[name] = f"from {module} import {value.__name__} as {name}"

    def _is_new(self, name: str, value: Any) -> bool:
        """Whether a name is not yet bound, or about to be. Two values of one name do not go."""
        known = self.values.setdefault(name, self)
        self.values[name] = value
        if known is not self and known is not value and known != value:
            raise _UnwrittenError(f"needs two values of the name {name}")
        return known is self


def _decorator(function: Any) -> str:
    kind = type(function).__name__
    if kind == "ConstexprFunction":
        return "constexpr_function"
    if kind != "JITFunction":
        raise _UnwrittenError(f"calls {function.__name__}, a {kind}")
    names = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
    given = ((name, getattr(function, name, None)) for name in names)
    told = (
        (name, value if isinstance(value, int) else list(value)) for name, value in given if value
    )
    options = ", ".join(f"{name}={value!r}" for name, value in told)
    return f"jit({options})" if options else "jit"


def _read(module: ast.Module, local: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names that a function reads, each with the attribute that is read of it, or "".

    Its decorators are not needed. What its signature names is global, even if a local has the name.
    """
    (function,) = module.body
    if not isinstance(function, ast.FunctionDef):
        raise _UnwrittenError("is no function of its own")
    for parts, hidden in (([function.args, function.returns], ()), (function.body, local)):
        for node in (each for part in parts if part for each in ast.walk(part)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id not in hidden:
                    yield node.value.id, node.attr
            elif isinstance(node, ast.Name) and node.id not in hidden:
                yield node.id, ""


def _is_of_triton(value: Any) -> bool:
    """Whether a value is a function or a type of Triton's, under its own name in its module."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    return module.startswith("triton") and getattr(sys.modules.get(module), name, None) is value


def _expression(value: Any) -> str:
    """A value in Python; raises _UnwrittenError if there is no expression for it."""
    import triton.language as tl

    if isinstance(value, tl.constexpr):
        return f"tl.constexpr({_expression(value.value)})"
    if isinstance(value, tl.pointer_type):
        return f"tl.pointer_type({_expression(value.element_ty)})"
    if isinstance(value, tl.dtype) and str(shown := plain(value)).startswith("tl."):
        return str(shown)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) in (tuple, list):
        inside = "".join(f"{_expression(each)}, " for each in value)
        return f"({inside})" if type(value) is tuple else f"[{inside}]"
    if type(value).__module__ == "torch" and str(value).startswith("torch."):
        return str(value)
    raise _UnwrittenError(f"a {type(value).__name__}")
