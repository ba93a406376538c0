"""Synchronizations that wait for no result: no copy to the host precedes them."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations.blocking_calls import Waits, waits
from traceview.facts.operations.copies import downloads
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.facts.operations.operations import operations
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact


@fact
def waits_for_no_result(trace: Trace) -> Mask:
    """True for the synchronizations, among waits, before which nothing was copied to the host."""
    ops, calls = operations(trace), api_calls(trace)
    copying = ops.call[downloads(trace) & ops.launched]
    return without_copies(waits(trace), calls.thread[copying], calls.start_ns[copying])


def without_copies(waits: Waits, copy_thread: Array, copy_ns: Integers) -> Mask:
    """True for the synchronizations before which their thread called for no copy to the host.

    Only calls since the thread's previous synchronization count: earlier copies had arrived by it.
    """
    result: Mask = waits.does == CallKind.SYNCHRONIZE
    for thread in groups.different(waits.thread[result]):
        rows = np.flatnonzero(result & (waits.thread == thread))
        copied = np.sort(copy_ns[copy_thread == thread])
        before = np.searchsorted(copied, waits.start_ns[rows])
        result[rows] = np.diff(before, prepend=0) == 0
    return result
