"""Time in which a device limits the program: what runs then lies on the critical path.

Backwards from the end of the recording the critical path follows the device, until it comes to an
idle gap that ended with a launch: before that the CPU was the limit, whatever ran on the device
meanwhile. Where the CPU had waited for the device, the path returns to the device. Work off that
path can take less time, and the recording as a whole lasts as long: its gaps grow.

Kernels cannot save more than their time on the path, since the rest of the path stays. This is the
one rule for what faster kernels may claim to save: `claimable_ns`. With several streams or threads
more time counts as limited by the device than truly is, never less.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.cpu_activity import CPU_CAUSES
from traceview.facts.idle.gaps import busy, every_gap
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import CallKind
from traceview.facts.operations.operations import (
    kernel_operations,
    operations,
    operations_by_device,
)
from traceview.facts.steps.warm_up import operations_in_warm_up, steady_operations
from traceview.intervals import Intervals
from traceview.tables import Array, Integers
from traceview.trace import Trace, fact

_MAY_WAIT_FOR_WORK = [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC, CallKind.ALLOCATE]


@fact
def gpu_limited(trace: Trace) -> dict[int, Intervals]:
    """Busy time of each device (row in devices) that lies on the critical path."""
    every, waited, result = every_gap(trace), waits(trace), {}
    blocking = np.isin(waited.does, _MAY_WAIT_FOR_WORK)
    for device, work in busy(trace).items():
        late = every.end_ns[(every.device == device) & np.isin(every.cause, CPU_CAUSES)]
        for_device = blocking & ((waited.device == device) | (waited.device < 0))
        rows = np.flatnonzero(for_device)
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
def _steady_limited(trace: Trace) -> dict[int, Intervals]:
    """The critical path of each device without warm-up."""
    ops, early = operations(trace), operations_in_warm_up(trace)
    result = {}
    for device, limited in gpu_limited(trace).items():
        rows = operations_by_device(trace)[device]
        rows = rows[~early[rows]]
        steady = intervals.union(ops.start_ns[rows], ops.end_ns[rows])
        result[device] = intervals.intersection(limited, steady)
    return result


def claimable_ns(trace: Trace, device: int, rows: Array, saved_ns: Integers | None = None) -> int:
    """Upper bound, in ns, on what the program gains from faster kernels. Every claim uses it.

    `rows` are kernels of the device and `saved_ns` the time saved in each, by default all of it. No
    kernel saves more than its steady time on the critical path. Of kernels that run at once only
    one is on the path at a time: together they save no more than the kernels with the greatest
    relative saving that fit, one after the other, into the part of the path that all of them cover.
    Kernels outside the selection and of warm-up save nothing.
    """
    return claimable_operations_ns(trace, device, kernel_operations(trace)[rows], saved_ns)


def claimable_operations_ns(
    trace: Trace, device: int, of: Array, saved_ns: Integers | None = None
) -> int:
    """`claimable_ns` for operations of any kind: `of` are rows of operations."""
    ops, counted = operations(trace), steady_operations(trace)[of]
    of = of[counted]
    path = _steady_limited(trace).get(device, intervals.EMPTY)
    covered = intervals.union(ops.start_ns[of], ops.end_ns[of])
    most = intervals.intersection(covered, path).total()
    if saved_ns is None:
        return most
    length_ns = intervals.overlap(path, ops.start_ns[of], ops.end_ns[of])
    return _saved_in_turn_ns(length_ns, np.minimum(length_ns, saved_ns[counted]), most)


def gain_of_device_ns(trace: Trace, rows: Array, saved_ns: Integers | None = None) -> int:
    """`claimable_ns` as if the CPU launched all work in time; `rows` are kernels of one device."""
    return gain_of_operations_ns(trace, kernel_operations(trace)[rows], saved_ns)


def gain_of_operations_ns(trace: Trace, of: Array, saved_ns: Integers | None = None) -> int:
    """`gain_of_device_ns` for operations of any kind: `of` are rows of operations of one device."""
    ops, counted = operations(trace), steady_operations(trace)[of]
    of = of[counted]
    most = intervals.union(ops.start_ns[of], ops.end_ns[of]).total()
    if saved_ns is None:
        return most
    length_ns = ops.duration_ns[of]
    return _saved_in_turn_ns(length_ns, np.minimum(length_ns, saved_ns[counted]), most)


def _saved_in_turn_ns(length_ns: Integers, saved_ns: Integers, most_ns: int) -> int:
    """The most that operations of these lengths save within `most_ns` if no two run at once."""
    if int(length_ns.sum()) <= most_ns:
        return int(saved_ns.sum())
    length_ns, saved_ns = length_ns[length_ns > 0], saved_ns[length_ns > 0]
    fraction = saved_ns / length_ns
    order = np.argsort(-fraction, kind="stable")
    ends_ns = np.cumsum(length_ns[order])
    inside_ns = np.clip(most_ns - (ends_ns - length_ns[order]), 0, length_ns[order])
    return min(int(np.ceil((fraction[order] * inside_ns).sum())), int(saved_ns.sum()))


def kernels_named(trace: Trace, device: int, names: Iterable[str]) -> Integers:
    """Rows of the kernels of a device whose full name is one of `names`."""
    order, places = _rows_by_name(trace)
    parts = [order[slice(*place)] for name in set(names) for place in places.get(name, ())]
    rows = np.concatenate([order[:0], *parts])
    result: Integers = rows[trace.recorded("kernels")["device"][rows] == device]
    return result


@fact
def _rows_by_name(trace: Trace) -> tuple[Integers, dict[str, list[tuple[int, int]]]]:
    """Rows of kernels sorted by name, and where the rows of each name begin and end therein."""
    names = trace.recorded("kernels").texts("name")
    order = np.argsort(names.codes, kind="stable")
    codes = names.codes[order]
    first = np.flatnonzero(groups.opens(codes)).tolist()
    places: dict[str, list[tuple[int, int]]] = {}
    for begin, end in zip(first, [*first[1:], len(codes)], strict=True):
        if codes[begin] >= 0:
            places.setdefault(str(names.values[codes[begin]]), []).append((begin, end))
    return order, places
