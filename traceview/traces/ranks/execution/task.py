"""The task of a worker: which recordings there are, the figures of one, and how the task ended."""

from __future__ import annotations

import glob
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import traceview
from traceview.base import failures, outputs
from traceview.base.errors import InputError, TraceviewError
from traceview.base.records import record
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.ranks import process_groups, rank_figures, rank_windows
from traceview.traces.ranks.figures import RankFigures, RankFinding
from traceview.traces.reporting import without_tables
from traceview.traces.trace import Trace
from traceview.traces.trace.load import USE_RECORDINGS, recordings_in

Item = TypeVar("Item")
Value = TypeVar("Value")
LESS_MEMORY = "use a machine with more memory, fewer workers (--jobs 1), or record less"


@record
class TaskFailure:
    """The error of a task and a remedy. `crashed`: its process died or ran out of memory."""

    what: str
    remedy: str
    crashed: bool = False


def attempt(function: Callable[[Item], Value], item: Item) -> Value | TaskFailure:
    """Call `function(item)`: return its value, or its exception as a TaskFailure."""
    try:
        return function(item)
    except TraceviewError as error:
        return TaskFailure(error.what, error.remedy)
    except MemoryError:
        return TaskFailure("out of memory", LESS_MEMORY, crashed=True)
    except Exception as error:
        return TaskFailure(failures.internal_error(error), failures.REPORT_IT)


def crash(status: int | None, last_words: str = "") -> TaskFailure:
    """The failure of a task whose process ended with `status`, as in Popen.returncode."""
    words = f" ({last_words})" if last_words else ""
    if status is not None and -status == signal.SIGKILL:
        what = "its process was killed by SIGKILL, as the system does when memory runs out"
        return TaskFailure(f"{what}{words}", LESS_MEMORY, crashed=True)
    how = f"ended with status {status}"
    if status is not None and status < 0:
        named = -status in set(signal.Signals)
        how = f"was killed by {signal.Signals(-status).name if named else f'signal {-status}'}"
    return TaskFailure(f"its process {how}{words}", failures.REPORT_IT, crashed=True)


def with_second_try(
    outcomes: Iterable[tuple[int, Value | TaskFailure]],
    run_alone: Callable[[Sequence[int]], Iterable[tuple[int, Value | TaskFailure]]],
    items: Sequence[object],
    note: Callable[[str], None],
) -> Iterator[tuple[int, Value | TaskFailure]]:
    """The outcomes by place; those of crashed tasks are of a second try, after the others."""
    crashed = []
    for place, outcome in outcomes:
        if isinstance(outcome, TaskFailure) and outcome.crashed:
            note(f"{items[place]}: {outcome.what}; it is read again, alone")
            crashed.append(place)
        else:
            yield place, outcome
    yield from run_alone(crashed)


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
    if path.suffix in outputs.ARCHIVE_SUFFIXES or path.suffix != ".json":
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
    some = sorted(files, key=lambda file: process_groups.by_number(file.path))
    if not some:
        names = " ".join(patterns)
        raise InputError(f"{names} has no recordings" if names else "no recordings", USE_RECORDINGS)
    return some


_MOST_FINDINGS = 5


def figures_of_file(file: RankFile) -> tuple[RankFigures, ...]:
    """The figures of a recording's ranks, each with the first findings of its own report.

    Raises InputError for a recording without GPU work, and what `traceview.load` raises.
    """
    trace = with_steps(traceview.load(file.path))
    ranks = rank_figures.figures_of_ranks(trace)
    if not ranks:
        what, exit_status = "no GPU work was recorded", trace.run.get("exit_status", "0")
        if exit_status in ("0", "130"):
            raise InputError(what, "record the rank while it works on its GPU")
        raise InputError(
            f"{what}: the program ended with exit status {exit_status[:8]}",
            "events that were not yet saved are lost when a program is killed",
        )
    # Ranks of one process share a trace, and its report.
    traces = rank_windows.rank_traces(trace)
    summaries = {key: _summary(of) for key, of in {id(of): of for of in traces}.items()}
    return tuple(
        replace(figures, path=file.path, **summaries[id(of)])
        for figures, of in zip(ranks, traces, strict=True)
    )


def _summary(trace: Trace) -> dict[str, Any]:
    """Verdict, findings and warnings of a rank's own report."""
    report = without_tables(trace)
    findings = (
        RankFinding(
            ranked.analysis,
            ranked.finding.severity,
            ranked.finding.message,
            ranked.finding.action,
            ranked.finding.time_at_stake_ns,
            ranked.finding.share_of_step_pct,
            ranked.finding.cause,
        )
        for ranked in report.findings[:_MOST_FINDINGS]
    )
    return {
        "verdict": report.verdict.text if report.verdict else "",
        "limit": report.verdict.limit if report.verdict else "unknown",
        "findings": tuple(findings),
        "warnings": report.trace.warnings,
    }
