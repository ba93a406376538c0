"""A launch as data: the source of its kernel without its project, and its arguments."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from traceview.headless.worker.event_log import leaves_of, plain

_IMPORTED = {("torch", "torch"), ("triton", "triton"), ("triton.language", "tl")}


def launch_of(src: Any, arguments: Sequence[Any]) -> dict[str, Any] | None:
    """The source and the arguments of a launch; None for a kernel that is not Python."""
    function = getattr(src, "fn", None)
    if function is None or not hasattr(function, "raw_src"):
        return None
    described: dict[str, dict[str, Any]] = {}
    for place, name, type_ in leaves_of(src.signature):
        value = arguments[place[0]] if place[0] < len(arguments) else None
        if len(place) > 1:
            described[name] = {"unknown": "a tuple"}
        elif type_ == "constexpr":
            described[name] = {"constexpr": plain(src.constants.get(place))}
        else:
            described[name] = _described(value)
    return {"source": source_of(function), "arguments": described}


def _described(value: Any) -> dict[str, Any]:
    if hasattr(value, "stride") and hasattr(value, "dtype"):
        dtype = str(value.dtype).rpartition(".")[2]
        return {"shape": list(value.shape), "stride": list(value.stride()), "dtype": dtype}
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    return {"unknown": type(value).__name__}


def source_of(function: Any) -> str:
    """The kernel, the jitted functions that it calls, and the globals that these read."""
    parts: dict[str, str] = {}
    _gather(function, parts, set())
    return "\n".join(parts.values())


def _gather(function: Any, parts: dict[str, str], begun: set[str]) -> None:
    """Add a function behind all that it needs.

    `begun` are those that are being added: names of attributes are among the names that code reads,
    and may be the name of the function itself.
    """
    begun.add(function.__name__)
    code, known = function.fn.__code__, function.fn.__globals__
    for name in code.co_names:
        if name in known and name not in parts and (text := _text(name, known[name], parts, begun)):
            parts[name] = text
    source = textwrap.dedent("".join(function.raw_src))
    start = source.index("def ") if not source.startswith("def ") else 0
    parts[f"def {function.__name__}"] = f"\n@triton.jit\n{source[start:].rstrip()}\n"


def _text(name: str, value: Any, parts: dict[str, str], begun: set[str]) -> str | None:
    """The statement that binds a name; None for one that cannot be written or is not needed."""
    if isinstance(value, ModuleType):
        if (value.__name__, name) in _IMPORTED:
            return None
        return f"import {value.__name__} as {name}"
    if hasattr(value, "raw_src") and hasattr(value, "fn"):
        if value.fn.__module__.partition(".")[0] == "triton":
            return f"from {value.fn.__module__} import {value.__name__} as {name}"
        if value.__name__ not in begun:
            _gather(value, parts, begun)
        return f"{name} = {value.__name__}" if name != value.__name__ else None
    constant = getattr(value, "value", None)
    if type(value).__name__ == "constexpr" and type(constant) in (bool, int, float, str):
        return f"{name} = tl.constexpr({constant!r})"
    return f"{name} = {value!r}" if type(value) in (bool, int, float, str) else None
