"""GPU work that the recording lost: its launch calls, and the gaps in which it may have run."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.idle.gap_bounds import GapBounds
from traceview.facts.operations.operations import operations
from traceview.facts.operations.unpaired import cut_window, unpaired
from traceview.facts.ranges.selection import issued_ns
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact

ANY_DEVICE = -1


@fact
def lost_launches(trace: Trace) -> Mask:
    """True for the launch calls (rows of api_calls) whose work is not in the recording.

    Work that had not started when a cut window ended is not lost.
    """
    alone = unpaired(trace)
    return alone.launches & ~alone.late if cut_window(trace) is not None else alone.launches


@fact
def device_of_calls(trace: Trace) -> Integers:
    """The device (row in devices) that each API call targets, inferred from recorded launches.

    That is the device of the last recorded launch of its thread, else of the next one, else of the
    only device of its process, else ANY_DEVICE.
    """
    ops, calls = operations(trace), trace.recorded("api_calls")
    order = np.lexsort((calls["start_ns"], calls["thread"]))
    device = np.full(len(calls), ANY_DEVICE, np.int64)
    device[ops.call[ops.launched]] = ops.device[ops.launched]
    in_order, thread = device[order], calls["thread"][order]
    for turn in (slice(None), slice(None, None, -1)):
        # The last known device of the same thread fills in the unknown ones after it.
        found, of_thread = in_order[turn], thread[turn]
        last = np.maximum.accumulate(np.where(found >= 0, np.arange(len(found)), 0))
        in_order[turn] = np.where(of_thread[last] == of_thread, found[last], found)
    device[order] = in_order
    for process in groups.different(calls["process"][device < 0]).tolist():
        used = groups.different(ops.device[ops.process == process])
        if len(used) == 1:
            device[(calls["process"] == process) & (device < 0)] = used[0]
    return device


def hold_lost_work(trace: Trace, gaps: GapBounds) -> Mask:
    """True for the gaps in which lost work may have run.

    Work of a process runs in the order of its launches: work lost in a gap was launched after the
    operation before the gap and before the operation after it. Where one of these operations is of
    another process, the start or end of the gap takes the place of its launch.
    """
    rows = np.flatnonzero(lost_launches(trace))
    result = np.zeros(len(gaps), bool)
    if not len(rows):
        return result
    calls, ops, issued = trace.recorded("api_calls"), operations(trace), issued_ns(trace)
    device, process = device_of_calls(trace)[rows], calls["process"][rows]
    for number in groups.different(process).tolist():
        since = np.where(ops.process[gaps.before] == number, issued[gaps.before], gaps.start_ns)
        until = np.where(ops.process[gaps.after] == number, issued[gaps.after], gaps.end_ns)
        for on in groups.different(device[process == number]).tolist():
            lost = np.sort(calls["start_ns"][rows[(process == number) & (device == on)]])
            holds = np.searchsorted(lost, since) < np.searchsorted(lost, until)
            result |= holds & ((gaps.device == on) | (on == ANY_DEVICE))
    return result
