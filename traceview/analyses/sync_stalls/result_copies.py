"""Which synchronizations wait for a result: a copy to the host that the thread has asked for."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import Does
from traceview.facts.operations.operations import Kind, operations
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact


@fact
def hands_nothing_back(trace: Trace) -> Mask:
    """True for the synchronizations, among waits, that no copy to the host precedes.

    That is, none called for by their thread since its synchronization before: what was copied
    earlier had arrived there.
    """
    found = waits(trace)
    result: Mask = found.does == Does.SYNCHRONIZE
    thread, start = _asked(trace)
    for number in groups.different(found.thread[result]):
        rows = np.flatnonzero(result & (found.thread == number))
        copied = np.sort(start[thread == number])
        asked = np.searchsorted(copied, found.start_ns[rows])
        result[rows] = np.diff(asked, prepend=0) == 0
    return result


def _asked(trace: Trace) -> tuple[Integers, Integers]:
    """Thread and start of the calls for copies to the host."""
    done, calls = operations(trace), trace.recorded("api_calls")
    mine = (done.kind == Kind.COPY) & done.launched
    to_host = trace.recorded("copies").texts("direction").isin(["D2H"])
    mine[mine] = to_host[done.row[mine]]
    call = done.call[mine]
    return calls["thread"][call], calls["start_ns"][call]
