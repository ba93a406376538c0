"""Launch calls that take much longer than a launch: something else than launching holds them up."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.idle.causes import OWN_WORK_NS
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.records import record
from traceview.tables import Mask, RowNumbers, row_numbers
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import LAUNCH_LATE


@record
class LongLaunches:
    """Launch calls (rows in api_calls) of more than OWN_WORK_NS in which a device sat idle.

    `part` is True for the rows of gaps that were spent in them: steady idle time of late launches,
    `idle_ns` in all. `is_most` says whether that is most of it.
    """

    calls: RowNumbers
    part: Mask
    idle_ns: int
    is_most: bool


@fact
def long_launches(trace: Trace) -> dict[int, LongLaunches]:
    """The long launch calls of each device (row in devices) that idled for late launches."""
    every, calls = gaps(trace), api_calls(trace)
    late = (every.cause == LAUNCH_LATE) & ~every.one_time
    long = np.append((calls.does == CallKind.LAUNCH) & (calls.duration_ns > OWN_WORK_NS), False)
    result = {}
    for device in groups.different(every.device[late]).tolist():
        own = late & (every.device == device)
        part = own & long[every.within]
        idle_ns, all_ns = int(every.idle_ns[part].sum()), int(every.idle_ns[own].sum())
        of_calls = row_numbers(groups.different(every.within[part]))
        result[device] = LongLaunches(of_calls, part, idle_ns, 2 * idle_ns > all_ns)
    return result
