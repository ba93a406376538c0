"""Calls that allocate and free memory: their time, and whether they recur in the loop."""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.facts.idle.gaps import gaps
from traceview.facts.memory.growth import LEAST_STEPS, steady_steps
from traceview.facts.memory.levels import levels, processes_of
from traceview.facts.operations.cuda_api import CallKind, api_calls, pool_calls
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.selection import issued_ns, selected_calls, selected_operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.facts.steps.warm_up import in_warm_up_range
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import ALLOCATION

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
    caused = (every.cause == ALLOCATION) & (every.device == device) & ~every.one_time
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
