"""Growth of memory per step, and whether it is more than noise."""

from __future__ import annotations

import math

import numpy as np

from traceview import groups
from traceview.facts.memory.levels import STATIC, levels, processes_of, signed_bytes
from traceview.facts.ranges.selection import selected
from traceview.facts.steps.names import steps_source
from traceview.facts.steps.steps import pace, steps, warm_up_end_ns
from traceview.records import record
from traceview.tables import Integers, quantiles
from traceview.trace import Trace, fact
from traceview.trace.schema.torch_profiler import TORCH_PROFILER

LEAST_STEPS = 5
_MOST_STEPS = 200
_CHANCE = 0.02
_LEAST_GROWTH_BYTES = 1 << 20
# One jump is not a leak: the median slope explains at least so much of the growth.
_STEADY = 0.5


@record
class SteadySteps:
    """The steady steps of one loop: start of each on the CPU, and the end of the last, in ns."""

    start_ns: Integers
    end_ns: int

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def ends_ns(self) -> Integers:
        """Where each step ends: at the start of the next one."""
        return np.append(self.start_ns[1:], self.end_ns)


@record
class Growth:
    """Growth of a device's memory in bytes per step; `leaks` is True if it goes on to the end."""

    bytes_per_step: float
    steps: int
    grown_bytes: int
    leaks: bool


@fact
def steady_steps(trace: Trace) -> dict[int, SteadySteps]:
    """Steps after warm-up of each device with memory events, in the loop with most such steps."""
    all_steps, timed = steps(trace), pace(trace)
    steady = (all_steps.operations > 0) & (all_steps.cpu_start_ns >= warm_up_end_ns(trace))
    steady &= ~timed.warm_up & selected(trace, all_steps.process, all_steps.cpu_start_ns)
    result = {}
    for device in levels(trace):
        rows = np.flatnonzero(steady & np.isin(all_steps.process, processes_of(trace, device)))
        loops = np.bincount(timed.loop[rows])
        rows = rows[timed.loop[rows] == np.argmax(loops)] if len(rows) else rows
        start, end = np.sort(all_steps.cpu_start_ns[rows]), all_steps.cpu_end_ns[rows]
        result[device] = SteadySteps(start, int(end.max(initial=0)))
    return result


@fact
def growth(trace: Trace) -> dict[int, Growth | None]:
    """Growth of each device with events; None with fewer than LEAST_STEPS steady steps.

    None too for tensors recorded by torch.profiler where steps are inferred: these may be the
    layers of one forward pass, which keeps the activations of every layer.
    """
    if trace.recorder == TORCH_PROFILER and steps_source(trace) == "repetition":
        return dict.fromkeys(levels(trace))
    return {
        device: growth_of(level.at(steady_steps(trace)[device].ends_ns))
        if len(steady_steps(trace)[device]) >= LEAST_STEPS
        else None
        for device, level in levels(trace).items()
    }


def allocated_sizes(trace: Trace, device: int) -> Integers:
    """Bytes of each allocation of device memory in the steady steps of a device.

    Without the variables of code that is loaded there: hundreds of a few bytes, each kept once.
    """
    level, steady = levels(trace)[device], steady_steps(trace)[device]
    if not len(steady):
        return np.zeros(0, np.int64)
    inside = (level.time_ns >= steady.start_ns[0]) & (level.time_ns < steady.end_ns)
    events = trace.recorded("memory_events").take(level.events[inside])
    change = signed_bytes(events)
    sizes: Integers = change[(change > 0) & ~events.texts("memory").isin([STATIC])]
    return sizes


def growth_of(level: Integers) -> Growth:
    """The growth of a series of levels, one per step, in bytes.

    The slope is that of Theil and Sen: the median of the slopes between all pairs. It counts as a
    leak where the Mann-Kendall test for a rising trend has less than _CHANCE, the slope explains
    most of the growth, and the level still rises in the last third: a pool that fills during the
    first steps is not a leak.
    """
    places = np.linspace(0, len(level) - 1, min(len(level), _MOST_STEPS))
    rows = groups.different(places.astype(np.int64))
    some = level[rows]
    earlier, later = np.triu_indices(len(rows), 1)
    rise = some[later] - some[earlier]
    slope = quantiles.median(rise / (rows[later] - rows[earlier]))
    grown = int(level[-1] - level[0])
    last = some[-(len(some) // 3 + 1) :]
    leaks = (
        grown >= _LEAST_GROWTH_BYTES
        and slope * (len(level) - 1) >= _STEADY * grown
        and last[-1] > last[0]
        and rising_by_chance(some, int(np.sign(rise).sum())) < _CHANCE
    )
    return Growth(slope, len(level), grown, leaks)


def rising_by_chance(values: Integers, score: int) -> float:
    """Probability of at least this score without a trend: Mann-Kendall, corrected for ties.

    `score` is the number of rising pairs of values minus that of falling pairs.
    """
    count = len(values)
    ties = groups.count(groups.group(values))
    spread = count * (count - 1) * (2 * count + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())
    if score <= 0 or spread <= 0:
        return 1.0
    return 0.5 * math.erfc((score - 1) / math.sqrt(spread / 18) / math.sqrt(2))
