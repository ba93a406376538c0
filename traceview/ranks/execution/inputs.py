"""The recordings of a job: from files, folders and globs, here or on the workers of a cluster."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traceview.errors import InputError
from traceview.outputs import ARCHIVE_SUFFIXES
from traceview.ranks.membership import by_number
from traceview.trace.folder import USE_RECORDINGS, recordings_in

_MAGIC = frozenset("*?[")
_ABSENT = -1
# Near the start of all JSON that traceview itself writes, and in no recording.
_OWN_OUTPUT = b'"traceview_version"'
_OWN_OUTPUT_BYTES = 200


@dataclass(frozen=True, order=True)
class RankFile:
    """A recording. `size` and `modified_ns` distinguish files with one path on several machines.

    `workers` has the addresses of the Dask workers that see the file; empty if any can read it.
    """

    path: str
    size: int = _ABSENT
    modified_ns: int = 0
    workers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.path


def recording_paths(patterns: Sequence[str]) -> list[RankFile]:
    """The recordings that files, folders and globs name on this machine, in order.

    A file that does not exist is listed too; a folder or glob without recordings adds none.
    """
    files = []
    for path in (path for pattern in patterns for path in _paths(pattern)):
        try:
            stat = path.stat()
            files.append(RankFile(str(path), stat.st_size, stat.st_mtime_ns))
        except OSError:
            files.append(RankFile(str(path)))
    return files


def _paths(pattern: str) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        return [file for file in recordings_in(path) if not _is_own_output(file)]
    if _MAGIC & set(pattern) and not path.exists():
        # A Path has no glob for absolute patterns.
        return [Path(name) for name in glob.glob(pattern)]  # noqa: PTH207
    return [path]


def _is_own_output(path: Path) -> bool:
    if path.suffix in ARCHIVE_SUFFIXES or path.suffix != ".json":
        return False
    try:
        with path.open("rb") as file:
            return _OWN_OUTPUT in file.read(_OWN_OUTPUT_BYTES)
    except OSError:
        return False


def rank_files(patterns: Sequence[str]) -> list[RankFile]:
    """The recordings of a job on this machine. Raises InputError if there are none."""
    files = {str(Path(file.path).resolve()): file for file in reversed(recording_paths(patterns))}
    return _some(files.values(), patterns)


def files_on(
    by_worker: Mapping[str, Sequence[RankFile]], patterns: Sequence[str]
) -> list[RankFile]:
    """The recordings of a job on a cluster, from what each worker has listed.

    Workers that see the same file under a path, as on a shared file system, share one recording.
    Raises InputError if there are none.
    """
    holders: dict[RankFile, list[str]] = {}
    for worker, files in by_worker.items():
        for file in files:
            holders.setdefault(file, []).append(worker)
    present = {file.path for file in holders if file.size != _ABSENT}
    kept = (
        replace(file, workers=() if len(workers) == len(by_worker) else tuple(workers))
        for file, workers in holders.items()
        if file.size != _ABSENT or file.path not in present
    )
    return _some(kept, patterns)


def _some(files: Iterable[RankFile], patterns: Sequence[str]) -> list[RankFile]:
    some = sorted(files, key=lambda file: by_number(file.path))
    if not some:
        names = " ".join(patterns)
        raise InputError(f"{names} has no recordings" if names else "no recordings", USE_RECORDINGS)
    return some
