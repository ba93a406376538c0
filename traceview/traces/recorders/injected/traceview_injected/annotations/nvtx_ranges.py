"""NVTX ranges that may end in any order, on any thread.

They are start/end ranges: push and pop would share a stack with the ranges of the program, and one
that the program leaves open across ours would be closed in its place.
"""

from __future__ import annotations

import sys

from ..torch_profile.mirrored_ranges import free_carrier

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Carrier = tuple[Callable[[str], Any], Callable[[Any], Any]]

DOMAIN = "traceview"
PREFIX = "traceview:range:"
"""Readers recognize the ranges by this prefix, since those of torch are in the default domain."""

_carrier: Carrier | None = None
_texts: dict[str, str] = {}


def choose(carrier: Carrier | None = None) -> bool:
    """Choose the functions that start and end a range, by default of NVTX; False without any.

    torch's own come first: every CUDA build of torch has them, while newer versions of the nvtx
    package record nothing under older nsys.
    """
    global _carrier
    _carrier = carrier or free_carrier() or _of_torch() or _of_nvtx_package()
    return _carrier is not None


def start(name: str) -> Any:
    """Open a range and return what `end` takes; None on failure."""
    if _carrier is None:
        return None
    try:
        text = _texts.get(name)
        if text is None:
            text = _texts[name] = PREFIX + name
        return _carrier[0](text)
    except Exception:  # A failed range must not break the program.
        return None


def end(opened: Any) -> None:
    """Close a range."""
    if opened is not None and _carrier is not None:
        try:
            _carrier[1](opened)
        except Exception:  # As above.
            return


def _of_torch() -> Carrier | None:
    # A torch built without CUDA has no such module.
    nvtx = getattr(getattr(sys.modules.get("torch"), "_C", None), "_nvtx", None)
    starts, ends = getattr(nvtx, "rangeStartA", None), getattr(nvtx, "rangeEnd", None)
    return (starts, ends) if starts and ends else None


def _of_nvtx_package() -> Carrier | None:
    try:
        nvtx: Any = __import__("nvtx")
    except Exception:
        return None
    return (lambda text: nvtx.start_range(text, domain=DOMAIN), nvtx.end_range)
