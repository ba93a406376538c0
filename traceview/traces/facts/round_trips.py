"""Round trips of a loop: what the CPU reads back from the GPU, and rows that it copies one by one.

Whatever the call, such as `Tensor.item`, `.cpu()`, `nonzero` or cudaMemcpy, the CPU waits for the
work before the copy, for the copy, and launches only then. That is one loss: of the copies, of the
waits, and of the pauses between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Integers, Mask
from traceview.traces.facts.copies import downloads, uploads
from traceview.traces.facts.idle.causes import OWN_WORK_NS
from traceview.traces.facts.idle.gaps import Gaps, gaps, unknown_idle
from traceview.traces.facts.kernel_classes import terms
from traceview.traces.facts.launches import between, waits
from traceview.traces.facts.operations import Kind, api_calls, calls_that_enqueue, operations
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.savings import FOR_THE_GPU
from traceview.traces.facts.steps.steps import steady_operations, step_of_operations, steps
from traceview.traces.trace import Trace, fact

_A_VALUE, _A_ROW = 64, 1 << 16
"""Bytes of what is no row, and of the longest one."""
_LEAST, _MOSTLY = 32, 0.5
"""Copies that are a loop without steps, and the part of all that are rows, or waited for: 512 rows
of 4 KB are nearly all of 513 and 612 copies in a public recording."""


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
    sent = (each for each in _of_direction(trace, uploads(trace)) if each.of_rows)
    return (*_of_direction(trace, downloads(trace)), *sent)


def _of_direction(trace: Trace, copies: Mask) -> Iterator[RoundTrips]:
    ops, every, calls = operations(trace), waits(trace), api_calls(trace)
    chosen = copies & ops.launched & steady_operations(trace)
    row = np.flatnonzero(chosen & ~np.isin(ops.device, list(unknown_idle(trace))))
    blocking = np.flatnonzero(np.isin(every.does, FOR_THE_GPU))
    if not len(row) or not len(blocking):
        return
    # What the CPU waits for is the last that it asked the GPU for.
    others, call = calls_that_enqueue(ops, len(calls)), ops.call[row]
    others[call] = False
    of_copy, of_wait = between(trace, others, call, every.call[blocking], behind=True)
    first_ns = np.full(len(row) + len(blocking), np.iinfo(np.int64).max)
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
    if terms(trace).name and not terms(trace).data_region:
        return np.zeros(len(rows), bool)
    return rows & (rows.sum() >= max(_LEAST, _MOSTLY * len(rows)))


def copies_of(trips: Iterable[RoundTrips]) -> Integers:
    """The rows in operations of the copies of round trips."""
    return np.concatenate([groups.NO_ROWS, *(each.operation for each in trips)])


def lost_by(trace: Trace, every: Gaps, trips: Sequence[RoundTrips]) -> Mask:
    """True for the parts of gaps that pass in the calls of round trips, and between their rows.

    What the CPU does for long between two rows is not theirs.
    """
    ops = operations(trace)
    rows = groups.marked(copies_of(each for each in trips if each.of_rows), len(ops))
    pause = rows[every.before] & rows[every.after] & (every.duration_ns <= OWN_WORK_NS)
    within: Mask = (every.within >= 0) & groups.isin(every.within, ops.call[copies_of(trips)])
    return (pause | within) & ~every.one_time


@fact
def between_copies(trace: Trace) -> Integers:
    """The bytes read back before gaps between that and the next upload, 0 for other gaps.

    They are in most steps of a loop; outside of steps many of them are one.
    What the CPU does there works on the former, or makes the latter. Single values are no results:
    a loop prints its loss, and uploads the next batch.
    """
    ops, every, step = operations(trace), gaps(trace), step_of_operations(trace)
    sizes = np.zeros(len(ops), np.int64)
    copied = np.flatnonzero(ops.kind == Kind.COPY)
    sizes[copied] = trace.recorded("copies")["bytes"][ops.row[copied]]
    reads, sends = (copies & (sizes > _A_VALUE) for copies in (downloads(trace), uploads(trace)))
    result = np.zeros(len(every), np.int64)
    for device, own in groups.rows_of(every.device).items():
        rows = np.flatnonzero(ops.device == device)
        before, after = (np.searchsorted(rows, each[own]) for each in (every.before, every.after))
        place, end = np.arange(len(rows)), len(rows)
        # The last to read or send before each gap, and the first to send or compute behind it.
        read, sent = (
            np.maximum.accumulate(np.where(each[rows], place, -1))[before]
            for each in (reads, sends)
        )
        send, work = (
            np.minimum.accumulate(np.where(each[rows], place, end)[::-1])[::-1][after]
            for each in (sends, ops.kind != Kind.COPY)
        )
        between = downloads(trace)[every.before[own]] & (read > sent) & (send < work)
        result[own] = np.where(between, sizes[rows][read], 0)
    of_gap, series = step[every.after], np.append(steps(trace).series, -1)
    in_steps, working = (groups.different(each) for each in (of_gap[result > 0], step[step >= 0]))
    usual = [
        loop
        for loop in groups.different(series[in_steps[in_steps >= 0]]).tolist()
        if np.mean(groups.isin(working[series[working] == loop], in_steps)) > _MOSTLY
    ]
    if np.count_nonzero(result[of_gap < 0]) >= _LEAST:
        usual.append(-1)
    return np.where(np.isin(series[of_gap], usual), result, 0)
