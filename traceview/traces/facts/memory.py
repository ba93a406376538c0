"""GPU memory: its level over time, its growth per step, and the calls that allocate and free it."""

from __future__ import annotations

import math
import re

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, Table, arrays
from traceview.base.vocabulary.causes import ALLOCATION
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.operations import (
    CallKind,
    api_calls,
    context_resets,
    operations,
    pool_calls,
)
from traceview.traces.facts.ranges.selection import (
    issued_ns,
    selected,
    selected_calls,
    selected_operations,
)
from traceview.traces.facts.steps.steps import (
    in_warm_up_range,
    pace,
    steps,
    steps_source,
    warm_up_end_ns,
)
from traceview.traces.trace import Trace, fact, schema

STATIC = "device static"
"""Memory of the code and variables of a module, allocated when the module is loaded."""
ON_DEVICE = ("device", STATIC, "array")
"""Kinds of memory that lie on the GPU. Managed memory may lie on either side."""


@record
class Level:
    """Allocated bytes of one device after each of its events, in order of time.

    `events` are rows of memory_events. `before_bytes` is the memory that was allocated before the
    recording began, the least that keeps the level from going below zero.
    """

    events: Integers
    time_ns: Integers
    bytes: Integers
    before_bytes: int

    def at(self, time: Integers) -> Integers:
        """The level at these times, in bytes."""
        number = np.searchsorted(self.time_ns, time, side="right")
        return np.append(self.before_bytes, self.bytes)[number]

    def most_within(self, edges: Integers) -> Integers:
        """The highest level in each [edges[i], edges[i + 1]), in bytes."""
        highest = self.at(edges[:-1])
        slot = np.searchsorted(edges, self.time_ns, side="right") - 1
        inside = (slot >= 0) & (slot < len(highest))
        np.maximum.at(highest, slot[inside], self.bytes[inside])
        return highest


def running_level(events: Integers, time: Integers, change: Integers) -> Level:
    """The level from the changes in bytes (positive for allocations) of rows `events`."""
    order = np.argsort(time, kind="stable")
    level = np.cumsum(change[order])
    before = max(-int(level.min(initial=0)), 0)
    return Level(events[order], time[order], level + before, before)


def signed_bytes(events: Table) -> Integers:
    """Bytes of each event: positive for an allocation, negative for a release."""
    released = events.texts("operation").isin(["release"])
    return np.where(released, -events["bytes"], events["bytes"])


def on_device(events: Table) -> Mask:
    """True for the events of memory that lies on a GPU."""
    return events.texts("memory").isin(ON_DEVICE)


@fact
def left_bytes(trace: Trace) -> Integers:
    """For each event, the first of its kind in a new context, what the context before had left."""
    events, calls = trace.recorded("memory_events"), trace.recorded("api_calls")
    resets, change, memory = context_resets(trace), signed_bytes(events), events.texts("memory")
    result = np.zeros(len(events), np.int64)
    for process in groups.different(calls["process"][resets]).tolist():
        ended_ns = calls["end_ns"][resets[calls["process"][resets] == process]]
        own = events["process"] == process
        for kind in groups.different(memory.codes[own]).tolist():
            rows = np.flatnonzero(own & (memory.codes == kind))
            rows = rows[np.argsort(events["time_ns"][rows], kind="stable")]
            context = groups.group(np.searchsorted(ended_ns, events["time_ns"][rows]))
            result[rows[context.first[1:]]] = groups.sums(context, change[rows])[:-1]
    return result


@fact
def levels(trace: Trace) -> dict[int, Level]:
    """The level of each device with events, by row in devices; processes add up."""
    events = trace.recorded("memory_events")
    counted, change = on_device(events), signed_bytes(events) - left_bytes(trace)
    result = {}
    for device in groups.different(events["device"][counted]).tolist():
        rows = np.flatnonzero(counted & (events["device"] == device))
        result[device] = running_level(rows, events["time_ns"][rows], change[rows])
    return result


def selected_events(trace: Trace) -> Mask:
    """True for the selected rows of memory_events."""
    events = trace.recorded("memory_events")
    return selected(trace, events["process"], events["time_ns"])


def moments(trace: Trace, device: int) -> Integers:
    """Times at which the level counts: selected events and launches of selected operations.

    What was allocated before a selected range is in use there, so launches count, too.
    """
    level = levels(trace)[device]
    at_events = level.time_ns[selected_events(trace)[level.events]]
    if not trace.selection:
        return at_events
    ops = operations(trace)
    launches = issued_ns(trace)[selected_operations(trace) & (ops.device == device)]
    return np.sort(np.concatenate((at_events, launches)))


def processes_of(trace: Trace, device: int) -> Array:
    """The processes that allocated memory of a device, as rows of processes."""
    events = trace.recorded("memory_events")
    return groups.different(events["process"][levels(trace)[device].events])


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
    if trace.recorder == schema.TORCH_PROFILER and steps_source(trace) == "repetition":
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
    return change[(change > 0) & ~events.texts("memory").isin([STATIC])]


def growth_of(level: Integers) -> Growth:
    """The growth of a series of levels, one per step, in bytes.

    The slope is that of Theil and Sen: the median of the slopes between all pairs. It counts as a
    leak where the Mann-Kendall test for a rising trend has less than _CHANCE, the slope explains
    most of the growth, and the level rises in the last third by most of what the slope tells: a
    pool that fills during the first steps, ever more slowly, is not a leak.
    """
    places = np.linspace(0, len(level) - 1, min(len(level), _MOST_STEPS))
    rows = groups.different(places.astype(np.int64))
    some = level[rows]
    earlier, later = np.triu_indices(len(rows), 1)
    rise = some[later] - some[earlier]
    slope = arrays.median(rise / (rows[later] - rows[earlier]))
    grown = int(level[-1] - level[0])
    last = some[-(len(some) // 3 + 1) :]
    leaks = (
        grown >= _LEAST_GROWTH_BYTES
        and slope * (len(level) - 1) >= _STEADY * grown
        and last[-1] - last[0] >= _STEADY * slope * (rows[-1] - rows[-len(last)])
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


_SLICES, _MOST_SLICES = 10, 20
_RECURRING, _LATE = 0.5, 0.25


@record
class Recurring:
    """Allocations and releases that recur in the loop of one GPU (row in devices).

    `calls` are rows of api_calls, after warm-up, those to pools of CUDA's included. `call_ns` is
    the CPU time in them, `idle_ns` the idle time spent in them, `gap_rows` the rows of gaps with
    that time. `allocations` and `releases` count calls; `steps` is 0 where the trace has too few.
    """

    device: int
    calls: Integers
    gap_rows: Integers
    call_ns: int
    idle_ns: int
    allocations: int
    releases: int
    steps: int


@fact
def allocating_calls(trace: Trace) -> Integers:
    """Rows of api_calls that allocate or free memory and are selected."""
    return np.flatnonzero((api_calls(trace).does == CallKind.ALLOCATE) & selected_calls(trace))


@fact
def steady_calls(trace: Trace) -> Mask:
    """True for the allocating calls after warm-up and before the last launch of the loop.

    Programs free their memory once more when they end.
    """
    return _steady(trace, allocating_calls(trace))


def _steady(trace: Trace, rows: Integers) -> Mask:
    """`steady_calls` among these rows of api_calls."""
    calls = api_calls(trace)
    start, process = calls.start_ns[rows], trace.recorded("api_calls")["process"][rows]
    last = issued_ns(trace)[selected_operations(trace)].max(initial=np.iinfo(np.int64).min)
    steady: Mask = (start >= warm_up_end_ns(trace)) & (start < last)
    return steady & ~in_warm_up_range(trace, process, start)


@fact
def freeing_calls(trace: Trace) -> Mask:
    """True for the rows of api_calls that free memory."""
    return trace.recorded("api_calls").texts("name").matching(re.compile("Free|Release").search)


@fact
def recurring(trace: Trace) -> Recurring | None:
    """The allocations in the loop of the GPU that idles longest for them; None without any."""
    by_device = (_recurring_on(trace, device) for device in levels(trace))
    return max(filter(None, by_device), key=lambda calls: calls.idle_ns, default=None)


def _recurring_on(trace: Trace, device: int) -> Recurring | None:
    allocating = (api_calls(trace).does == CallKind.ALLOCATE) | pool_calls(trace)
    rows = np.flatnonzero(allocating & selected_calls(trace))
    rows = rows[_steady(trace, rows)]
    process = trace.recorded("api_calls")["process"][rows]
    rows = rows[np.isin(process, processes_of(trace, device))]
    number, freed = len(steady_steps(trace)[device]), freeing_calls(trace)[rows]
    releases = int(freed.sum())
    # What is allocated and kept fills a pool; what is freed each time comes again.
    if releases < (len(rows) - releases) // 2 or not _all_along(trace, device, rows[freed], number):
        return None
    calls, every = api_calls(trace), gaps(trace)
    caused = every.steady(device, ALLOCATION)
    caused &= np.isin(every.within, rows)
    return Recurring(
        device,
        rows,
        np.flatnonzero(caused),
        int(calls.duration_ns[rows].sum()),
        int(every.idle_ns[caused].sum()),
        len(rows) - releases,
        releases,
        number if number >= LEAST_STEPS else 0,
    )


def _all_along(trace: Trace, device: int, calls: Integers, steady: int) -> bool:
    """Whether calls are made in at least half of the slices of the steady work of a GPU.

    The last quarter must have some, which an autotuner's trials do not. Slices hold equally many
    operations, and there are no more slices than steps.
    """
    ops = operations(trace)
    issued = issued_ns(trace)[selected_operations(trace) & (ops.device == device)]
    issued = np.sort(issued[issued >= warm_up_end_ns(trace)])
    slices = min(max(steady, LEAST_STEPS), _MOST_SLICES) if steady else _SLICES
    if len(issued) < slices:
        return False
    edges = issued[np.linspace(0, len(issued) - 1, slices + 1).astype(np.int64)]
    start = api_calls(trace).start_ns[calls]
    slot = np.searchsorted(edges, start, side="right") - 1
    used = groups.different(slot[(slot >= 0) & (slot < slices)])
    goes_on = bool((used >= (1 - _LATE) * slices).any())
    return goes_on and len(used) >= _RECURRING * slices
