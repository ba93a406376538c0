"""The folder in which compiled kernels are kept from one run to the next.

Triton files each kernel under a hash of its source, its arguments, its options and the compiler,
but not of the file that it stands in, which the code names. So each target has a folder of its own.
Triton writes by renaming: runs at the same time do not disturb each other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from traceview.outputs import cache_folder, private_file, private_folder

MOST_BYTES = 1 << 30
"""The size to which the folder is reduced."""
# Younger kernels stay, as another run may be reading them.
_YOUNG_S = 3600.0


def kernel_cache(target: str) -> Path | None:
    """The folder of a target (an absolute path, or a module), created if needed.

    It is in $TRACEVIEW_CACHE_DIR, else in the user's cache, and private. None if that variable is
    empty, or if the folder cannot be written or is not the user's own.
    """
    named = os.environ.get("TRACEVIEW_CACHE_DIR")
    if named == "":
        return None
    parts = ("triton", hashlib.sha256(os.fsencode(target)).hexdigest()[:32])
    try:
        folder = private_folder(Path(named), *parts) if named else cache_folder(*parts)
        _shrink(folder.parent)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _shrink(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the kernels that were used longest ago until the rest fits."""
    entries = []
    for path in folder.glob("*/*"):
        with suppress(OSError):
            # Triton makes folders and files as the umask says.
            private_folder(path.parent, path.name)
            for file in path.iterdir():
                private_file(file)
            entries.append((path.stat().st_mtime, _size(path), path))
    excess = sum(size for _, size, _ in entries) - most_bytes
    for used, size, path in sorted(entries):
        if excess <= 0 or used > time.time() - _YOUNG_S:
            return
        shutil.rmtree(path, ignore_errors=True)
        excess -= size


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
