"""The number of recordings to read at a time on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceview.headless.worker.forked_task import cores
from traceview.memory.available import free_memory
from traceview.outputs import unpacked_name
from traceview.trace.memory.estimate import estimated_bytes

# The largest files of each kind: the one with most events need not be the largest.
_LARGEST = 3


def most_jobs(paths: Sequence[Path]) -> int:
    """One process per usable core, as many as there are files and as fit with the largest file."""
    wanted = max(1, min(cores(), len(paths)))
    free = free_memory()
    if wanted == 1 or free is None:
        return wanted
    return max(1, min(wanted, free.size_bytes // largest_bytes(paths)))


def largest_bytes(paths: Sequence[Path]) -> int:
    """Memory that the largest of the recordings needs."""
    by_kind: dict[str, list[tuple[int, Path]]] = {}
    for path in paths:
        by_kind.setdefault(_kind(path), []).append((_size(path), path))
    largest = [path for kind in by_kind.values() for _, path in sorted(kind)[-_LARGEST:]]
    return max(map(estimated_bytes, largest))


def _kind(path: Path) -> str:
    """The full extension of a file name, such as `.sqlite.xz`."""
    return path.name[len(Path(unpacked_name(path)).stem) :]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
