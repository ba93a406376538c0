"""Devices whose idle time is unknown, because the recording lost the work that ran then."""

from __future__ import annotations

import numpy as np

from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.lost_work import ANY_DEVICE, device_of_calls, lost_launches
from traceview.facts.operations.cuda_api import CallKind, call_kinds, captured_calls
from traceview.facts.ranges.selection import selected_calls
from traceview.records import record
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import LOST_WORK

LEAST_FRACTION = 0.1
"""Lost work that may fill less than this fraction of the steady time leaves the figures sound,
unless it is most of the work of a process."""


@record
class UnknownIdle:
    """Selected launch calls to a device, and those of them whose work was not recorded.

    `gaps_ns` is the steady time of the gaps in which the lost work may have run.
    """

    lost: int
    launches: int
    gaps_ns: int


@fact
def unknown_idle(trace: Trace) -> dict[int, UnknownIdle]:
    """The devices (rows in devices) whose idle time is unknown.

    Lost work may have kept them busy, or is most of what some process launched.
    """
    every, result = gaps(trace), dict[int, UnknownIdle]()
    if not lost_launches(trace).any():
        return result
    process = trace.recorded("api_calls")["process"]
    launching = (call_kinds(trace) == CallKind.LAUNCH) & ~captured_calls(trace)
    for device, span_ns in steady_spans_ns(trace).items():
        hiding = (every.device == device) & (every.cause == LOST_WORK) & ~every.one_time
        gaps_ns = int(every.idle_ns[hiding].sum())
        # Lost launches and all launches to the device, by process.
        chosen = selected_calls(trace) & np.isin(device_of_calls(trace), (device, ANY_DEVICE))
        lost, launches = (
            np.bincount(process[chosen & calls], minlength=len(trace.processes))
            for calls in (lost_launches(trace), launching)
        )
        filled = gaps_ns > 0 and gaps_ns >= LEAST_FRACTION * span_ns
        if filled or (2 * lost > launches).any():
            result[device] = UnknownIdle(int(lost.sum()), int(launches.sum()), gaps_ns)
    return result
