"""Round trips of a loop: what the CPU reads back from the GPU, and rows that it copies one by one.

Whatever the call, such as `Tensor.item`, `.cpu()`, `nonzero` or cudaMemcpy, the CPU waits for the
work before the copy, for the copy, and launches only then. That is one loss: of the copies, of the
waits, and of the pauses between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Integers, Mask
from traceview.traces.facts.copies import downloads, uploads
from traceview.traces.facts.idle.causes import OWN_WORK_NS
from traceview.traces.facts.idle.gaps import Gaps, unknown_idle
from traceview.traces.facts.kernel_classes import terms
from traceview.traces.facts.launches import between, waits
from traceview.traces.facts.operations import CallKind, api_calls, calls_that_enqueue, operations
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.steps.steps import steady_operations, step_of_operations, steps
from traceview.traces.trace import Trace, fact

_A_VALUE, _A_ROW = 64, 1 << 16
"""Bytes of what is no row, and of the longest one."""
_LEAST, _MOSTLY = 32, 0.5
"""Copies that are a loop without steps, and the part of all that are rows, or waited for: 512 rows
of 4 KB are nearly all of 513 and 612 copies in a public recording."""
_FOR_COPIES = (CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC)


@record
class RoundTrips:
    """Those of one loop, read back or copied by rows in one direction.

    `operation` has the rows of their copies in operations, `wait` the rows in waits of the calls
    that copy and of the synchronizations for them. `steps` is the number of steps that have some,
    0 outside of steps.
    """

    operation: Integers
    wait: Integers
    of_rows: bool
    steps: int


@fact
def round_trips(trace: Trace) -> tuple[RoundTrips, ...]:
    """The steady round trips, those of each loop apart: a copy is one that the CPU waits for."""
    return (*_of_direction(trace, downloads(trace)), *_of_direction(trace, uploads(trace)))


def _of_direction(trace: Trace, copies: Mask) -> Iterator[RoundTrips]:
    ops, every, calls = operations(trace), waits(trace), api_calls(trace)
    chosen = copies & ops.launched & steady_operations(trace)
    row = np.flatnonzero(chosen & ~np.isin(ops.device, list(unknown_idle(trace))))
    blocking = np.flatnonzero(np.isin(every.does, _FOR_COPIES))
    if not len(row) or not len(blocking):
        return
    # What the CPU waits for is the last that it asked the GPU for.
    others, call = calls_that_enqueue(ops, len(calls)), ops.call[row]
    others[call] = False
    number = between(trace, np.concatenate([call, every.call[blocking]]), others)
    of_copy, of_wait = np.split(number, [len(row)])
    first_ns = np.full(number.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, of_copy, calls.start_ns[call])
    of_wait = np.where(every.start_ns[blocking] >= first_ns[of_wait], of_wait, -1)
    waited = groups.isin(of_copy, of_wait)
    by_rows = _are_rows(trace, row, of_copy)
    step, tree = step_of_operations(trace), range_tree(trace)
    name = np.append(tree.path_pattern[tree.path[steps(trace).range]], -1)
    loop, working = name[step], groups.different(step[steady_operations(trace)])
    each = groups.group(loop[row], by_rows)
    for place, first in enumerate(each.first.tolist()):
        own, in_loop = each.ids == place, loop[row[first]]
        in_steps = len(groups.different(step[row[own]])) if in_loop >= 0 else 0
        often = own.sum() >= _LEAST and len(working) < 2
        often |= in_steps > max(_MOSTLY * np.count_nonzero(name[working] == in_loop), 1)
        often &= not uploads(trace)[row[first]]
        if (often or by_rows[first]) and np.mean(waited[own]) > _MOSTLY:
            own &= waited
            for_them = blocking[groups.isin(of_wait, of_copy[own])]
            yield RoundTrips(row[own], for_them, bool(by_rows[first]), in_steps)


def _are_rows(trace: Trace, copies: Integers, run: Integers) -> Mask:
    """True for the copies of one direction that are rows of an array of pointers.

    They are small, another of their size is in their run, and most copies are such. The arrays of
    libraries have one block of memory.
    """
    size = trace.recorded("copies")["bytes"][operations(trace).row[copies]]
    alike = groups.group(run, size)
    rows: Mask = (size > _A_VALUE) & (size <= _A_ROW) & (groups.count(alike)[alike.ids] > 1)
    by_pointers = not terms(trace).name or bool(terms(trace).data_region)
    return rows & by_pointers & (rows.sum() >= max(_LEAST, _MOSTLY * len(rows)))


@fact
def in_round_trips(trace: Trace) -> Mask:
    """True for the operations that are copies of round trips."""
    return _copies_of(trace, round_trips(trace))


def _copies_of(trace: Trace, trips: Iterable[RoundTrips]) -> Mask:
    result = np.zeros(len(operations(trace)), bool)
    for each in trips:
        result[each.operation] = True
    return result


def lost_by(trace: Trace, every: Gaps, trips: Iterable[RoundTrips]) -> Mask:
    """True for the parts of gaps that pass in the calls of round trips, and between their rows.

    What the CPU does for long between two rows is not theirs.
    """
    trips = [*trips]
    copies, rows = (_copies_of(trace, own) for own in (trips, (t for t in trips if t.of_rows)))
    pause = rows[every.before] & rows[every.after] & (every.duration_ns <= OWN_WORK_NS)
    calls = groups.different(operations(trace).call[copies])
    within: Mask = (every.within >= 0) & groups.isin(every.within, calls)
    return (pause | within) & ~every.one_time
