"""Wrap the CuPy calls that can wait for the GPU, to mark them.

CuPy arrays are always on the GPU, so every call is marked. Classes written in C cannot be wrapped;
there the function that they call is marked.
"""

from __future__ import annotations

from functools import wraps

from .sync_marks import mark, place_warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_METHODS = (
    "get item tolist nonzero __bool__ __int__ __float__ __index__ __complex__ __repr__ __str__ "
    "__format__"
)
_FUNCTIONS = "asnumpy nonzero flatnonzero argwhere unique bincount array_equal allclose save"
CALLS = (
    *(f"ndarray.{name}" for name in _METHODS.split()),
    *_FUNCTIONS.split(),
    "cuda.Stream.synchronize",
    "cuda.ExternalStream.synchronize",
    "cuda.Event.synchronize",
    "cuda.Device.synchronize",
    "cuda.runtime.deviceSynchronize",
    "cuda.runtime.streamSynchronize",
    "cuda.runtime.eventSynchronize",
)


def wrap(cupy: ModuleType) -> None:
    """Install the wrappers. Names that this CuPy lacks are skipped."""
    place_warnings()
    for path in CALLS:
        *folders, name = path.split(".")
        holder: Any = cupy
        for folder in folders:
            holder = getattr(holder, folder, None)
        original = getattr(holder, name, None)
        if original is not None:
            _replace(holder, name, f"cupy.{path}", original)


def _replace(holder: Any, name: str, hint: str, original: Any) -> None:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return mark(hint, original, args, kwargs)

    try:
        setattr(holder, name, call)
    except (AttributeError, TypeError):
        return
