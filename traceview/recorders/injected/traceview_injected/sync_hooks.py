"""Mark every Python call that can wait for the GPU with the line it stands in.

A wait is a wait of the CPU for what the GPU has yet to compute or copy. The marks are NVTX ranges
around the calls: a report tells by them which line waited, without the sources.
"""

from __future__ import annotations

from .import_hooks import after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def install() -> None:
    """Wrap the calls of torch and of CuPy as soon as the program has imported these."""
    after("torch", _torch)
    after("cupy", _cupy)


# What is needed only with torch or CuPy is not loaded without.


def _torch(module: ModuleType) -> None:
    from . import sync_torch

    sync_torch.wrap(module)


def _cupy(module: ModuleType) -> None:
    from . import sync_cupy

    sync_cupy.wrap(module)
