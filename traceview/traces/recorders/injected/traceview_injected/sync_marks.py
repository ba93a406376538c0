"""Mark a call on the timeline with an NVTX range that names its source line."""

from __future__ import annotations

import sys
import warnings
from _thread import get_ident

from .sync_call_sites import place
from .torch_profile.mirrored_ranges import stack_carrier

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    Carrier = tuple[Callable[[str], Any], Callable[[], Any]]

# Readers recognize the marks by domain or, in the default domain, by this prefix.
DOMAIN = "traceview"
PREFIX = "traceview:sync:"
_FOLDER = __file__.removesuffix("sync_marks.py")

_marking: set[int] = set()
_carrier: Carrier | None = None


def mark(hint: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call `call(*args, **kwargs)` in a range, unless already inside a marked call.

    Must be called directly by a wrapper: the source line is searched from the wrapper's caller up.
    """
    thread = get_ident()
    if thread in _marking:
        return call(*args, **kwargs)
    pop = _opened(hint)
    if pop is None:
        return call(*args, **kwargs)
    _marking.add(thread)
    try:
        return call(*args, **kwargs)
    finally:
        _marking.discard(thread)
        pop()


def place_warnings() -> None:
    """Let a warning of a call that we wrap name the program's line, as without us."""
    show = getattr(warnings, "_showwarnmsg", None)
    if show is None or getattr(show, "__module__", None) == __name__:
        return

    def shown(message: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        if message.filename.startswith(_FOLDER):
            while frame and frame.f_code.co_filename != message.filename:
                frame = frame.f_back
            while frame and frame.f_code.co_filename.startswith(_FOLDER):
                frame = frame.f_back
            if frame:
                message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
        show(message)

    warnings._showwarnmsg = shown  # type: ignore[attr-defined]


def _opened(hint: str) -> Callable[[], Any] | None:
    """Open a range. Returns the function that closes it, or None on failure."""
    try:
        push, pop = _carrier or chosen()
        push(place(hint, sys._getframe(3)))
    except Exception:  # A failed mark must not break the program.
        return None
    return pop


def chosen() -> Carrier:
    """Choose the NVTX functions, on first use.

    torch's own come first: every CUDA build of torch has them, while newer versions of the nvtx
    package record nothing under older nsys.
    """
    global _carrier
    _carrier = stack_carrier() or _torch() or _cupy() or _nvtx_package() or _nothing()
    return _carrier


def _torch() -> Carrier | None:
    # A torch built without CUDA has no such module.
    nvtx = getattr(getattr(sys.modules.get("torch"), "_C", None), "_nvtx", None)
    return None if nvtx is None else _prefixed(nvtx.rangePushA, nvtx.rangePop)


def _cupy() -> Carrier | None:
    nvtx = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "nvtx", None)
    if nvtx is None or not getattr(nvtx, "available", True):
        return None
    return _prefixed(nvtx.RangePush, nvtx.RangePop)


def _nvtx_package() -> Carrier | None:
    try:
        nvtx: Any = __import__("nvtx")
    except Exception:
        return None
    return (
        lambda text: nvtx.push_range(text, domain=DOMAIN),
        lambda: nvtx.pop_range(domain=DOMAIN),
    )


def _nothing() -> Carrier:
    return (lambda _: None, lambda: None)


def _prefixed(push: Callable[[str], Any], pop: Callable[[], Any]) -> Carrier:
    return (lambda text: push(PREFIX + text), pop)
