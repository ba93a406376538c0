"""What the time of each step consists of: work of the GPU, and idle time by cause.

On one GPU the parts of a step add up to its time exactly. Where a series uses several GPUs, each
part is the mean over these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceview import groups, intervals
from traceview.facts.cuda_api import Does, what_calls_do
from traceview.facts.idle import CAUSES, gaps
from traceview.facts.operations import operations
from traceview.facts.steps import (
    Pace,
    Steps,
    pace,
    series_of,
    step_of_calls,
    step_of_operations,
    steps,
)
from traceview.facts.waits import waits
from traceview.intervals import Intervals
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact

OWN_WORK = "GPU work"
OTHER_WORK, FOREIGN_WORK = "other GPU work", "foreign GPU work"
IDLE = "idle: "
BEFORE_WORK = f"{IDLE}at-start"
WAITING, COMPUTING = "CPU in waits", "CPU"
PARTS = (
    OWN_WORK,
    OTHER_WORK,
    FOREIGN_WORK,
    *(f"{IDLE}{cause}" for cause in CAUSES),
    BEFORE_WORK,
    WAITING,
    COMPUTING,
)
"""Other work is that of the program outside the steps, foreign work that of other processes; at the
start no GPU work has run yet. The last two are those of steps without GPU work."""
_PLACE = {name: number for number, name in enumerate(PARTS)}
_FIRST_CAUSE = _PLACE[FOREIGN_WORK] + 1


@dataclass(frozen=True)
class Parts:
    """One row a step. `part_ns` has one column for each of PARTS.

    `between_ns` is the idle time while the CPU was between this step and the one before it,
    `sync_wait_ns` the time that the thread of the step stood in synchronizing calls and blocking
    copies, `launches` the launch calls made for the step, by whatever thread.
    """

    part_ns: npt.NDArray[np.int64]
    between_ns: Integers
    sync_wait_ns: Integers
    launches: Integers

    @property
    def busy_ns(self) -> Integers:
        return self._sum(_PLACE[OWN_WORK], _FIRST_CAUSE)

    @property
    def idle_ns(self) -> Integers:
        return self._sum(_FIRST_CAUSE, _PLACE[WAITING])

    def _sum(self, first: int, end: int) -> Integers:
        total: Integers = self.part_ns[:, first:end].sum(axis=1)
        return total


@fact
def step_parts(trace: Trace) -> Parts:
    """The parts of each step; one row a row of steps."""
    found, timed = steps(trace), pace(trace)
    waited = _sync_wait(trace, found)
    part = np.zeros((len(found), len(PARTS)), np.int64)
    between = np.zeros(len(found), np.int64)
    for rows in series_of(found):
        if (found.operations[rows] > 0).any():
            _on_gpus(trace, rows, timed, part, between)
    alone = ~part.any(axis=1)
    part[alone, _PLACE[WAITING]] = waited[alone]
    part[alone, _PLACE[COMPUTING]] = (timed.took_ns - waited)[alone]
    return Parts(part, between, waited, _launches(trace, found))


def _on_gpus(
    trace: Trace, rows: Integers, timed: Pace, part: npt.NDArray[np.int64], between: Integers
) -> None:
    """Fill in the rows of one series, for those of its steps that have GPU work."""
    found, done = steps(trace), operations(trace)
    own = np.zeros(len(done), bool)
    step = step_of_operations(trace)
    own[step >= 0] = found.series[step[step >= 0]] == found.series[rows[0]]
    working = rows[found.operations[rows] > 0]
    begin, end = timed.begin_ns[working], timed.end_ns[working]
    left = np.append(begin[:1], found.cpu_end_ns[working[:-1]])
    entered = np.maximum(found.cpu_start_ns[working], left)
    devices = groups.different(done.device[own])
    for device in devices.tolist():
        part[working] += _on_gpu(trace, device, own, begin, end)
        idle = _idle(trace, device, None)
        first, last = np.clip(left, begin, end), np.clip(entered, begin, end)
        between[working] += intervals.overlap(idle, first, last)
    part[working] //= len(devices)
    between[working] //= len(devices)
    part[working, _PLACE[OWN_WORK]] += end - begin - part[working].sum(axis=1)


def _on_gpu(
    trace: Trace, device: int, own: Mask, begin: Integers, end: Integers
) -> npt.NDArray[np.int64]:
    """The parts of some steps of one series, on one of its GPUs."""
    done = operations(trace)
    here = done.device == device
    process = np.isin(done.process, groups.different(done.process[own]))
    result = np.zeros((len(begin), len(PARTS)), np.int64)
    before, counted = np.zeros(len(begin), np.int64), 0
    for place, mine in enumerate((own, process, here)):
        rows = np.flatnonzero(here & mine)
        if len(rows) == counted:
            continue
        covered = intervals.union(done.start_ns[rows], done.end_ns[rows])
        within = intervals.overlap(covered, begin, end)
        result[:, place], before, counted = within - before, within, len(rows)
    for cause in range(len(CAUSES)):
        result[:, _FIRST_CAUSE + cause] = intervals.overlap(_idle(trace, device, cause), begin, end)
    result[:, _PLACE[BEFORE_WORK]] = end - begin - result.sum(axis=1)
    return result


def _idle(trace: Trace, device: int, cause: int | None) -> Intervals:
    """Idle gaps of a device, those of one cause or all of them."""
    gap = gaps(trace)
    mine = (gap.device == device) & (True if cause is None else gap.cause == cause)
    return intervals.by_start(gap.start_ns[mine], gap.end_ns[mine])


def _sync_wait(trace: Trace, found: Steps) -> Integers:
    """Time that the thread of each step stood in waits for the GPU during the step."""
    result = np.zeros(len(found), np.int64)
    stood = waits(trace)
    drains = np.isin(stood.does, [Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC])
    for thread in groups.different(found.thread):
        mine, rows = drains & (stood.thread == thread), found.thread == thread
        covered = intervals.union(stood.start_ns[mine], stood.end_ns[mine])
        result[rows] = intervals.overlap(covered, found.cpu_start_ns[rows], found.cpu_end_ns[rows])
    return result


def _launches(trace: Trace, found: Steps) -> Integers:
    made = np.flatnonzero(what_calls_do(trace) == Does.LAUNCH)
    step = step_of_calls(trace, made)
    return np.bincount(step[step >= 0], minlength=len(found)).astype(np.int64)
