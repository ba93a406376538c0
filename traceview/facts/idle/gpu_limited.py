"""Time in which a device limits the program: what runs then lies on the critical path.

Backwards from the end of the recording the critical path follows the device, until it comes to an
idle gap that ended with a launch: before that the CPU was the limit, whatever ran on the device
meanwhile. Where the CPU had waited for the device, the path returns to the device. Work off that
path can take less time, and the recording as a whole lasts as long: its gaps grow.

Kernels cannot save more than their time on the path, since the rest of the path stays. With several
streams or threads more time counts as limited by the device than truly is, never less.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.cpu_activity import CPU_CAUSES
from traceview.facts.idle.gaps import busy, every_gap
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import CallKind
from traceview.facts.operations.operations import kernel_operations, operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import operations_in_warm_up
from traceview.intervals import Intervals
from traceview.tables import Integers
from traceview.trace import Trace, fact

_MAY_WAIT_FOR_WORK = [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC, CallKind.ALLOCATE]


@fact
def gpu_limited(trace: Trace) -> dict[int, Intervals]:
    """Busy time of each device (row in devices) that lies on the critical path."""
    every, waited, result = every_gap(trace), waits(trace), {}
    blocking = np.isin(waited.does, _MAY_WAIT_FOR_WORK)
    for device, work in busy(trace).items():
        late = every.end_ns[(every.device == device) & np.isin(every.cause, CPU_CAUSES)]
        here = blocking & ((waited.device == device) | (waited.device < 0))
        rows = np.flatnonzero(here)
        for_work = intervals.overlap(work, waited.start_ns[rows], waited.end_ns[rows]) > 0
        result[device] = critical(work, late, waited.end_ns[rows[for_work]])
    return result


def critical(work: Intervals, late: Integers, waited: Integers) -> Intervals:
    """The part of a device's busy time on the critical path.

    `late` are the ends of gaps that the CPU caused, `waited` the ends of calls in which it waited
    for the device. The path runs on the CPU before the former and on the device before the latter.
    """
    if not len(work.end):
        return work
    last = work.end[-1:]
    time = np.concatenate([late, waited, last])
    on_device = np.repeat([False, True], [len(late), len(waited) + 1])
    order = np.argsort(time, kind="stable")
    end, on_device = time[order], on_device[order]
    start = np.concatenate([np.minimum(work.start[:1], end[:1]), end[:-1]])
    path = intervals.union(start[on_device], end[on_device])
    return intervals.intersection(work, path)


@fact
def limited_ns(trace: Trace) -> Integers:
    """For each operation, its time on the critical path: the most that a faster one can save."""
    ops = operations(trace)
    result = np.zeros(len(ops), np.int64)
    for device, limited in gpu_limited(trace).items():
        rows = np.flatnonzero(ops.device == device)
        result[rows] = intervals.overlap(limited, ops.start_ns[rows], ops.end_ns[rows])
    return result


@fact
def _limited_by_name(trace: Trace) -> dict[tuple[int, str], int]:
    """Steady time on the critical path of the selected kernels, by device and whole name."""
    rows = kernel_operations(trace)
    counted = selected_operations(trace)[rows] & ~operations_in_warm_up(trace)[rows]
    kernels = trace.recorded("kernels").take(counted)
    names = kernels.texts("name")
    each = groups.group(kernels["device"], names.codes)
    total_ns = groups.sums(each, limited_ns(trace)[rows[counted]]).tolist()
    devices, texts = kernels["device"][each.first].tolist(), names.take(each.first)
    return {(device, str(texts[number])): total_ns[number] for number, device in enumerate(devices)}


def limited_kernels_ns(trace: Trace, device: int, names: Iterable[str]) -> int:
    """The most that faster kernels of these names can save: their steady time on the path."""
    by_name = _limited_by_name(trace)
    return sum(by_name.get((device, name), 0) for name in set(names))
