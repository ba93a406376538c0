"""Mark every Python call that can make the CPU wait for the GPU with its source line.

The marks are NVTX ranges around the calls. They show which line waited, without the sources.
"""

from __future__ import annotations

from .import_hooks import after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def install() -> None:
    """Wrap the calls of torch and CuPy as soon as the program imports them."""
    after("torch", _torch)
    after("cupy", _cupy)


# Imported only if the program uses torch or CuPy.


def _torch(module: ModuleType) -> None:
    from . import sync_torch

    sync_torch.wrap(module)


def _cupy(module: ModuleType) -> None:
    from . import sync_cupy

    sync_cupy.wrap(module)
