"""Jobs of known shape: ranks that wait for one that is late, as `job_report` would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analyses.base import Result, TableSpec
from traceview.facts.idle.causes import CAUSES
from traceview.findings import Evidence, Finding, Subject
from traceview.ranks import tables
from traceview.ranks.figures import (
    ALL_REDUCE,
    Place,
    RankCollectives,
    RankFigures,
    RankName,
    RankSteps,
)
from traceview.ranks.job import (
    PARTS,
    Clocks,
    FailedRank,
    HeatMap,
    JobReport,
    JobVerdict,
    MatchedCommunicator,
)
from traceview.tables import NULL, Table

MS = 1_000_000
SLEEP_NS = 12_500_000
PATTERN = 3
_TRANSFER_NS, _WORK_NS = 2_310_000, 11_170_000
_LATE = CAUSES.index("launch-late")
_EXPOSED, _WAIT, _IDLE = (
    PARTS.index("communication"),
    PARTS.index("wait"),
    PARTS.index("launch-late"),
)


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
    """The job of that shape, with the findings and tables that it leads to."""
    times = _times(shape)
    ranks = tuple(_rank(shape, times, rank) for rank in range(shape.ranks))
    heat = _heat(shape, times)
    return JobReport(
        ranks=ranks,
        failed=shape.failed,
        result=_result(shape, times, heat),
        verdict=_verdict(shape, heat),
        clocks=Clocks(
            offset_ns=-_offsets(shape),
            drift=np.zeros(shape.ranks),
            origin_ns=np.zeros(shape.ranks, np.int64),
            error_ns=np.full(shape.ranks, 4_200),
            component=np.zeros(shape.ranks, np.int64),
            basis="collectives",
        ),
        heat=heat,
        matched=(_matched(shape, times),),
    )


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
    own = _offsets(shape)[rank]
    host = shape.name or f"node{rank // 8}"
    name = RankName(rank, rank % 8, shape.ranks, host, host, rank % 8, "NVIDIA H200", "recording")
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
        step_median_ns=int(np.median(_durations(times)[rank])),
        busy_pct=97.0,
    )


def _collectives(shape: Shape, times: _Times, rank: int, own: int) -> RankCollectives:
    count = shape.steps * shape.calls
    idle = np.zeros((count, len(CAUSES)), np.int64)
    idle[:, _LATE] = times.idle[rank].ravel()
    known: dict[str, Any] = {
        "start_ns": times.arrival[rank].ravel() + own,
        "end_ns": times.end[rank].ravel() + own,
        "kind": np.full(count, ALL_REDUCE, np.int8),
        "communicator": np.full(count, 5),
        "sequence": np.arange(count),
        "bytes": np.full(count, 26_214_400),
        "members": np.full(count, shape.ranks),
        "exposed_ns": (times.end - times.arrival)[rank].ravel(),
        "step": np.repeat(np.arange(shape.steps), shape.calls),
        "work_ns": times.work[rank].ravel(),
        "idle_ns": idle,
        "place": np.where(times.idle[rank].ravel() > MS, 0, -1),
    }
    rest = {
        "launched_ns": np.full(count, NULL),
        "bus_bytes": np.full(count, -1),
        "peer": np.full(count, -1),
        "stream": np.full(count, 20),
        "symmetric": np.zeros(count, bool),
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
    idle = np.zeros((shape.steps, len(CAUSES)), np.int64)
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


def _heat(shape: Shape, times: _Times) -> HeatMap:
    parts = np.zeros((shape.ranks, shape.steps, len(PARTS)), np.int64)
    parts[:, :, 0] = times.work.sum(axis=2)
    parts[:, :, _EXPOSED] = _TRANSFER_NS * shape.calls
    parts[:, :, _WAIT] = times.wait.sum(axis=2)
    parts[:, :, _IDLE] = times.idle.sum(axis=2)
    late = np.zeros((shape.ranks, shape.steps), np.int64)
    last, waited = times.arrival.argmax(axis=0), times.wait.max(axis=0)
    for step, call in np.ndindex(*last.shape):
        late[last[step, call], step] += waited[step, call]
    warm_up = np.zeros((shape.ranks, shape.steps), bool)
    warm_up[:, 0] = True
    names = tuple(str(number) for number in range(shape.steps))
    return HeatMap(names, _durations(times), warm_up, parts, late)


def _matched(shape: Shape, times: _Times) -> MatchedCommunicator:
    flat = (shape.ranks, shape.steps * shape.calls)
    wait = times.wait.reshape(flat)
    return MatchedCommunicator(
        number=5,
        ranks=tuple(range(shape.ranks)),
        size=shape.ranks,
        rows=np.tile(np.arange(flat[1]), (shape.ranks, 1)),
        kind=np.full(flat[1], ALL_REDUCE, np.int8),
        bytes=np.full(flat[1], 26_214_400),
        wait_ns=wait,
        last=wait.argmin(axis=0),
        late_ns=wait.max(axis=0),
    )


def _verdict(shape: Shape, heat: HeatMap) -> JobVerdict:
    text = (
        f"Rank {shape.late} is late by 12.5 ms in every third step: its CPU sleeps in "
        f"{shape.name or 'data.py:40'}. The other {shape.ranks - 1} ranks wait for it."
    )
    step = int(np.median(heat.duration_ns[0]))
    return JobVerdict(text, "straggler", shape.ranks, shape.steps - 1, step, 91.3)


def _result(shape: Shape, times: _Times, heat: HeatMap) -> Result:
    place = f"{shape.name or 'data.py'}:40"
    finding = Finding(
        "high",
        "Rank {rank} is late by {late_median_ns} in {steps}: its CPU is in {place} (time.sleep). "
        "The other {others:rank} wait in all-reduce meanwhile.",
        "Remove time.sleep at {place} on rank {rank}, or let it overlap the GPU's work.",
        SLEEP_NS * (shape.steps // PATTERN),
        Subject("rank", f"rank {shape.late}", shape.name or "/job/data.py", 40),
        Evidence(
            {
                "rank": shape.late,
                "late_median_ns": SLEEP_NS,
                "steps": "every third step",
                "place": place,
                "others": shape.ranks - 1,
            },
            "stragglers",
            {"rank": shape.late},
        ),
        share_of_step_pct=7.1,
    )
    made = {
        spec.name: _table(spec, rows)
        for spec, rows in (
            (tables.RANKS, _rank_rows(shape, heat, place)),
            (tables.STRAGGLERS, [_straggler(shape, place)]),
            (tables.CRITICAL_PATH, []),
            (tables.GROUPS, [_group(shape)]),
            (tables.COLLECTIVES, []),
        )
    }
    made[tables.RANK_STEPS.name] = _step_table(heat)
    return Result(made, (finding,), notes=("Memory was recorded on no rank.",))


def _table(spec: TableSpec, rows: Sequence[Mapping[str, Any]]) -> Table:
    absent = {
        column.name: None if column.nullable else _zero(column.dtype) for column in spec.columns
    }
    return Table.from_rows(spec.columns, [absent | dict(row) for row in rows])


def _zero(dtype: str) -> Any:
    return "" if dtype == "text" else 0


def _rank_rows(shape: Shape, heat: HeatMap, place: str) -> list[dict[str, Any]]:
    parts, late = heat.parts_ns[:, 1:].mean(axis=1).round(), heat.late_ns[:, 1:].mean(axis=1)
    return [
        {
            "rank": rank,
            "host": shape.name or f"node{rank // 8}",
            "device_id": rank % 8,
            "step_median_ns": int(np.median(heat.duration_ns[rank, 1:])),
            "busy_pct": 99.0 - parts[rank, _IDLE] / 1e6,
            "compute_ns": int(parts[rank, 0]),
            "exposed_ns": int(parts[rank, _EXPOSED] + parts[rank, _WAIT]),
            "wait_ns": int(parts[rank, _WAIT]),
            "late_ns": int(late[rank]),
            "idle_ns": int(parts[rank, _IDLE]),
            "cause": "launch-late" if rank == shape.late else None,
            "place": place if rank == shape.late else None,
            "clock_error_ns": 4_200,
            "path": f"/runs/{shape.name}rank{rank}.sqlite",
        }
        for rank in range(shape.ranks)
    ]


def _straggler(shape: Shape, place: str) -> dict[str, Any]:
    times = shape.steps // PATTERN
    return {
        "rank": shape.late,
        "steps": "every third step",
        "late_steps": times,
        "calls": times,
        "late_ns": SLEEP_NS * times,
        "late_median_ns": SLEEP_NS,
        "others_wait_ns": SLEEP_NS * times * (shape.ranks - 1),
        "cause": "launch-late",
        "place": place,
    }


def _group(shape: Shape) -> dict[str, Any]:
    return {
        "group": shape.name or "world",
        "name": shape.name or "world",
        "ranks": f"0-{shape.ranks - 1}",
        "members": shape.ranks,
        "communicators": 1,
        "kinds": "all-reduce",
        "calls": shape.steps * shape.calls,
        "total_ns": 10 * MS,
        "exposed_ns": 10 * MS,
    }


def _step_table(heat: HeatMap) -> Table:
    ranks, steps = heat.duration_ns.shape
    parts = heat.parts_ns.reshape(-1, len(PARTS))
    return Table(
        tables.RANK_STEPS.columns,
        {
            "rank": np.repeat(np.arange(ranks), steps),
            "step": list(heat.steps) * ranks,
            "begin_ns": np.zeros(ranks * steps, np.int64),
            "duration_ns": heat.duration_ns.ravel(),
            "compute_ns": parts[:, 0],
            "exposed_ns": parts[:, _EXPOSED] + parts[:, _WAIT],
            "wait_ns": parts[:, _WAIT],
            "copies_ns": np.zeros(ranks * steps, np.int64),
            "idle_ns": parts[:, _IDLE],
            "cause": ["launch-late"] * (ranks * steps),
            "late_ns": heat.late_ns.ravel(),
        },
    )
