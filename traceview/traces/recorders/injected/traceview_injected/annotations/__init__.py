"""Ranges added to a torch program: its steps, and the parts of each."""

from __future__ import annotations

from ..import_hooks import after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

MODULES = "modules"
"""The mode that also names modules inside the model."""


def install(mode: str) -> None:
    """Wrap the calls of torch as soon as the program imports it."""
    after("torch", lambda torch: _wrap(torch, mode))


# Imported only if the program uses torch.


def _wrap(torch: ModuleType, mode: str) -> None:
    from . import torch_calls

    torch_calls.wrap(torch, name_modules=mode == MODULES)
