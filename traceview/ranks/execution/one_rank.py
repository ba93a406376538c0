"""One rank of a job, loaded as a trace for a single-rank report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from traceview.errors import InputError, TraceviewError
from traceview.ranks.execution.inputs import RankFile, rank_files
from traceview.ranks.extraction import owners
from traceview.ranks.figures import RankName
from traceview.ranks.membership import numbers_by_order
from traceview.stages import in_stage
from traceview.trace import Trace

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
                    return owners.rank_traces(trace)[place]
    return _by_reading_all(files, rank, load)


def _by_reading_all(files: Sequence[RankFile], rank: int, load: Callable[[Path], Trace]) -> Trace:
    """Find the rank by loading all files: numbers by order depend on all of them."""
    ranks = [
        (file, place, name)
        for file in in_stage("Finding the rank", files)
        for _, place, name in _ranks(file, load)
    ]
    if not ranks:
        load(Path(files[0].path))
        raise InputError(f"{files[0].path} has no GPU work", "pass the recordings of a job")
    numbers = numbers_by_order([(file.path, name) for file, _, name in ranks])
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
    return owners.rank_traces(load(Path(file.path)))[place]


def _ranks(file: RankFile, load: Callable[[Path], Trace]) -> Iterator[tuple[Trace, int, RankName]]:
    """The ranks of a file, by place, with its trace; none if it cannot be read."""
    try:
        trace = load(Path(file.path))
    except TraceviewError:
        return
    for place, name in enumerate(owners.rank_names(trace, owners.rank_owners(trace))):
        yield trace, place, name
