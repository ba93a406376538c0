"""Jobs of known shape: ranks that wait for one whose program sleeps in every third step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.figures import (
    ALL_REDUCE,
    Place,
    RankCollectives,
    RankFigures,
    RankName,
    RankSteps,
)
from traceview.traces.ranks.job import FailedRank, JobReport

MS = 1_000_000
SLEEP_NS = 12_500_000
PATTERN = 3
_TRANSFER_NS, _WORK_NS = 2_310_000, 11_170_000
_LATE = CAUSE_NAMES.index("launch-late")


@dataclass(frozen=True)
class Shape:
    """Ranks, steps and collectives per step of a job, and which rank sleeps in every third step.

    `name` stands for every name that a program gives: of hosts, files, functions and steps.
    """

    ranks: int = 8
    steps: int = 30
    calls: int = 4
    late: int = 3
    name: str = ""
    failed: tuple[FailedRank, ...] = ()


@dataclass(frozen=True)
class _Times:
    """Arrival of each rank at each collective, its end, and work and idle before; (r, s, c)."""

    arrival: Any
    end: Any
    work: Any
    idle: Any

    @property
    def wait(self) -> Any:
        return self.end - _TRANSFER_NS - self.arrival


def a_job(shape: Shape = Shape()) -> JobReport:
    """The answer for a job of that shape."""
    times = _times(shape)
    return job_report([_rank(shape, times, rank) for rank in range(shape.ranks)], shape.failed)


def _offsets(shape: Shape) -> Any:
    """What each rank's own clock shows at time 0 of the job."""
    return np.arange(shape.ranks) * 1_000_000_007


def _times(shape: Shape) -> _Times:
    random = np.random.default_rng(7)
    size = (shape.ranks, shape.steps, shape.calls)
    work = _WORK_NS + random.integers(-80_000, 80_000, size)
    idle = random.integers(1_000, 30_000, size)
    idle[shape.late, ::PATTERN, 0] += SLEEP_NS
    arrival, end, now = np.zeros(size, np.int64), np.zeros(size, np.int64), 0
    for step, call in np.ndindex(size[1:]):
        arrival[:, step, call] = now + work[:, step, call] + idle[:, step, call]
        now = int(arrival[:, step, call].max()) + _TRANSFER_NS
        end[:, step, call] = now
    return _Times(arrival, end, work, idle)


def _rank(shape: Shape, times: _Times, rank: int) -> RankFigures:
    own, span = _offsets(shape)[rank], int(_durations(times)[rank, 1:].sum())
    host = shape.name or f"node{rank // 8}"
    name = RankName(
        rank, rank % 8, shape.ranks, host, f"{host}.{rank}", rank % 8, "NVIDIA H200", "recording"
    )
    sleeps = Place(shape.name or "/job/data.py", 40, shape.name or "load", "", "time.sleep")
    return RankFigures(
        name=name,
        path=f"/runs/{shape.name}rank{rank}.sqlite",
        recorder="nsys",
        digest=str(rank),
        clock_offset_ns=None,
        collectives=_collectives(shape, times, rank, own),
        steps=_steps(shape, times, rank, own),
        communicators={5: (shape.ranks, rank)},
        places=(sleeps,),
        step_median_ns=int(np.median(_durations(times)[rank, 1:])),
        busy_pct=100.0 * (1.0 - float(times.idle[rank, 1:].sum() / span)),
        span_ns=span,
        compute_ns=int(times.work[rank, 1:].sum()),
        exposed_ns=int((times.end - times.arrival)[rank, 1:].sum()),
        idle_ns={"launch-late": int(times.idle[rank, 1:].sum())},
    )


def _collectives(shape: Shape, times: _Times, rank: int, own: int) -> RankCollectives:
    count = shape.steps * shape.calls
    idle = np.zeros((count, len(CAUSE_NAMES)), np.int64)
    idle[:, _LATE] = times.idle[rank].ravel()
    known: dict[str, Any] = {
        "start_ns": times.arrival[rank].ravel() + own,
        "end_ns": times.end[rank].ravel() + own,
        "kind": np.full(count, ALL_REDUCE, np.int8),
        "communicator": np.full(count, 5),
        "bytes": np.full(count, 26_214_400),
        "members": np.full(count, shape.ranks),
        "exposed_ns": (times.end - times.arrival)[rank].ravel(),
        "step": np.repeat(np.arange(shape.steps), shape.calls),
        "work_ns": times.work[rank].ravel(),
        "idle_ns": idle,
        "place": np.where(times.idle[rank].ravel() > MS, 0, -1),
    }
    rest = {
        "bus_bytes": np.full(count, -1),
        "peer": np.full(count, -1),
        "stream": np.full(count, 20),
        "place_ns": np.zeros(count, np.int64),
    }
    return RankCollectives(**known, **rest)


def _ends(times: _Times) -> Any:
    return times.end[0, :, -1]


def _durations(times: _Times) -> Any:
    """A step lasts from the end of the one before, the same for all ranks: (ranks, steps)."""
    return np.tile(np.diff(_ends(times), prepend=0), (len(times.end), 1))


def _steps(shape: Shape, times: _Times, rank: int, own: int) -> RankSteps:
    end = _ends(times) + own
    idle = np.zeros((shape.steps, len(CAUSE_NAMES)), np.int64)
    idle[:, _LATE] = times.idle[rank].sum(axis=1)
    return RankSteps(
        names=tuple(f"{shape.name}step_{number}" for number in range(shape.steps)),
        number=np.arange(shape.steps),
        begin_ns=end - _durations(times)[rank],
        end_ns=end,
        warm_up=np.arange(shape.steps) < 1,
        compute_ns=times.work[rank].sum(axis=1),
        exposed_ns=(times.end - times.arrival)[rank].sum(axis=1),
        hidden_ns=np.zeros(shape.steps, np.int64),
        copies_ns=np.zeros(shape.steps, np.int64),
        idle_ns=idle,
    )
