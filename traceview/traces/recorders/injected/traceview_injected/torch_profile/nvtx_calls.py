"""Wrap the NVTX functions of torch and of the nvtx package, to mirror their ranges.

The originals are called first: a program whose torch has no NVTX fails as it does unrecorded.
"""

from __future__ import annotations

from functools import wraps

from ..import_hooks import after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .mirrored_ranges import MirroredRanges, OpenRange


def wrap(torch: ModuleType, ranges: MirroredRanges) -> None:
    """Mirror the ranges of torch.cuda.nvtx and, if the program imports it, of nvtx."""
    _wrap_torch(torch.cuda.nvtx, ranges)
    after("nvtx", lambda nvtx: _wrap_package(nvtx, ranges))


def _wrap_torch(nvtx: Any, ranges: MirroredRanges) -> None:
    opened: dict[Any, OpenRange] = {}
    _after(nvtx, "range_push", lambda _, msg: ranges.push(msg))
    _after(nvtx, "range_pop", lambda _: ranges.pop())
    _after(nvtx, "mark", lambda _, msg: ranges.mark(msg))
    _after(nvtx, "range_start", lambda number, msg: opened.update({number: ranges.start(msg)}))
    _after(nvtx, "range_end", lambda _, range_id: ranges.end(opened.pop(range_id, None)))


def _after(module: Any, name: str, mirror: Callable[..., object]) -> None:
    """Call `mirror(result, *args)` after a function of the module."""
    original = getattr(module, name, None)
    if original is None:
        return

    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            mirror(result, *args, **kwargs)
        except Exception:  # A failed mirror must not break the program.
            return result
        return result

    setattr(module, name, function)


def _wrap_package(nvtx: Any, ranges: MirroredRanges) -> None:
    opened: dict[int, tuple[Any, OpenRange]] = {}

    def started(result: Any, message: Any = None, *_: Any, **rest: Any) -> None:
        opened[id(result)] = (result, ranges.start(_text(message), _domain(rest, _)))

    def ended(_: Any, range_id: Any) -> None:
        ranges.end(opened.pop(id(range_id), (None, None))[1])

    def named(call: Callable[[str, str | None], object]) -> Callable[..., object]:
        return lambda _, message=None, *args, **rest: call(_text(message), _domain(rest, args))

    mirrors: dict[str, Callable[..., object]] = {
        "push_range": named(ranges.push),
        "pop_range": lambda _, domain=None: ranges.pop(domain),
        "mark": named(ranges.mark),
        "start_range": started,
        "end_range": ended,
    }
    for name, mirror in mirrors.items():
        _after(nvtx, name, mirror)
    nvtx.annotate = _annotate(nvtx.annotate, ranges)


def _text(message: Any) -> str:
    return "" if message is None else str(message)


def _domain(named: dict[str, Any], positional: tuple[Any, ...]) -> str | None:
    """The third parameter of the package's functions, after message and color."""
    domain = named.get("domain", positional[1] if len(positional) > 1 else None)
    return None if domain is None else str(domain)


def _annotate(original: Any, ranges: MirroredRanges) -> Any:
    """The class `nvtx.annotate`, a context manager and decorator."""

    class annotate(original):  # type: ignore[misc]  # noqa: N801 (the program's name)
        def __init__(self, message: Any = None, *args: Any, **kwargs: Any) -> None:
            super().__init__(message, *args, **kwargs)
            self._traceview = (_text(message), _domain(kwargs, args))

        def __enter__(self) -> Any:
            result = super().__enter__()
            ranges.push(*self._traceview)
            return result

        def __exit__(self, *error: Any) -> Any:
            ranges.pop(self._traceview[1])
            return super().__exit__(*error)

        def __call__(self, function: Any) -> Any:
            text, domain = self._traceview
            inner = super().__call__(function)
            text = text or function.__name__

            @wraps(function)
            def annotated(*args: Any, **kwargs: Any) -> Any:
                ranges.push(text, domain)
                try:
                    return inner(*args, **kwargs)
                finally:
                    ranges.pop(domain)

            return annotated

    annotate.__module__, annotate.__qualname__ = original.__module__, original.__qualname__
    annotate.__doc__ = original.__doc__
    return annotate
