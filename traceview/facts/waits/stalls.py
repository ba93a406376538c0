"""The cost of each wait of the CPU: GPU work meanwhile, and GPU idle time that it caused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gaps import Gaps, busy, every_gap, gaps, steady_span_ns
from traceview.facts.operations.blocking_calls import Waits, waits
from traceview.facts.operations.copies import uploads
from traceview.facts.operations.cuda_api import CallKind
from traceview.facts.operations.operations import Operations, operations
from traceview.facts.ranges.selection import selected_calls, selected_operations
from traceview.intervals import Intervals
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import ALLOCATION, COPY_WAIT, JIT_COMPILE, MODULE_LOAD

BLOCKING = (
    CallKind.SYNCHRONIZE,
    CallKind.COPY,
    CallKind.COPY_ASYNC,
    CallKind.ALLOCATE,
    CallKind.LOAD,
)
IN_A_CALL = (ALLOCATION, MODULE_LOAD, JIT_COMPILE, COPY_WAIT)
"""Causes of which the call that the CPU was in is to blame, if it was in one."""
_LONG_AGO = int(np.iinfo(np.int64).min)


@record
class Stalls:
    """Cost of waits; `outer` and `benign_ns` have a row per wait, the others per part of a gap.

    Parts of gaps are the rows of every_gap.
    `outer` is the row of the outermost blocking call around a wait, or the wait's own row: a driver
    call inside a runtime call is not a second wait. `benign_ns` is the part of the wait in which
    the awaited device worked. `wait` is the outermost wait that caused the part, −1 where none did.
    A part has one cause, so the idle time of all waits is that of these parts.
    """

    outer: Integers
    benign_ns: Integers
    wait: Integers
    gap_idle_ns: Integers

    def idle_ns(self, chosen: Mask) -> Integers:
        """GPU idle time that each wait caused in the chosen parts of gaps."""
        caused = chosen & (self.wait >= 0)
        result = np.zeros(len(self.outer), np.int64)
        np.add.at(result, self.wait[caused], self.gap_idle_ns[caused])
        return result


@fact
def stalls(trace: Trace) -> Stalls:
    every, gaps, ops = waits(trace), every_gap(trace), operations(trace)
    outer, wait = outermost_waits(every), causing_waits(every, gaps)
    if len(every):
        wait = np.where(wait >= 0, outer[np.maximum(wait, 0)], -1)
    return Stalls(outer, benign_time(every, busy(trace), ops), wait, gaps.idle_ns)


@fact
def caused_by_selected_waits(trace: Trace) -> Mask:
    """True for the parts, of every_gap, that a selected wait caused, whatever work ended them.

    The next step pays for a synchronization at the end of a step.
    """
    wait = stalls(trace).wait
    result = np.zeros(len(wait), bool)
    caused = np.flatnonzero(wait >= 0)
    result[caused] = selected_calls(trace)[waits(trace).call[wait[caused]]]
    return result


def stall_span_ns(trace: Trace) -> int:
    """`steady_span_ns` plus the idle time that selected waits caused before work not selected."""
    every, own = every_gap(trace), gaps(trace)
    if every is own:
        return steady_span_ns(trace)
    more = caused_by_selected_waits(trace) & ~selected_operations(trace)[every.after]
    return steady_span_ns(trace) + int(every.idle_ns[more & ~every.one_time].sum())


def outermost_waits(waits: Waits) -> Integers:
    """Row of the outermost blocking call around each wait. Calls of one thread nest."""
    result = np.arange(len(waits))
    blocks = np.isin(waits.does, BLOCKING)
    for thread in groups.different(waits.thread):
        own = np.flatnonzero(waits.thread == thread)
        rows = own[np.lexsort((~blocks[own], -waits.end_ns[own], waits.start_ns[own]))]
        end = np.where(blocks[rows], waits.end_ns[rows], _LONG_AGO)
        before = np.concatenate(([_LONG_AGO], np.maximum.accumulate(end)[:-1]))
        inner = (waits.end_ns[rows] <= before) & (waits.start_ns[rows] < before)
        opened = np.where(blocks[rows] & ~inner, np.arange(len(rows)), -1)
        around = rows[np.maximum(np.maximum.accumulate(opened), 0)]
        result[rows] = np.where(inner, around, rows)
    return result


def causing_waits(waits: Waits, gaps: Gaps) -> Integers:
    """The wait that caused each part of a gap, −1 where none did.

    Of a sync-drain it is its synchronization. Of allocations, of code that is loaded, and of
    pageable bytes that are moved it is the call that the part was spent in.
    """
    result = gaps.wait.copy()
    rows = np.flatnonzero(np.isin(gaps.cause, IN_A_CALL) & (gaps.within >= 0))
    if len(rows) and len(waits):
        by_call = np.argsort(waits.call)
        calls = waits.call[by_call]
        at = np.minimum(np.searchsorted(calls, gaps.within[rows]), len(calls) - 1)
        result[rows] = np.where(calls[at] == gaps.within[rows], by_call[at], -1)
    return result


def benign_time(waits: Waits, busy: Mapping[int, Intervals], ops: Operations) -> Integers:
    """Time of each wait in which the device that it waits for worked, in ns.

    Where the trace does not name the device, any device that its process uses counts.
    """
    result = np.zeros(len(waits), np.int64)
    for device in groups.different(waits.device).tolist():
        for process in groups.different(waits.process[waits.device == device]).tolist():
            rows = (waits.device == device) & (waits.process == process)
            covered = busy.get(device)
            if covered is None:
                own = ops.process == process
                covered = intervals.union(ops.start_ns[own], ops.end_ns[own])
            result[rows] = intervals.overlap(covered, waits.start_ns[rows], waits.end_ns[rows])
    return result


def after_uploads(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, in which the GPU ran dry after a copy from the host."""
    result: Mask = uploads(trace)[every_gap(trace).before]
    return result


def at_uploads(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, after a copy from the host or while its bytes are moved."""
    every = every_gap(trace)
    staged = (every.cause == COPY_WAIT) & (stalls(trace).wait >= 0)
    result: Mask = after_uploads(trace) | (staged & uploads(trace)[every.after])
    return result
