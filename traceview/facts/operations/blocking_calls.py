"""Blocking CUDA calls: when the CPU waited in one, and for which device."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations import copies, joins
from traceview.facts.operations.cuda_api import CallKind, call_kinds
from traceview.facts.operations.operations import operations, operations_by_process
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import Array, Integers
from traceview.trace import Trace, fact_without_ranges


@record
class Waits(Timed):
    """Blocking calls, one row per call, in order of start.

    `call` is the row in api_calls, `does` a `CallKind`, `device` the device waited for: −1 where
    the process uses several and the trace does not name one.
    """

    call: Integers
    does: Array
    start_ns: Integers
    end_ns: Integers
    process: Array
    thread: Array
    device: Integers

    def __len__(self) -> int:
        return len(self.call)


@fact_without_ranges
def waits(trace: Trace) -> Waits:
    """Synchronizations, copies, allocations and code loads that hold the calling thread."""
    calls = trace.recorded("api_calls")
    does = call_kinds(trace)
    blocking = np.isin(
        does,
        [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.ALLOCATE, CallKind.LOAD, CallKind.LOOK_UP],
    )
    ops = operations(trace)
    copying = ops.call[copies.pageable_copies(trace) & ops.launched]
    # An Async copy through pageable memory blocks as well.
    blocking[copying[does[copying] == CallKind.COPY_ASYNC]] = True
    rows = np.flatnonzero(blocking)
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    process = calls["process"][rows]
    # The only device of the process, else that of the context.
    device, several = np.full(len(rows), -1, np.int64), np.zeros(len(rows), bool)
    for number, places in groups.rows_of(process).items():
        of_process = operations_by_process(trace).get(number, groups.NO_ROWS)
        used = groups.different(ops.device[of_process])
        device[places] = used[0] if len(used) == 1 else -1
        several[places] = len(used) > 1
    device[several] = _device_of_context(trace, rows[several])
    return Waits(
        call=rows,
        does=does[rows],
        start_ns=calls["start_ns"][rows],
        end_ns=calls["end_ns"][rows],
        process=process,
        thread=calls["thread"][rows],
        device=device,
    )


def _device_of_context(trace: Trace, call: Integers) -> Integers:
    """Device of the context in which each call waited, −1 where the trace does not say."""
    calls, syncs = trace.recorded("api_calls"), trace.recorded("synchronizations")
    keyed = ~calls.is_null("correlation_id")[call]
    process = calls["process"][call]
    row = joins.match(
        syncs["process"], syncs["correlation_id"], process, calls["correlation_id"][call], keyed
    )
    if not len(syncs):
        return row
    streams = operations(trace).streams
    context = syncs["context_id"][np.maximum(row, 0)]
    home = joins.match(streams[:, 0], streams[:, 2], process, context, row >= 0)
    return np.where(home >= 0, streams[:, 1][np.maximum(home, 0)], -1)
