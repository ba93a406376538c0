"""What the environment asks for, each piece on its own: one that fails leaves the others."""

from __future__ import annotations

import os

from . import notes

GATHER = "TRACEVIEW_GATHER"
SYNC_SITES = "TRACEVIEW_SYNC_SITES"


def begin() -> None:
    """Install the hooks. Nothing of the user's is imported yet."""
    folder = os.environ.get(GATHER)
    if folder:
        notes.started(folder)
        with notes.kept(folder, "kernels"):
            from . import triton_kernels

            triton_kernels.install(folder)
    if os.environ.get(SYNC_SITES) == "1":
        with notes.kept(folder, "sync sites"):
            _install_sync_sites()


def _install_sync_sites() -> None:
    try:
        from . import sync_hooks
    except ImportError as error:
        if not str(error.name).endswith("sync_sites"):
            raise
        return
    sync_hooks.install()
