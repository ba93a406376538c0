"""Figures of ranks made by hand: each step computes, idles and takes part in collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.ranks.figures import (
    ALL_REDUCE,
    Place,
    RankCollectives,
    RankFigures,
    RankName,
    RankSteps,
    WorkPart,
)

MS = 1_000_000
WORLD = 77
LATE = CAUSE_NAMES.index("launch-late")
SLEEP = Place("/job/data.py", 40, "load", what="sleep")


@dataclass(frozen=True)
class Call:
    """A collective of a step: what the rank did before it, and how long its transfer takes."""

    work_ns: int
    idle_ns: int = 0
    transfer_ns: int = MS
    communicator: int = WORLD
    kind: int = ALL_REDUCE
    bytes: int = 1 << 20


@dataclass(frozen=True)
class Made:
    """A rank: the calls of each of its steps. `cpu_ns` is that of its CPU by step, if known."""

    steps: Sequence[Sequence[Call]]
    cpu_ns: Sequence[int] | None = None
    places: tuple[Place, ...] = ()
    place_ns: Sequence[Sequence[int]] = ()
    work: tuple[WorkPart, ...] = ()
    groups: dict[int, tuple[int, int]] = field(default_factory=dict)


def job(made: Sequence[Made], clocks: Sequence[tuple[int, float]] = ()) -> list[RankFigures]:
    """The ranks of a job: each collective begins its transfer when the last of its ranks arrives.

    `clocks` has an offset and a drift by rank. All ranks run the same steps; a collective belongs
    to the ranks that have its communicator in `groups`, or to all.
    """
    calls = [[call for step in each.steps for call in step] for each in made]
    starts, ends = _run(made, calls)
    clocks = clocks or [(0, 0.0)] * len(made)
    return [
        _rank(number, each, starts[number], ends[number], clocks[number], len(made))
        for number, each in enumerate(made)
    ]


def _run(
    made: Sequence[Made], calls: Sequence[Sequence[Call]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Start and end of each collective of each rank, in true time."""
    starts: list[list[int]] = [[] for _ in made]
    ends: list[list[int]] = [[] for _ in made]
    time, ranks = [0] * len(made), range(len(made))
    while unfinished := [r for r in ranks if len(starts[r]) < len(calls[r])]:
        ahead = {r: calls[r][len(starts[r])] for r in unfinished}
        for number in sorted({call.communicator for call in ahead.values()}):
            members = [r for r in ranks if not made[r].groups or number in made[r].groups]
            if any(r not in ahead or ahead[r].communicator != number for r in members):
                continue
            arrived = {r: time[r] + ahead[r].work_ns + ahead[r].idle_ns for r in members}
            end = max(arrived.values()) + ahead[members[0]].transfer_ns
            for r in members:
                starts[r].append(arrived[r])
                ends[r].append(end)
                time[r] = end
    return starts, ends


def _rank(
    number: int, made: Made, starts: list[int], ends: list[int], clock: tuple[int, float], size: int
) -> RankFigures:
    offset, drift = clock
    true_start, true_end = np.array(starts, np.int64), np.array(ends, np.int64)
    start, end = (t + offset + np.rint(drift * t).astype(np.int64) for t in (true_start, true_end))
    calls = [call for step in made.steps for call in step]
    step = np.repeat(np.arange(len(made.steps)), [len(each) for each in made.steps])
    idle = np.zeros((len(calls), len(CAUSE_NAMES)), np.int64)
    idle[:, LATE] = [call.idle_ns for call in calls]
    groups = made.groups or {WORLD: (size, number)}
    collectives = RankCollectives(
        start_ns=start,
        end_ns=end,
        kind=np.array([call.kind for call in calls], np.int8),
        communicator=np.array([call.communicator for call in calls], np.int64),
        bytes=np.array([call.bytes for call in calls], np.int64),
        bus_bytes=np.array([call.bytes for call in calls], np.int64),
        members=np.array([groups[call.communicator][0] for call in calls], np.int64),
        peer=np.full(len(calls), -1),
        stream=np.full(len(calls), 20),
        exposed_ns=end - start,
        step=step,
        work_ns=np.array([call.work_ns for call in calls], np.int64),
        idle_ns=idle,
        place=np.where(idle[:, LATE] > 0, 0 if made.places else -1, -1),
        place_ns=idle[:, LATE].copy(),
    )
    steps = _steps(made, collectives, step)
    steady = ~steps.warm_up
    return RankFigures(
        RankName(
            number, number, size, "node0", f"rank{number}", number, "NVIDIA H200", "recording"
        ),
        f"rank{number}.sqlite",
        "nsys",
        str(number),
        None,
        collectives,
        steps,
        groups,
        places=made.places,
        cpu_places=made.places if made.place_ns else (),
        cpu_place_ns=np.array(made.place_ns, np.int64) if made.place_ns else None,
        work=made.work,
        span_ns=int(steps.duration_ns[steady].sum()),
        compute_ns=int(steps.compute_ns[steady].sum()),
        exposed_ns=int(steps.exposed_ns[steady].sum()),
        idle_ns={"launch-late": int(steps.idle_ns[steady].sum())},
        step_median_ns=int(np.median(steps.duration_ns[steady])),
        link_bytes_per_s=450 * 10**9,
    )


def _steps(made: Made, calls: RankCollectives, step: np.ndarray) -> RankSteps:
    count = len(made.steps)
    last = np.append(np.flatnonzero(np.diff(step)), len(step) - 1)
    end = calls.end_ns[last]
    first = calls.start_ns[0] - calls.work_ns[0] - calls.idle_ns[0].sum()
    idle = np.zeros((count, len(CAUSE_NAMES)), np.int64)
    np.add.at(idle, step, calls.idle_ns)
    compute, exposed = (
        np.bincount(step, values).astype(np.int64) for values in (calls.work_ns, calls.exposed_ns)
    )
    none = np.zeros(count, np.int64)
    return RankSteps(
        names=tuple(f"step_{number}" for number in range(count)),
        number=np.arange(count),
        begin_ns=np.append(first, end[:-1]),
        end_ns=end,
        warm_up=np.arange(count) < 1,
        compute_ns=compute,
        exposed_ns=exposed,
        hidden_ns=none,
        copies_ns=none,
        idle_ns=idle,
        cpu_ns=None if made.cpu_ns is None else np.array(made.cpu_ns, np.int64),
    )


def without(rank: RankFigures, row: int) -> RankFigures:
    """The same rank, whose recording lacks a collective."""
    kept = np.delete(np.arange(len(rank.collectives)), row)
    return replace(rank, collectives=rank.collectives.take(kept))


def late_in_every_third(ranks: int = 8, steps: int = 12, late: int = 3) -> list:
    """Rank 3 idles 12 ms in every third step; all compute 10 ms before each of two collectives."""
    made = []
    for rank in range(ranks):
        calls = [
            [Call(10 * MS, 12 * MS if rank == late and not step % 3 else 0), Call(10 * MS)]
            for step in range(steps)
        ]
        made.append(Made(calls, places=(SLEEP,)))
    return job(made)


def rows(report, table: str) -> list[dict]:
    return list(report.result.tables[table].rows())
