"""Collectives paired over the GPUs of a recording: who waited for whom.

A collective ends on all its GPUs together, as none can leave before the last has sent its part. So
the GPU with the shortest kernel arrived last, and each other one waited for it as long as its own
kernel took longer. No clocks are needed for that, only which kernels belong together: those of one
communicator, which NCCL's payloads name, else of two streams that run the same kinds in the same
order and end together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups, intervals
from traceview.analyses.communication.transfers import Transfers, transfers
from traceview.facts.operations.hosts import device_hosts
from traceview.facts.operations.operations import operations
from traceview.intervals import Intervals
from traceview.tables import NULL, Integers, Mask
from traceview.trace import Trace, fact

# Kernels of one collective were measured to end within 5 µs of each other on one machine.
_ENDS_TOGETHER_NS = 50_000
_MOST_LAG = 64
_LEAST_PAIRED_FRACTION = 0.5
_FEW = 3


@dataclass(frozen=True)
class Communicator:
    """Streams whose collectives belong together. `rows` has those of transfers, −1 where a GPU's
    is not in the recording; shape (GPUs, collectives). `devices` are rows of devices, of one
    machine where they have the `same_clock`.
    """

    devices: tuple[int, ...]
    rows: Integers
    same_clock: bool


@dataclass(frozen=True)
class Waiting:
    """One entry per transfer: `wait_ns` for the last GPU to arrive, −1 where it is not paired;
    `late_ns` the longest wait that the others had for it, 0 where it was not the last.

    `extra_work_ns` and `extra_idle_ns` are how much longer than the mean of the others a GPU that
    arrived last was busy, and idle, since its collective before. `communicator` is its number, −1
    for none.
    """

    wait_ns: Integers
    late_ns: Integers
    extra_work_ns: Integers
    extra_idle_ns: Integers
    communicator: Integers
    devices: tuple[tuple[int, ...], ...]


@fact
def waiting(trace: Trace) -> Waiting:
    """What the collectives of the selected work waited for."""
    moved = transfers(trace)
    found = communicators(trace, moved)
    late, work, idle = (np.zeros(len(moved), np.int64) for _ in range(3))
    wait, group_of = (np.full(len(moved), -1, np.int64) for _ in range(2))
    result = Waiting(wait, late, work, idle, group_of, tuple(each.devices for each in found))
    busy = _busy_without_transfers(trace, moved)
    for number, each in enumerate(found):
        result.communicator[each.rows[each.rows >= 0]] = number
        _fill(result, moved, each, busy)
    return result


def communicators(trace: Trace, moved: Transfers) -> tuple[Communicator, ...]:
    """Streams of different GPUs whose collectives are alike and end together."""
    hosts = device_hosts(trace)
    grown: list[tuple[Integers, list[tuple[int, Integers, int]]]] = []
    for rows in _streams(moved):
        device = int(moved.device[rows[0]])
        for first, members in grown:
            if any(device == other for other, _, _ in members) or not _may_pair(moved, first, rows):
                continue
            same_clock = bool(hosts[moved.device[first[0]]] == hosts[device])
            lag = lag_between(moved, first, rows, same_clock=same_clock)
            if lag is not None:
                members.append((device, rows, lag))
                break
        else:
            grown.append((rows, [(device, rows, 0)]))
    found = [_communicator(len(first), members) for first, members in grown if len(members) > 1]
    return tuple(
        Communicator(devices, rows, len(set(hosts[[*devices]].tolist())) == 1)
        for devices, rows in found
    )


def _may_pair(moved: Transfers, one: Integers, other: Integers) -> bool:
    """False for the collectives of different communicators."""
    numbers = moved.communicator[one[0]], moved.communicator[other[0]]
    return NULL in numbers or bool(numbers[0] == numbers[1])


def _streams(moved: Transfers) -> list[Integers]:
    """Rows of the collectives of each stream and communicator in order of start.

    They come by device and first use.
    """
    rows = np.flatnonzero(moved.is_collective)
    communicator = np.unique(moved.communicator[rows], return_inverse=True)[1].astype(np.int64)
    by_stream = groups.group(moved.device[rows], moved.stream[rows], communicator)
    order = np.lexsort((moved.start_ns[rows], by_stream.ids))
    parts = np.split(rows[order], np.flatnonzero(np.diff(by_stream.ids[order])) + 1)
    found = [part for part in parts if len(part)]
    return sorted(found, key=lambda each: (moved.device[each[0]], moved.start_ns[each[0]]))


def lag_between(
    moved: Transfers, one: Integers, other: Integers, *, same_clock: bool
) -> int | None:
    """The offset in order between the collectives of two streams; None if they are unrelated.

    A recording may begin between the two kernels of a collective. On one clock those must end
    together, otherwise their ends must be equally far apart.
    """
    most = min(_MOST_LAG, abs(len(one) - len(other)) + 8)
    least = _LEAST_PAIRED_FRACTION * min(len(one), len(other))
    for lag in sorted(range(-most, most + 1), key=abs):
        first, last = max(0, -lag), min(len(one), len(other) - lag)
        count = last - first
        if count < max(least, 1) or (count < _FEW and not same_clock):
            continue
        a, b = one[first:last], other[first + lag : last + lag]
        if (moved.kind[a] != moved.kind[b]).any():
            continue
        apart = moved.end_ns[a] - moved.end_ns[b]
        if not same_clock:
            apart = apart - int(np.median(apart))
        if np.median(np.abs(apart)) <= _ENDS_TOGETHER_NS:
            return lag
    return None


def _communicator(
    count: int, members: list[tuple[int, Integers, int]]
) -> tuple[tuple[int, ...], Integers]:
    rows = np.full((len(members), count), -1, np.int64)
    for place, (_, own, lag) in enumerate(members):
        at = np.arange(count) + lag
        there = (at >= 0) & (at < len(own))
        rows[place, there] = own[at[there]]
    return tuple(device for device, _, _ in members), rows


def _busy_without_transfers(trace: Trace, moved: Transfers) -> dict[int, Intervals]:
    """Union of all other operations of each device that takes part in transfers."""
    ops = operations(trace)
    other = np.ones(len(ops), bool)
    other[moved.operation] = False
    return {
        device: intervals.union(
            ops.start_ns[other & (ops.device == device)], ops.end_ns[other & (ops.device == device)]
        )
        for device in groups.different(moved.device).tolist()
    }


def _fill(result: Waiting, moved: Transfers, of: Communicator, busy: dict[int, Intervals]) -> None:
    """Write the waits of the collectives of one communicator into the arrays of the result."""
    rows, there = of.rows, of.rows >= 0
    paired = (there.sum(axis=0) > 1) & _end_together(moved, of)
    rows, there = rows[:, paired], there[:, paired]
    if not rows.size:
        return
    duration = np.where(there, moved.duration_ns[rows], np.iinfo(np.int64).max)
    shortest, last = duration.min(axis=0), duration.argmin(axis=0)
    wait = np.where(there, duration - shortest, 0)
    result.wait_ns[rows[there]] = wait[there]
    at = np.arange(rows.shape[1])
    late = rows[last, at]
    result.late_ns[late] = wait.max(axis=0)
    work, idle = _since_the_one_before(moved, rows, there, of.devices, busy)
    others = np.maximum(there.sum(axis=0) - 1, 1)
    for values, extra in ((work, result.extra_work_ns), (idle, result.extra_idle_ns)):
        mean = (values.sum(axis=0) - values[last, at]) // others
        extra[late] = values[last, at] - mean


def _end_together(moved: Transfers, of: Communicator) -> Mask:
    """False for the collectives that a GPU left long before another, on one clock.

    The sender of a small message or a broadcast need not wait for those who receive it.
    """
    if not of.same_clock:
        return np.ones(of.rows.shape[1], bool)
    there = of.rows >= 0
    ends = moved.end_ns[of.rows]
    last = np.where(there, ends, np.iinfo(np.int64).min).max(axis=0)
    first = np.where(there, ends, np.iinfo(np.int64).max).min(axis=0)
    together: Mask = last - first <= _ENDS_TOGETHER_NS
    return together


def _since_the_one_before(
    moved: Transfers,
    rows: Integers,
    there: Mask,
    devices: tuple[int, ...],
    busy: dict[int, Intervals],
) -> tuple[Integers, Integers]:
    """Busy and idle time of each GPU between the collective before and this one; 0 at the first."""
    work, idle = (np.zeros(rows.shape, np.int64) for _ in range(2))
    for place, device in enumerate(devices):
        own = rows[place, there[place]]
        start = moved.start_ns[own]
        before = np.concatenate((start[:1], moved.end_ns[own][:-1]))
        before = np.minimum(before, start)
        spent = intervals.overlap(busy[device], before, start)
        work[place, there[place]] = spent
        idle[place, there[place]] = start - before - spent
    return work, idle
