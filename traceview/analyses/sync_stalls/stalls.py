"""What each wait of the CPU cost: how long the GPU worked meanwhile, and lay idle because of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gaps import (
    ALLOCATION,
    COPY_WAIT,
    MODULE_LOAD,
    Gaps,
    busy,
    every_gap,
    gaps,
    steady_span_ns,
)
from traceview.facts.operations.blocking_calls import Waits, waits
from traceview.facts.operations.cuda_api import Does
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.ranges.selection import selected_calls, selected_operations
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact

BLOCKING = (Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC, Does.ALLOCATE, Does.LOAD)


@dataclass(frozen=True)
class Stalls:
    """One row a wait, but for `wait` and `gap_idle_ns`, one row of every_gap.

    `outer` is the row of the blocking call that a wait stands in, its own where it stands in none:
    a driver call inside a runtime call is no second wait. `benign_ns` is the time of the wait in
    which the device waited for worked. `wait` is the outermost wait that a gap is due to, −1 where
    it is due to none: a gap has one cause, so the idle time of all waits is that of these gaps.
    """

    outer: Integers
    benign_ns: Integers
    wait: Integers
    gap_idle_ns: Integers

    def idle_ns(self, chosen: Mask) -> Integers:
        """GPU idle time due to each wait, of the chosen gaps."""
        caused = chosen & (self.wait >= 0)
        result = np.zeros(len(self.outer), np.int64)
        np.add.at(result, self.wait[caused], self.gap_idle_ns[caused])
        return result


@fact
def stalls(trace: Trace) -> Stalls:
    found, gap = waits(trace), every_gap(trace)
    outer = _outermost(found)
    blamed = _blamed(trace, found, gap)
    wait = np.where(blamed >= 0, outer[np.maximum(blamed, 0)], -1) if len(found) else blamed
    return Stalls(outer, _benign(trace, found), wait, gap.idle_ns)


@fact
def caused(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, that are due to a selected wait, whatever work ended them.

    What a synchronization at the end of a step costs, the next step pays.
    """
    wait = stalls(trace).wait
    mine = np.zeros(len(wait), bool)
    due = np.flatnonzero(wait >= 0)
    mine[due] = selected_calls(trace)[waits(trace).call[wait[due]]]
    return mine


def answered_span_ns(trace: Trace) -> int:
    """`steady_span_ns`, with the idle time that selected waits caused before other work."""
    every, own = every_gap(trace), gaps(trace)
    if every is own:
        return steady_span_ns(trace)
    mine = caused(trace) & ~selected_operations(trace)[every.after] & ~every.one_time
    return steady_span_ns(trace) + int(every.idle_ns[mine].sum())


def _outermost(found: Waits) -> Integers:
    """Row of the blocking call around each wait. Calls of one thread nest."""
    result = np.arange(len(found))
    blocks = np.isin(found.does, BLOCKING)
    for thread in groups.different(found.thread):
        mine = np.flatnonzero(found.thread == thread)
        rows = mine[np.lexsort((~blocks[mine], -found.end_ns[mine], found.start_ns[mine]))]
        end = np.where(blocks[rows], found.end_ns[rows], np.iinfo(np.int64).min)
        reach = np.maximum.accumulate(end)
        before = np.concatenate(([np.iinfo(np.int64).min], reach[:-1]))
        inner = (found.end_ns[rows] <= before) & (found.start_ns[rows] < before)
        opened = np.where(blocks[rows] & ~inner, np.arange(len(rows)), -1)
        around = rows[np.maximum(np.maximum.accumulate(opened), 0)]
        result[rows] = np.where(inner, around, rows)
    return result


def _blamed(trace: Trace, found: Waits, gap: Gaps) -> Integers:
    """The wait that each gap is due to, by its cause."""
    blamed = gap.wait.copy()
    for cause, kinds in (
        (ALLOCATION, (Does.ALLOCATE,)),
        (MODULE_LOAD, (Does.LOAD, Does.LOOK_UP)),
    ):
        asked = np.flatnonzero(gap.cause == cause)
        blamed[asked] = _longest_within(found, np.isin(found.does, kinds), gap, asked)
    asked = np.flatnonzero(_staged_copies(trace, gap))
    row_of = {call: row for row, call in enumerate(found.call.tolist())}
    blamed[asked] = [row_of.get(call, -1) for call in gap.call[asked].tolist()]
    return blamed


def _staged_copies(trace: Trace, gap: Gaps) -> Mask:
    """True for the gaps that the call of a copy filled, moving bytes out of pageable memory."""
    done, copies = operations(trace), trace.recorded("copies")
    pageable = copies.texts("source_memory").isin(["pageable"])
    pageable &= copies.texts("direction").isin(["H2D"])
    mine: Mask = (gap.cause == COPY_WAIT) & (gap.call >= 0)
    mine &= done.kind[gap.after] == Kind.COPY
    mine[mine] = pageable[done.row[gap.after[mine]]]
    returned = trace.recorded("api_calls")["end_ns"][gap.call[mine]]
    inside = np.minimum(gap.end_ns[mine], returned) - np.maximum(
        gap.start_ns[mine], gap.asked_ns[mine]
    )
    mine[mine] = inside > gap.idle_ns[mine] // 2
    return mine


def _longest_within(found: Waits, kind: Mask, gap: Gaps, asked: Integers) -> Integers:
    """Of the waits of a kind on the launching thread, the one that takes most of each gap."""
    result = np.full(len(asked), -1, np.int64)
    for thread in groups.different(gap.thread[asked]):
        rows = np.flatnonzero(kind & (found.thread == thread))
        for place in np.flatnonzero(gap.thread[asked] == thread).tolist():
            start, end = gap.start_ns[asked[place]], gap.end_ns[asked[place]]
            spent = np.minimum(found.end_ns[rows], end) - np.maximum(found.start_ns[rows], start)
            if len(rows) and spent.max() > 0:
                result[place] = rows[np.argmax(spent)]
    return result


def _benign(trace: Trace, found: Waits) -> Integers:
    """Where the trace does not tell the device that was waited for, any of the process counts."""
    done = operations(trace)
    result = np.zeros(len(found), np.int64)
    for device in groups.different(found.device).tolist():
        for process in groups.different(found.process[found.device == device]).tolist():
            mine = (found.device == device) & (found.process == process)
            covered = busy(trace).get(device)
            if covered is None:
                own = done.process == process
                covered = intervals.union(done.start_ns[own], done.end_ns[own])
            result[mine] = intervals.overlap(covered, found.start_ns[mine], found.end_ns[mine])
    return result


def behind_uploads(trace: Trace) -> Mask:
    """True for the gaps, of every_gap, in which the GPU ran dry behind a copy from the host."""
    gap, done = every_gap(trace), operations(trace)
    copied: Mask = done.kind[gap.before] == Kind.COPY
    to_gpu = trace.recorded("copies").texts("direction").isin(["H2D"])
    copied[copied] = to_gpu[done.row[gap.before[copied]]]
    return copied
