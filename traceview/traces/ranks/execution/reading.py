"""The report of a job from its recordings, each read in a process of its own, or of one rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from traceview.base import outputs, stages, units
from traceview.base.errors import InputError, TraceviewError
from traceview.base.memory import free_memory
from traceview.base.stages import in_stage
from traceview.kernels.headless.worker.forked_task import cores
from traceview.traces.ranks import process_groups, rank_windows
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.execution import task
from traceview.traces.ranks.execution.cluster import connected_client, is_local
from traceview.traces.ranks.execution.processes import ProcessPool
from traceview.traces.ranks.execution.task import RankFile, TaskFailure, rank_files
from traceview.traces.ranks.figures import RankFigures, RankName
from traceview.traces.ranks.job import FailedRank, JobReport
from traceview.traces.trace import Trace
from traceview.traces.trace.memory import estimated_bytes

# The number of recordings to read at a time on this machine.

# The largest files of each kind: the one with most events need not be the largest.
_LARGEST = 3


def most_jobs(paths: Sequence[Path]) -> int:
    """One process per usable core, as many as there are files and as fit with the largest file."""
    wanted = max(1, min(cores(), len(paths)))
    free = free_memory()
    if wanted == 1 or free is None:
        return wanted
    # Memory that the largest of the recordings needs.
    # By the full extension, such as `.sqlite.xz`.
    by_kind: dict[str, list[tuple[int, Path]]] = {}
    for path in paths:
        kind = path.name[len(Path(outputs.unpacked_name(path)).stem) :]
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        by_kind.setdefault(kind, []).append((size, path))
    largest = [path for sized in by_kind.values() for _, path in sorted(sized)[-_LARGEST:]]
    return max(1, min(wanted, free.size_bytes // max(map(estimated_bytes, largest))))


_Outcome = tuple[RankFigures, ...] | TaskFailure


@dataclass
class JobReading:
    """The state of a job while its recordings are read."""

    files: Sequence[task.RankFile] = ()
    ranks: list[RankFigures] = field(default_factory=list)
    failed: list[FailedRank] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, file: task.RankFile, outcome: _Outcome) -> None:
        """Add the outcome of a recording. Raises InputError once profilers are mixed."""
        if isinstance(outcome, TaskFailure):
            # The report names the file itself.
            reason = outcome.what.removeprefix(f"cannot read {file.path}: ")
            self.failed.append(FailedRank(file.path, reason, outcome.remedy))
            return
        self.ranks.extend(outcome)
        process_groups.check_recorders([self.ranks[0], *outcome])

    def answer(self) -> JobReport:
        """The report of the job. Raises TraceviewError if no recording gave figures, InputError if
        the recordings are not of one job."""
        if not self.ranks:
            first = self.failed[0]
            several = f"none of {units.count(len(self.files))} recordings could be read; "
            what = f"{first.path}: {first.reason}"
            raise TraceviewError(what if len(self.files) == 1 else several + what, first.remedy)
        stages.stage("Comparing ranks")
        ranks = process_groups.members(self.ranks, self.notes.append)
        failed = sorted(self.failed, key=lambda failed: failed.path)
        job = job_report(ranks, tuple(failed))
        return replace(job, result=replace(job.result, notes=(*job.result.notes, *self.notes)))


def read_job(
    patterns: Sequence[str], jobs: int | None = None, dask: str | None = None
) -> JobReport:
    """The report of the job whose recordings are named by files, folders and globs.

    `jobs` recordings are read at a time, by default as many as cores and memory allow. `dask` is a
    scheduler whose workers read them: see cluster.connected_client. A file that cannot be read is
    listed in `failed`. Raises InputError if there are no recordings, if they are
    not of one job, or for a bad number; TraceviewError if none can be read.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"{jobs} processes cannot read anything", "pass --jobs 1 or more")
    reading = JobReading()
    with closing(_outcomes(patterns, jobs, dask, reading)) as outcomes:
        for done, (place, outcome) in enumerate(outcomes, 1):
            reading.take(reading.files[place], outcome)
            _tell(done, len(reading.files))
    return reading.answer()


def _outcomes(
    patterns: Sequence[str], jobs: int | None, dask: str | None, reading: JobReading
) -> Generator[tuple[int, _Outcome]]:
    """Set `reading.files`, and yield the place and outcome of each."""
    note = reading.notes.append
    if dask is None or is_local(dask):
        reading.files = task.rank_files(patterns)
        jobs = jobs or most_jobs([Path(file.path) for file in reading.files])
    if dask is None:
        _tell(0, len(reading.files))
        yield from ProcessPool(jobs or 1, note).outcomes(task.figures_of_file, reading.files)
        return
    with connected_client(dask, jobs or 1, note) as cluster:
        reading.files = cluster.files(patterns)
        _tell(0, len(reading.files))
        yield from cluster.outcomes(task.figures_of_file, reading.files)


def _tell(done: int, whole: int) -> None:
    stages.stage(f"Reading ranks {units.count(done)} of {units.count(whole)}")


_NUMBER = re.compile(r"\d+")
_MOST_NAMED = 16


def trace_of_rank(patterns: Sequence[str], rank: int, load: Callable[[Path], Trace]) -> Trace:
    """The trace of rank number `rank` among the recordings of a job.

    Files with the number in their names are read first. Raises InputError if no recording is of
    that rank, and what `load` raises if none can be read.
    """
    files = rank_files(patterns)
    for file in files:
        if rank in map(int, _NUMBER.findall(Path(file.path).name)):
            for trace, place, name in _ranks(file, load):
                if name.rank == rank and name.numbered == "recording":
                    return rank_windows.rank_traces(trace)[place]
    # Find the rank by loading all files: numbers by order depend on all of them.
    ranks = [
        (file, place, name)
        for file in in_stage("Finding the rank", files)
        for _, place, name in _ranks(file, load)
    ]
    if not ranks:
        load(Path(files[0].path))
        raise InputError(f"{files[0].path} has no GPU work", "pass the recordings of a job")
    numbers = process_groups.numbers_by_order([(file.path, name) for file, _, name in ranks])
    numbers = numbers or [name.rank for _, _, name in ranks]
    if len(ranks) == 1 and ranks[0][2].numbered != "recording":
        # A single rank without a recorded number: accept the number from the job's report.
        numbers = [rank]
    if rank not in numbers:
        some = ", ".join(map(str, sorted(numbers)[:_MOST_NAMED]))
        more = ", …" if len(numbers) > _MOST_NAMED else ""
        there = "there are ranks" if len(numbers) > 1 else "there is only rank"
        raise InputError(f"no recording is of rank {rank}", f"{there} {some}{more}")
    file, place, _ = ranks[numbers.index(rank)]
    return rank_windows.rank_traces(load(Path(file.path)))[place]


def _ranks(file: RankFile, load: Callable[[Path], Trace]) -> Iterator[tuple[Trace, int, RankName]]:
    """The ranks of a file, by place, with its trace; none if it cannot be read."""
    try:
        trace = load(Path(file.path))
    except TraceviewError:
        return
    for place, name in enumerate(rank_windows.rank_names(trace, rank_windows.rank_owners(trace))):
        yield trace, place, name
