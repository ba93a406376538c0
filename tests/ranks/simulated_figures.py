"""What recordings of simulated ranks hold: their figures on clocks of their own, with losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.ranks.job_model import BEGIN_NS, MS, US
from tests.ranks.rank_programs import total_ns
from tests.ranks.simulation import (
    COLLECTIVE,
    COMPUTE,
    COPY,
    LAUNCH_NS,
    SYNCHRONIZE,
    Operation,
    Pause,
    RankTimeline,
)
from traceview.base.tables import NULL, Array, Integers
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.ranks.figures import (
    KINDS,
    POINT_TO_POINT,
    Place,
    RankCollectives,
    RankFigures,
    RankName,
    RankSteps,
    WorkPart,
)

PARTS = ("all-gather", "reduce-scatter", "all-to-all")
"""A call of these names the bytes of one rank."""
ORDINARY_NS = 200 * US
"""A pause of the CPU that is longer is no ordinary work of launching."""
SAMPLE_NS = MS // 2
"""Between two samples of Python: the place of shorter idle times is unknown."""


@dataclass(frozen=True)
class Recorded:
    """How one rank is recorded: its clock shows t + offset + drift × (t − 10 s).

    Only what begins after `begin_ns` and ends before `end_ns` of true time is in the recording;
    `lost` is the fraction of its collectives that are missing.
    """

    offset_ns: int = 0
    drift: float = 0.0
    host: str = "node0"
    begin_ns: int = 0
    end_ns: int = 1 << 62
    lost: float = 0.0
    named_communicators: bool = True
    seed: int = 0

    def clock(self, times: Sequence[int] | Integers) -> Integers:
        """True times on the clock of the rank."""
        true = np.asarray(times, np.int64)
        result: Integers = (
            true + self.offset_ns + np.rint(self.drift * (true - BEGIN_NS)).astype(np.int64)
        )
        return result


def recordings(seed: int, ranks: int, *, per_host: int = 8, clocks: bool = True) -> list[Recorded]:
    """Each rank in a file of its own, whose clock begins up to 3 s off those of the others.

    Hosts drift by up to 50 ppm against each other. Without `clocks` all show true time.
    """
    draw = np.random.default_rng((seed, 13))
    hosts = -(-ranks // per_host)
    offsets = draw.integers(-3_000 * MS, 3_000 * MS, ranks) if clocks else np.zeros(ranks, int)
    drifts = draw.uniform(-50e-6, 50e-6, hosts) if clocks else np.zeros(hosts)
    return [
        Recorded(
            int(offsets[rank]),
            float(drifts[rank // per_host]),
            f"node{rank // per_host}",
            seed=seed,
        )
        for rank in range(ranks)
    ]


class _Union:
    """Disjoint intervals, and how much of them lies before a time."""

    def __init__(self, start: Integers, end: Integers) -> None:
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order]) if len(end) else end
        new = np.ones(len(start), bool)
        new[1:] = start[1:] > reach[:-1]
        self.start = start[new]
        self.end = reach[np.append(np.flatnonzero(new)[1:] - 1, len(start) - 1)[: new.sum()]]
        self._before = np.concatenate(([0], np.cumsum(self.end - self.start)))

    def before(self, time: Integers) -> Integers:
        if not len(self.start):
            return np.zeros(len(time), np.int64)
        at = np.searchsorted(self.start, time, side="right")
        still_open = np.where(at > 0, np.maximum(self.end[at - 1] - time, 0), 0)
        result: Integers = self._before[at] - still_open
        return result

    def within(self, start: Integers, end: Integers) -> Integers:
        return self.before(np.maximum(end, start)) - self.before(start)


def figures(line: RankTimeline, recorded: Recorded) -> RankFigures:
    """The figures that a recording of this rank gives."""
    return _Extraction(line, recorded).figures()


class _Extraction:
    def __init__(self, line: RankTimeline, recorded: Recorded) -> None:
        self.line, self.recorded, self.rank = line, recorded, line.program.rank
        kept = np.flatnonzero(recorded_operations(line, recorded))
        self.places_kept = kept
        self.ops = [line.program.operations[each] for each in kept]
        self.start, self.end = (
            recorded.clock([each[place] for place in kept]) for each in (line.start_ns, line.end_ns)
        )
        self.call = recorded.clock([line.call_ns[place] for place in kept])
        does = np.array([op.does for op in self.ops])
        self.compute, self.collective, self.gpu = (
            does == COMPUTE,
            does == COLLECTIVE,
            does != SYNCHRONIZE,
        )
        self.busy = self._union(self.gpu)
        self.working = self._union(self.gpu & ~self.collective)
        self.computing = self._union(self.compute)
        self.communicating = self._union(self.gpu & ~(does == COPY))
        self._gaps()

    def _union(self, rows: Array) -> _Union:
        return _Union(self.start[rows], self.end[rows])

    def _gaps(self) -> None:
        """Idle times of the GPU, each with its cause and its place."""
        self.gap = np.stack((self.busy.end[:-1], self.busy.start[1:]))
        starts = np.where(self.gpu, self.start, -1)
        pauses: list[Pause | None] = []
        parts: list[tuple[int, int, str]] = []
        for begin, end in self.gap.T.tolist():
            row = int(np.flatnonzero(starts == end)[0])
            parts += self._parts(row, begin, end)
            late = self.line.late_call[int(self.places_kept[row])]
            pauses.append(self.ops[row].pause if late and end - begin > 2 * SAMPLE_NS else None)
        self.part = np.array([part[:2] for part in parts], np.int64).reshape(-1, 2).T
        self.cause = np.array([CAUSE_NAMES.index(part[2]) for part in parts], np.int64)
        known = list(dict.fromkeys(pause for pause in pauses if pause))
        self.pauses = known
        self.place = np.array([known.index(p) if p else -1 for p in pauses], np.int64)

    def _parts(self, row: int, begin: int, end: int) -> list[tuple[int, int, str]]:
        """Start, end and cause of the parts of a gap, as the schedule has them.

        Launching again after a wait belongs to it, for as long as it lasted.
        """
        place, op, line = int(self.places_kept[row]), self.ops[row], self.line
        if not line.late_call[place]:
            return [(begin, end, "dependency")]
        call = min(max(int(self.call[row]), begin), end)
        paused = min(max(int(self.call[row]) - op.pause_ns, begin), call)
        before = line.program.operations[place - 1] if place else None
        waits = before is not None and before.does == SYNCHRONIZE
        waited = line.returned_ns[place - 1] - line.call_ns[place - 1] if waits else 0
        what = op.pause.cause if op.pause else "launch-late"
        parts, ordinary = [], 0
        for since, until, cause in (
            (begin, paused, "launch-late"),
            (paused, call, what),
            (call, end, "launch-late"),
        ):
            if cause == "launch-late" and until - since <= ORDINARY_NS:
                cause = "sync-drain" if ordinary < waited else cause
                ordinary += until - since
            parts.append((since, until, cause))
        return parts

    def figures(self) -> RankFigures:
        ops = [op for op in self.ops if op.does == COLLECTIVE]
        steps = self._steps()
        steady = ~steps.warm_up
        cpu_places, cpu_place_ns = self._cpu_places(steps)
        span = int(steps.duration_ns[steady].sum())
        idle = steps.idle_ns[steady].sum(axis=0)
        return RankFigures(
            name=RankName(
                self.rank,
                self.rank % 8,
                None,
                self.recorded.host,
                f"rank{self.rank}.sqlite",
                self.rank % 8,
                "NVIDIA H200",
                "recording",
            ),
            path=f"rank{self.rank}.sqlite",
            recorder="nsys",
            digest=f"{self.rank:08x}",
            clock_offset_ns=None,
            collectives=self._collectives(steps),
            communicators={op.communicator: (op.members, op.own_rank) for op in ops}
            if self.sized
            else {},
            steps=steps,
            places=tuple(_place(pause) for pause in self.pauses),
            cpu_places=cpu_places,
            cpu_place_ns=cpu_place_ns,
            work=self._work(steps),
            step_median_ns=int(np.median(steps.duration_ns[steady])) if steady.any() else None,
            busy_pct=100.0 * (span - int(idle.sum())) / span if span else 0.0,
            span_ns=span,
            compute_ns=int(steps.compute_ns[steady].sum()),
            exposed_ns=int(steps.exposed_ns[steady].sum()),
            hidden_ns=int(steps.hidden_ns[steady].sum()),
            copies_ns=int(steps.copies_ns[steady].sum()),
            idle_ns={cause: int(ns) for cause, ns in zip(CAUSE_NAMES, idle, strict=True)},
        )

    def _collectives(self, steps: RankSteps) -> RankCollectives:
        rows = np.flatnonzero(self.collective)
        rows = rows[np.argsort(self.start[rows], kind="stable")]
        start, end, ops = self.start[rows], self.end[rows], [self.ops[row] for row in rows]
        ends = np.sort(end)
        ended = np.searchsorted(ends, start, side="right")
        since = np.where(ended > 0, ends[ended - 1], start)
        idle = self._idle(since, start)
        place, place_ns = self._largest_place(since, start)
        named = self.recorded.named_communicators
        return RankCollectives(
            start_ns=start,
            end_ns=end,
            kind=np.array([KINDS.index(op.kind) for op in ops], np.int8),
            communicator=np.array([op.communicator if named else NULL for op in ops], np.int64),
            bytes=np.array([self._bytes(op) for op in ops], np.int64),
            bus_bytes=np.array([self._bus_bytes(op) for op in ops], np.int64),
            members=np.array([op.members if self.sized else 0 for op in ops], np.int32),
            peer=np.array([op.peer for op in ops], np.int32),
            stream=np.array([op.stream for op in ops], np.int32),
            exposed_ns=end - start - self.computing.within(start, end),
            step=self._step_of([op.step for op in ops]),
            work_ns=self.working.within(since, start),
            idle_ns=idle,
            place=place,
            place_ns=place_ns,
        )

    @property
    def sized(self) -> bool:
        """Whether the creation of the communicators is recorded, which tells their sizes."""
        return self.recorded.named_communicators and not self.recorded.begin_ns

    def _bytes(self, op: Operation) -> int:
        known = self.recorded.named_communicators and (self.sized or op.kind not in PARTS)
        return op.bytes if known else -1

    def _bus_bytes(self, op: Operation) -> int:
        message = KINDS.index(op.kind) in POINT_TO_POINT
        if not self.sized:
            return op.bytes if message and self.recorded.named_communicators else -1
        others = (op.members - 1) / op.members
        factor = 2 * others if op.kind == "all-reduce" else others
        return op.bytes if message else round(op.bytes * factor)

    def _step_of(self, numbers: list[int]) -> Integers:
        return np.array([self.step_row.get(number, -1) for number in numbers], np.int64)

    def _idle(self, start: Integers, end: Integers) -> Integers:
        causes = range(len(CAUSE_NAMES))
        columns = [
            _Union(*self.part[:, self.cause == cause]).within(start, end) for cause in causes
        ]
        return np.stack(columns, axis=1)

    def _gap_time(self, rows: Array, start: Integers, end: Integers) -> Integers:
        return _Union(self.gap[0][rows], self.gap[1][rows]).within(start, end)

    def _largest_place(self, start: Integers, end: Integers) -> tuple[Integers, Integers]:
        times = [self._gap_time(self.place == each, start, end) for each in range(len(self.pauses))]
        if not times:
            return np.full(len(start), -1), np.zeros(len(start), np.int64)
        table = np.stack(times, axis=1)
        most = table.max(axis=1)
        return np.where(most > 0, table.argmax(axis=1), -1), most

    def _steps(self) -> RankSteps:
        """Steps from the end of the GPU work of one to that of the next."""
        steps = np.array([op.step for op in self.ops])
        numbers = whole_steps(self.line, self.recorded)
        self.step_row = {number: row for row, number in enumerate(numbers)}
        ends = [int(self.end[(steps == number) & self.gpu].max()) for number in numbers]
        row = int(np.flatnonzero(steps == numbers[0])[0])
        begun = self.line.call_ns[int(self.places_kept[row])] - self.ops[row].pause_ns
        first = int(self.recorded.clock([begun])[0])
        begin, end = np.array([first, *ends[:-1]], np.int64), np.array(ends, np.int64)
        compute = self.computing.within(begin, end)
        both = self.communicating.within(begin, end)
        busy = self.busy.within(begin, end)
        communication = self._union(self.collective).within(begin, end)
        idle = self._idle(begin, end)
        cpu_ns = self._cpu_ns()
        idle[:, CAUSE_NAMES.index("unknown")] += end - begin - busy - idle.sum(axis=1)
        return RankSteps(
            names=tuple(f"step_{number}" for number in numbers),
            number=np.array(numbers, np.int64),
            begin_ns=begin,
            end_ns=end,
            warm_up=np.arange(len(numbers)) < 1,
            compute_ns=compute,
            exposed_ns=both - compute,
            hidden_ns=communication - (both - compute),
            copies_ns=busy - both,
            idle_ns=idle,
            cpu_ns=np.array([cpu_ns[number] for number in numbers], np.int64),
        )

    def _cpu_ns(self) -> Counter[int]:
        """What the CPU needs for each step: its calls and what it does between them."""
        result: Counter[int] = Counter()
        for op in self.ops:
            result[op.step] += op.pause_ns + LAUNCH_NS
        return result

    def _cpu_places(self, steps: RankSteps) -> tuple[tuple[Place, ...], Integers]:
        """Where the CPU was in each step, as samples show it."""
        row = {int(number): each for each, number in enumerate(steps.number)}
        known = list(dict.fromkeys(op.pause for op in self.ops if op.pause))
        table = np.zeros((len(steps), len(known)), np.int64)
        for op in self.ops:
            if op.pause and op.step in row and op.pause_ns >= SAMPLE_NS:
                table[row[op.step], known.index(op.pause)] += op.pause_ns
        return tuple(map(_place, known)), table

    def _work(self, steps: RankSteps) -> tuple[WorkPart, ...]:
        steady = {int(n) for n, warm in zip(steps.number, steps.warm_up, strict=True) if not warm}
        calls: Counter[str] = Counter()
        time: Counter[str] = Counter()
        for op, start, end in zip(self.ops, self.start, self.end, strict=True):
            if op.does == COMPUTE and op.step in steady:
                calls[op.kind] += 1
                time[op.kind] += int(end - start)
        return tuple(WorkPart(kind, calls[kind], time[kind]) for kind in calls)


def recorded_operations(line: RankTimeline, recorded: Recorded) -> Array:
    """True for the operations that the recording holds."""
    ops = line.program.operations
    call, end = np.array(line.call_ns), np.array(line.end_ns)
    draw = np.random.default_rng((recorded.seed, line.program.rank, 17))
    lost = draw.random(len(ops)) < recorded.lost
    lost &= np.array([op.does == COLLECTIVE for op in ops])
    kept: Array = (call >= recorded.begin_ns) & (end <= recorded.end_ns) & ~lost
    return kept


def whole_steps(line: RankTimeline, recorded: Recorded) -> list[int]:
    """The steps that are recorded from begin to end; collectives may be lost in them."""
    ops, kept = line.program.operations, recorded_operations(line, recorded)
    partial = {
        op.step for op, there in zip(ops, kept, strict=True) if not there and op.does != COLLECTIVE
    }
    return sorted({op.step for op in ops} - partial)


def _place(pause: Pause) -> Place:
    return Place(pause.file, pause.line, pause.function, "", pause.what)


def lossy(recorded: Sequence[Recorded], lines: Sequence[RankTimeline], seed: int) -> list[Recorded]:
    """The same with a rank that starts late, one that ends early, and lost collectives."""
    draw = np.random.default_rng((seed, 19))
    result = list(recorded)
    late, early, lossy_one = (int(each) for each in draw.integers(0, len(result), 3))
    first = lines[late].call_ns[int(0.25 * draw.random() * len(lines[late].call_ns))]
    length = total_ns(lines) - BEGIN_NS
    last = total_ns(lines) - round(0.25 * length * draw.random())
    result[late] = replace(result[late], begin_ns=first + 1 * US)
    result[early] = replace(result[early], end_ns=last)
    result[lossy_one] = replace(result[lossy_one], lost=float(draw.uniform(0.0, 0.01)))
    return result
