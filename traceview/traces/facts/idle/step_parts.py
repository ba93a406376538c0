"""Parts of the time of each step: GPU work, and idle time by cause.

On one GPU the parts of a step add up to its time exactly. Where a series uses several GPUs, each
part is the mean over these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Integers, thrifty
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.gaps import busy, busy_by_process, gaps
from traceview.traces.facts.launches import waits
from traceview.traces.facts.operations import CallKind, call_kinds, operations
from traceview.traces.facts.ranges.nesting import LaneCoverage, LanePosition, Lanes, in_order
from traceview.traces.facts.steps.steps import Steps, pace, step_of_calls, step_of_operations, steps
from traceview.traces.trace import Trace, fact

OWN_WORK = "GPU work"
OTHER_WORK, FOREIGN_WORK = "other GPU work", "foreign GPU work"
IDLE = "idle: "
BEFORE_WORK = f"{IDLE}at-start"
WAITING, COMPUTING = "CPU in waits", "CPU"
PARTS = (
    OWN_WORK,
    OTHER_WORK,
    FOREIGN_WORK,
    *(f"{IDLE}{cause}" for cause in CAUSE_NAMES),
    BEFORE_WORK,
    WAITING,
    COMPUTING,
)
"""Other work is that of the program outside the steps, foreign work that of other processes;
`at-start` is the time before the first GPU work. The last two are of steps without GPU work. A step
whose GPU work ends before that of the step before it has no time of its own, and no parts."""
_PLACE = {name: number for number, name in enumerate(PARTS)}
_FIRST_CAUSE = _PLACE[FOREIGN_WORK] + 1


@record
class Parts:
    """One row per step. `part_ns` has one column for each of PARTS.

    `between_ns` is the idle time while the CPU was between this step and the one before it,
    `once_ns` the idle time that a longer run does not repeat (warm-up, first uses), `sync_wait_ns`
    the time that the thread of the step spent in synchronizing calls and blocking copies,
    `launches` the launch calls made for the step by any thread.
    """

    part_ns: npt.NDArray[np.int64]
    between_ns: Integers
    once_ns: Integers
    sync_wait_ns: Integers
    launches: Integers

    @property
    def busy_ns(self) -> Integers:
        return self._sum(_PLACE[OWN_WORK], _FIRST_CAUSE)

    @property
    def idle_ns(self) -> Integers:
        return self._sum(_FIRST_CAUSE, _PLACE[WAITING])

    def _sum(self, first: int, end: int) -> Integers:
        return self.part_ns[:, first:end].sum(axis=1)


_AT_ONCE = 1 << 16
"""Steps processed together: their numbers stay in the caches of a CPU."""


@record
class _Gpus:
    """The work of the GPUs, and the GPUs that each series of steps uses.

    A pair is a series and one of its GPUs; the pairs of a series are numbered in a row.
    """

    own: Lanes
    """Work launched in the steps of each series on each GPU, by series * devices + device."""
    program: Lanes
    """All work of each process on each GPU."""
    any: Lanes
    """All work of each GPU."""
    idle: Lanes
    causes: Mapping[int, LaneCoverage]
    """Idle time of each of the causes that occur."""
    once: LaneCoverage
    first_pair: Integers
    """By series."""
    gpus: Integers
    """By series."""
    lane: Integers
    """By pair, among `own`."""
    devices: int


@record
class _Visits:
    """One row per pair of a step with GPU work and a GPU that its series uses, step by step."""

    steps: Integers
    first: Integers
    """The first row of each of the steps."""
    gpus: Integers
    """How many rows each of the steps has."""
    lane: Integers
    """Of the work of its series on its GPU."""
    process: Integers
    device: Integers
    begin_ns: Integers
    end_ns: Integers

    @classmethod
    def of(cls, trace: Trace, gpus: _Gpus, rows: Integers) -> _Visits:
        all_steps, timed = steps(trace), pace(trace)
        series = all_steps.series[rows]
        count = gpus.gpus[series]
        first = np.cumsum(count) - count
        every = np.repeat(rows, count)
        pair = np.repeat(gpus.first_pair[series] - first, count) + np.arange(len(every))
        lane = gpus.lane[pair]
        return cls(
            rows,
            first,
            count,
            lane,
            all_steps.process[every].astype(np.int64),
            lane % gpus.devices,
            timed.begin_ns[every],
            timed.end_ns[every],
        )

    def mean(self, values: Integers) -> Integers:
        """The mean of each step over its GPUs, rounded down."""
        if len(self.steps) == len(values):
            return values
        return np.add.reduceat(values, self.first) // self.gpus


@fact
def step_parts(trace: Trace) -> Parts:
    """The parts of each step, in the rows of steps."""
    all_steps, timed = steps(trace), pace(trace)
    # Time that the thread of each step spent in waits for the GPU during the step.
    blocking = waits(trace)
    drains = np.isin(blocking.does, [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC])
    covered = Lanes.union(
        blocking.thread[drains], blocking.start_ns[drains], blocking.end_ns[drains]
    )
    waited = covered.overlap(
        all_steps.thread.astype(np.int64), all_steps.cpu_start_ns, all_steps.cpu_end_ns
    )
    # Column by column, so that causes that do not occur take no memory.
    part = np.zeros((len(all_steps), len(PARTS)), np.int64, order="F")
    between, once = np.zeros(len(all_steps), np.int64), np.zeros(len(all_steps), np.int64)
    working = np.flatnonzero(all_steps.operations > 0)
    if len(working):
        gpus = _gpus(trace)
        for first in range(0, len(working), _AT_ONCE):
            visits = _Visits.of(trace, gpus, working[first : first + _AT_ONCE])
            _fill_in(part, gpus, visits)
            between[visits.steps], once[visits.steps] = _aside(trace, gpus, visits)
    alone = np.flatnonzero(all_steps.operations == 0)
    part[alone, _PLACE[WAITING]] = waited[alone]
    part[alone, _PLACE[COMPUTING]] = (timed.duration_ns - waited)[alone]
    aside = map(thrifty, (between, once, waited, _launches(trace, all_steps)))
    return Parts(part, *aside)


def _gpus(trace: Trace) -> _Gpus:
    ops, gap, devices = operations(trace), gaps(trace), len(trace.devices)
    # Of each operation of a step; row −1, for no step, is the extra row at the end.
    lane = np.append(steps(trace).series * devices, -devices).astype(np.int32)
    lane = lane[step_of_operations(trace)] + ops.device
    pairs = groups.different(lane)
    pairs = pairs[pairs >= 0].astype(np.int64)
    count = np.bincount(pairs // devices)
    order = in_order(gap.device, gap.start_ns)
    idle, cause = Lanes.of(gap.device, gap.start_ns, gap.end_ns), gap.cause[order]
    return _Gpus(
        own=Lanes.union(lane, ops.start_ns, ops.end_ns),
        program=_lanes(
            {
                process * devices + device: covered
                for process, by_device in busy_by_process(trace).items()
                for device, covered in by_device.items()
            }
        ),
        any=_lanes(busy(trace)),
        idle=idle,
        causes={each: idle.coverage(cause == each) for each in groups.different(cause).tolist()},
        once=idle.coverage(gap.one_time[order]),
        first_pair=np.cumsum(count) - count,
        gpus=count,
        lane=pairs,
        devices=devices,
    )


def _lanes(unions: Mapping[int, intervals.Intervals]) -> Lanes:
    """The unions as lanes, in ascending order of their numbers."""
    none = np.zeros(0, np.int64)
    lane = np.repeat([*unions], [len(each.start) for each in unions.values()])
    start = np.concatenate([none, *(each.start for each in unions.values())])
    end = np.concatenate([none, *(each.end for each in unions.values())])
    return Lanes(lane.astype(np.int64), start, end)


def _fill_in(part: npt.NDArray[np.int64], gpus: _Gpus, visits: _Visits) -> None:
    """Fill in the parts of the visited steps, which have GPU work."""
    took = visits.end_ns - visits.begin_ns
    rest, whole = took.copy(), took[visits.first]
    for place, spent in _spent(gpus, visits):
        if not spent.any():
            continue
        rest -= spent
        mean = visits.mean(spent)
        part[visits.steps, place] = mean
        whole -= mean
    at_start = visits.mean(rest)
    if at_start.any():
        part[visits.steps, _PLACE[BEFORE_WORK]] = at_start
    # The remainder that rounding the means leaves.
    part[visits.steps, _PLACE[OWN_WORK]] += whole - at_start


def _spent(gpus: _Gpus, visits: _Visits) -> Iterator[tuple[int, Integers]]:
    """Busy time of each visit by origin of the work, and idle time by cause."""
    before = np.zeros(len(visits.lane), np.int64)
    for name, lanes, lane in (
        (OWN_WORK, gpus.own, visits.lane),
        (OTHER_WORK, gpus.program, visits.process * gpus.devices + visits.device),
        (FOREIGN_WORK, gpus.any, visits.device),
    ):
        within = lanes.overlap(lane, visits.begin_ns, visits.end_ns)
        yield _PLACE[name], within - before
        before = within
    ends = _ends(gpus.idle, visits)
    for cause, covering in gpus.causes.items():
        yield _FIRST_CAUSE + cause, covering.between(*ends)


def _ends(lanes: Lanes, visits: _Visits) -> tuple[LanePosition, LanePosition]:
    begin, end = (lanes.locate(visits.device, at) for at in (visits.begin_ns, visits.end_ns))
    return begin, end


def _aside(trace: Trace, gpus: _Gpus, visits: _Visits) -> tuple[Integers, Integers]:
    """`between_ns` and `once_ns` of each step: see Parts."""
    all_steps = steps(trace)
    left = _left(trace)[visits.steps]
    entered = np.maximum(all_steps.cpu_start_ns[visits.steps], left)
    first, last = (
        np.clip(np.repeat(time, visits.gpus), visits.begin_ns, visits.end_ns)
        for time in (left, entered)
    )
    between = gpus.idle.overlap(visits.device, first, last)
    once = gpus.once.between(*_ends(gpus.idle, visits))
    return visits.mean(between), visits.mean(once)


@fact
def _left(trace: Trace) -> Integers:
    """When the CPU ended the previous step with GPU work in the series of each step.

    For the first such step of a series, and for steps without GPU work, when the step begins.
    """
    all_steps = steps(trace)
    working = np.flatnonzero(all_steps.operations > 0)
    result = pace(trace).begin_ns.copy()
    again = np.flatnonzero(~groups.opens(all_steps.series[working]))
    result[working[again]] = all_steps.cpu_end_ns[working[again - 1]]
    return result


def _launches(trace: Trace, all_steps: Steps) -> Integers:
    made = np.flatnonzero(call_kinds(trace) == CallKind.LAUNCH)
    step = step_of_calls(trace, made)
    return np.bincount(step[step >= 0], minlength=len(all_steps)).astype(np.int64)
