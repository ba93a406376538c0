"""Devices whose idle time is unknown, because the recording lost the work that ran then."""

from __future__ import annotations

import numpy as np

from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.lost_work import ANY_DEVICE, device_of_calls, lost_launches
from traceview.facts.operations.cuda_api import CallKind, call_kinds, captured_calls
from traceview.facts.ranges.selection import selected_calls
from traceview.records import record
from traceview.tables import Integers
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
    for device, span_ns in steady_spans_ns(trace).items():
        hiding = (every.device == device) & (every.cause == LOST_WORK) & ~every.one_time
        gaps_ns = int(every.idle_ns[hiding].sum())
        lost, launches = _launches(trace, device)
        filled = gaps_ns > 0 and gaps_ns >= LEAST_FRACTION * span_ns
        if filled or (2 * lost > launches).any():
            result[device] = UnknownIdle(int(lost.sum()), int(launches.sum()), gaps_ns)
    return result


def _launches(trace: Trace, device: int) -> tuple[Integers, Integers]:
    """Number of lost launches and of all launches to a device, one entry per process."""
    launches = (call_kinds(trace) == CallKind.LAUNCH) & ~captured_calls(trace)
    own = selected_calls(trace) & np.isin(device_of_calls(trace), (device, ANY_DEVICE))
    process, processes = trace.recorded("api_calls")["process"], len(trace.processes)
    lost, every = (process[own & each] for each in (lost_launches(trace), launches))
    return np.bincount(lost, minlength=processes), np.bincount(every, minlength=processes)
