"""The folder in which compiled kernels are kept from one run to the next.

Triton files each kernel under a hash of its source, its arguments, its options and the compiler. It
writes by renaming, so that runs at the same time do not disturb each other.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 1 << 30
"""The size that the folder is brought back to."""
# What another run may be reading stays.
_YOUNG_S = 3600.0


def kernel_cache() -> Path | None:
    """The folder, made if needed; None where the user wants none or it cannot be written.

    It is $TRACEVIEW_CACHE_DIR, else a folder in the user's cache; an empty variable means none.
    """
    named = os.environ.get("TRACEVIEW_CACHE_DIR")
    if named == "":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(named or Path(home) / "traceview") / "triton"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _shrink(folder)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _shrink(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the kernels that were used longest ago until the rest fits."""
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):
            entries.append((path.stat().st_mtime, _size(path), path))
    excess = sum(size for _, size, _ in entries) - most_bytes
    for used, size, path in sorted(entries):
        if excess <= 0 or used > time.time() - _YOUNG_S:
            return
        shutil.rmtree(path, ignore_errors=True)
        excess -= size


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
