"""Export nsys reports to SQLite: a user's report into a cache, never next to the report."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path

from traceview.errors import RecordingError, ToolNotFoundError, TraceFormatError, unreadable
from traceview.outputs import cache_folder, private_file
from traceview.recorders.nsys import Nsys, find
from traceview.toolchain.processes import run_process
from traceview.trace.scrub.environment import remove_environment

CACHE_BYTES = 2 * 10**9
_HOUR_S = 3600.0
INCLUDE_JSON = "--include-json=true"
_ELSEWHERE = "or export it on a machine with nsys: nsys export --type sqlite FILE.nsys-rep"


def export(nsys: Nsys, report: Path, out: Path, *, include_json: bool = False) -> None:
    """Export a report to SQLite; `include_json` adds the JSON of NVTX events.

    Raises TraceFormatError if nsys fails.
    """
    json = (INCLUDE_JSON,) if include_json else ()
    options = ("--type=sqlite", "--quiet=true", *json, f"--output={out}")
    ran = run_process([nsys.path, "export", *options, report], timeout_s=_HOUR_S)
    # Some versions exit with 0 after a failure.
    if not ran.ok or not out.is_file():
        raise TraceFormatError(
            f"nsys {nsys.version_text} cannot export {report} ({ran.evidence})",
            "export it with the nsys that recorded it, or copy the file again",
        )


def can_include_json(nsys: Nsys) -> bool:
    """Whether this nsys can export the JSON of NVTX events, which holds Python stacks."""
    return INCLUDE_JSON.partition("=")[0] in run_process([nsys.path, "export", "--help"]).out


def export_report(path: Path) -> Path:
    """Export an nsys report to SQLite, or return the cached export.

    The cache is $XDG_CACHE_HOME/traceview or ~/.cache/traceview, 2 GB at most: the least recently
    used exports are removed. It is private, and of environments holds ranks alone. Raises
    TraceFormatError if the report cannot be read or exported, ToolNotFoundError if there is no
    nsys, RecordingError if the cache cannot be written.
    """
    key = _content_key(path)
    try:
        nsys = find()
    except ToolNotFoundError as error:
        what = f"{path} must be exported by nsys first, and {error.what}"
        raise ToolNotFoundError(what, f"{error.remedy}, {_ELSEWHERE}") from error
    try:
        cached = cache_folder() / f"{key}-{nsys.version_text}.sqlite"
        if cached.is_file():
            private_file(cached)
            cached.touch()
        else:
            # Exported elsewhere and renamed: other processes see the whole file or none.
            with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".export-") as folder:
                fresh = Path(folder, "export.sqlite")
                export(nsys, path, fresh, include_json=can_include_json(nsys))
                remove_environment(fresh)
                fresh.chmod(0o600)
                fresh.replace(cached)
            _remove_oldest(cached)
    except OSError as error:
        what = f"cannot write to the export cache: {error}"
        raise RecordingError(what, "set XDG_CACHE_HOME to a writable folder") from error
    return cached


def _content_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise unreadable(path, error, TraceFormatError) from error
    if not size:
        raise TraceFormatError(f"cannot read {path}: the file is empty", "copy the file again")
    return f"{size}-{digest}"


def _remove_oldest(keep: Path) -> None:
    stats = []
    for path in filter(Path.is_file, keep.parent.glob("*.sqlite")):
        # Another process may have removed it.
        with suppress(FileNotFoundError):
            stats.append((path, path.stat()))
    total = sum(stat.st_size for _, stat in stats)
    for path, stat in sorted(stats, key=lambda pair: pair[1].st_mtime_ns):
        if total <= CACHE_BYTES:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            total -= stat.st_size
