"""Payload of each NCCL kernel, from the NCCL calls it serves: bytes, communicator and ranks.

A kernel is launched inside the call it serves or, between ncclGroupStart and ncclGroupEnd, inside
ncclGroupEnd for all calls of the group. torch.profiler does not show groups: calls that launch
nothing are served by the next kernel that their thread launches outside of any call. Sizes and bus
bandwidth follow nccl-tests (doc/PERFORMANCE.md there): the size of the larger buffer, and that
times 2 (n − 1) ÷ n for an all-reduce of n ranks, (n − 1) ÷ n where each rank has a part, 1 for a
broadcast, a reduction or a message. Where the parts differ in size, the busier direction counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask, Table, object_array
from traceview.traces.facts.operations import match, operations
from traceview.traces.trace import Trace

UNKNOWN = -1
SEND_RECEIVE = "send-receive"
"""NCCL's kernel for messages, which may be a part of another collective."""
_PARTS = ("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter")
# NCCL runs these kinds as messages between ranks, in its send/receive kernel.
_AS_MESSAGES = ("all-to-all", "gather", "scatter", "send", "receive")


@record
class Messages:
    """Payloads of NCCL kernels, one entry per kernel given to `messages`.

    Where unknown, `bytes` and `bus_bytes` are −1, `communicator` is NULL, `ranks` 0, `kind` "".
    `sends` and `receives` are the directions of point-to-point messages, `peer` the rank in the
    communicator at their other end, −1 where there are several or none.
    """

    kind: Array
    bytes: Integers
    bus_bytes: Integers
    communicator: Integers
    ranks: Integers
    sends: Mask
    receives: Mask
    peer: Integers


def messages(trace: Trace, rows: Integers, kinds: Array) -> Messages:
    """The payloads of kernels (`rows` of operations), whose kinds by kernel name are `kinds`."""
    calls = trace.recorded("collective_calls")
    count = len(rows)
    if not len(calls) or not count:
        unknown, neither = np.full(count, UNKNOWN, np.int64), np.zeros(count, bool)
        return Messages(
            kind=object_array([""] * count),
            bytes=unknown,
            bus_bytes=unknown,
            communicator=np.full(count, NULL),
            ranks=np.zeros(count, np.int64),
            sends=neither,
            receives=neither.copy(),
            peer=unknown.copy(),
        )
    units = _units(calls)
    moves = units.marks == 0
    calls, unit = calls.take(units.order[moves]), units.number[moves]
    kernel_unit, launched = _units_of_launches(trace, units, rows)
    if moves.all():
        of_unit, kernel_unit = _coalesced(units, kernel_unit, launched)
        unit = of_unit[unit]
    call_class, kernel_class = _classes(calls.texts("kind").decode()), _classes(kinds)
    kernel = _kernels_of_calls(unit, call_class, kernel_unit, kernel_class)
    return _summed(trace, calls, kernel, count)


@record
class _Units:
    """NCCL calls in units, each of a single call or a group.

    One entry per call, by thread and start: `order` is its row in collective_calls, `marks` is 1
    for the start of a group, −1 for its end, 0 for other calls, `number` is its unit. One entry
    per unit: kernels are launched from `start` to `end` on `thread`.
    """

    order: Integers
    marks: Integers
    number: Integers
    thread: Array
    start: Integers
    end: Integers


def _units(calls: Table) -> _Units:
    order = np.lexsort((calls["start_ns"], calls["thread"]))
    thread = calls["thread"][order]
    kinds = calls.texts("kind").take(order)
    marks = kinds.isin(("group-start",)).astype(np.int64) - kinds.isin(("group-end",))
    outside = np.zeros(len(order), bool)
    edges = np.flatnonzero(groups.opens(thread)).tolist()
    for first, last in zip(edges, [*edges[1:], len(order)], strict=True):
        # Open groups of the thread: an end without a start closes nothing.
        total = np.cumsum(marks[first:last])
        depth = total - np.minimum(np.minimum.accumulate(total), 0)
        outside[first:last] = np.append(0, depth[:-1]) == 0
    number = np.cumsum(outside | groups.opens(thread)) - 1
    closing = np.append(np.flatnonzero(np.diff(number)), len(order) - 1)
    start, end = (calls[name][order[closing]] for name in ("start_ns", "end_ns"))
    return _Units(order, marks, number, thread[closing], start, end)


class _Launches(NamedTuple):
    """Launch calls of kernels; `row` is the kernel's index among those given to `messages`."""

    row: Integers
    thread: Array
    start_ns: Integers


def _units_of_launches(trace: Trace, units: _Units, rows: Integers) -> tuple[Integers, _Launches]:
    """The unit that launched each operation of `rows`, −1 for none, and the launch calls."""
    calls, call = trace.recorded("api_calls"), operations(trace).call[rows]
    result = np.full(len(rows), UNKNOWN, np.int64)
    launched = np.flatnonzero(call >= 0)
    thread, time = calls["thread"][call[launched]], calls["start_ns"][call[launched]]
    for number, of_thread in groups.rows_of(units.thread).items():
        here = thread == number
        place = np.searchsorted(units.start[of_thread], time[here], side="right") - 1
        inside = (place >= 0) & (time[here] < units.end[of_thread][np.maximum(place, 0)])
        result[launched[here][inside]] = of_thread[place[inside]]
    return result, _Launches(launched, thread, time)


def _coalesced(
    units: _Units, kernel_unit: Integers, launched: _Launches
) -> tuple[Integers, Integers]:
    """The new unit of each unit and of each kernel, with coalesced calls merged into one unit.

    Successive calls of a thread that launched nothing form one unit. The thread's next launches
    outside of any call serve it.
    """
    of_unit, kernel_unit = np.arange(len(units.thread)), kernel_unit.copy()
    idle = np.bincount(kernel_unit[kernel_unit >= 0], minlength=len(units.thread)) == 0
    for thread in groups.different(units.thread).tolist():
        own = np.flatnonzero(launched.thread == thread)
        own = own[np.argsort(launched.start_ns[own], kind="stable")]
        times, outside = launched.start_ns[own], kernel_unit[launched.row[own]] < 0
        calls = np.flatnonzero(idle & (units.thread == thread))
        following = np.searchsorted(times, units.start[calls])
        calls, following = calls[following < len(own)], following[following < len(own)]
        calls, following = calls[outside[following]], following[outside[following]]
        first, which = np.unique(following, return_inverse=True)
        of_unit[calls] = calls[np.searchsorted(following, first)][which]
        # Launches up to the next call, or to the next launch within a call, serve one unit.
        edges = np.zeros(len(own), np.int64)
        edges[first] = 1
        unit = np.append(UNKNOWN, of_unit[calls[np.searchsorted(following, first)]])
        run = np.cumsum(edges)
        unbroken = np.cumsum(~outside) == np.append(UNKNOWN, np.cumsum(~outside)[first])[run]
        served = outside & unbroken
        kernel_unit[launched.row[own[served]]] = unit[run[served]]
    return of_unit, kernel_unit


_CLASSES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", SEND_RECEIVE)


def _classes(kinds: Array) -> Integers:
    places = {kind: place for place, kind in enumerate(_CLASSES)}
    places |= dict.fromkeys(_AS_MESSAGES, places[SEND_RECEIVE])
    return np.array([places.get(kind, UNKNOWN) for kind in kinds.tolist()], np.int64)


def _kernels_of_calls(
    unit: Integers, call_class: Integers, kernel_unit: Integers, kernel_class: Integers
) -> Integers:
    """The kernel that serves each call, −1 where it is not known.

    The only kernel of a unit serves all its calls. The only kernel of a class serves the calls of
    that class; as many kernels as calls of a class serve one call each, in order.
    """
    result = np.full(len(unit), UNKNOWN, np.int64)
    kernels = np.flatnonzero(kernel_unit >= 0)
    if not len(kernels):
        return result
    most = int(max(unit.max(initial=0), kernel_unit.max())) + 1
    per_unit = np.bincount(kernel_unit[kernels], minlength=most)
    first = np.full(most, UNKNOWN, np.int64)
    first[kernel_unit[kernels][::-1]] = kernels[::-1]
    alone = per_unit[unit] == 1
    result[alone] = first[unit[alone]]
    width = len(_CLASSES) + 1
    call_key, kernel_key = unit * width + call_class + 1, kernel_unit * width + kernel_class + 1
    rest = np.flatnonzero(~alone & (per_unit[unit] > 1))
    rest = rest[np.argsort(call_key[rest], kind="stable")]
    ordered = kernels[np.argsort(kernel_key[kernels], kind="stable")]
    keys = kernel_key[ordered]
    at, end = (np.searchsorted(keys, call_key[rest], side=side) for side in ("left", "right"))
    kernel_count = end - at
    by_key = groups.group(call_key[rest])
    place = np.arange(len(rest)) - by_key.first[by_key.ids]
    same = kernel_count == groups.count(by_key)[by_key.ids]
    sound = (kernel_count == 1) | ((kernel_count > 0) & same)
    chosen = at + np.where(kernel_count == 1, 0, place)
    result[rest[sound]] = ordered[chosen[sound]]
    return result


def _summed(trace: Trace, calls: Table, kernel: Integers, count: int) -> Messages:
    served = kernel >= 0
    calls, kernel = calls.take(served), kernel[served]
    ranks, own_rank = _ranks(trace, calls)
    kinds, values = calls.texts("kind"), calls["bytes"]
    parts, sends, receives = (kinds.isin(some) for some in (_PARTS, ("send",), ("receive",)))
    unknown = (values == NULL) | (parts & (ranks == 0))
    bus_unknown = unknown | (kinds.isin(("all-reduce",)) & (ranks == 0))
    values = np.where(values == NULL, 0, values)
    to_itself = (sends | receives) & (own_rank >= 0) & (calls["peer"] == own_rank)
    named = _kinds(calls, kernel, count, ranks)
    # A message to itself is part of the buffers of an all-to-all, and never uses the link.
    apart = to_itself & (named[kernel] != "all-to-all")
    whole = np.where(parts, values * ranks, np.where(apart, 0, values))
    bus = np.where(parts, values * np.maximum(ranks - 1, 0), np.where(to_itself, 0, values))
    reduced = kinds.isin(("all-reduce",))
    bus = np.where(reduced, np.rint(2 * (ranks - 1) / np.maximum(ranks, 1) * values), bus)
    whole = np.where(calls["total_bytes"] == NULL, whole, calls["total_bytes"])
    bus = np.where(calls["bus_bytes"] == NULL, bus, calls["bus_bytes"])

    def summed(values: Integers, unsure: Mask) -> Integers:
        """Bytes per kernel; sends and receives move at once, so only the larger sum counts."""
        sent, received, other = (
            groups.added(kernel, np.where(rows, values, 0), count)
            for rows in (sends, receives, ~sends & ~receives)
        )
        none = np.bincount(kernel, minlength=count) == 0
        total = other + np.maximum(sent, received)
        return np.where(none | _any(kernel, count, unsure), UNKNOWN, total)

    # NULL and 0 where the calls of a kernel name several communicators.
    numbers, sizes = np.full(count, NULL), np.zeros(count, np.int64)
    numbers[kernel], sizes[kernel] = calls["communicator"], ranks
    several = _any(kernel, count, numbers[kernel] != calls["communicator"])
    return Messages(
        kind=named,
        bytes=summed(whole, unknown),
        bus_bytes=summed(bus.astype(np.int64), bus_unknown),
        communicator=np.where(several, NULL, numbers),
        ranks=np.where(several, 0, sizes),
        sends=_any(kernel, count, sends),
        receives=_any(kernel, count, receives),
        peer=_peers(kernel, count, calls["peer"], sends | receives),
    )


def _peers(kernel: Integers, count: int, peer: Array, messages: Mask) -> Integers:
    """The peer of each kernel's messages, −1 where there are several or none is known."""
    kernel, peer = kernel[messages], peer[messages].astype(np.int64)
    result = np.full(count, UNKNOWN, np.int64)
    result[kernel] = np.maximum(peer, UNKNOWN)
    several = _any(kernel, count, result[kernel] != peer)
    return np.where(several, UNKNOWN, result)


def _any(kernel: Integers, count: int, rows: Mask) -> Mask:
    result = np.zeros(count, bool)
    result[kernel[rows]] = True
    return result


def _ranks(trace: Trace, calls: Table) -> tuple[Integers, Integers]:
    """Size of each call's communicator (0: unknown), and the caller's rank in it (−1: unknown)."""
    created_rows = trace.recorded("communicators")
    ranks, own = np.zeros(len(calls), np.int64), np.full(len(calls), UNKNOWN, np.int64)
    if not len(created_rows) or not len(calls):
        return ranks, own
    # Communicator numbers are hashes, whose span may exceed 64 bits: number them anew.
    every = np.concatenate((created_rows["communicator"], calls["communicator"]))
    numbers = np.unique(every, return_inverse=True)[1].astype(np.int64)
    created, called = numbers[: len(created_rows)], numbers[len(created_rows) :]
    usable = calls["communicator"] != NULL
    anywhere = (np.zeros(len(part), np.int64) for part in (created_rows, calls))
    row = match(next(anywhere), created, next(anywhere), called, usable)
    ranks[row >= 0] = created_rows["ranks"][row[row >= 0]]
    row = match(created_rows["process"], created, calls["process"], called, usable)
    # A process may hold several ranks, each on a GPU of its own.
    in_process = groups.group(created_rows["process"], created)
    single = groups.count(in_process)[in_process.ids] == 1
    sure = (row >= 0) & single[np.maximum(row, 0)]
    own[sure] = created_rows["rank"][row[sure]]
    return ranks, own


def _kinds(calls: Table, kernel: Integers, count: int, ranks: Integers) -> Array:
    """The kind of each kernel by its NCCL calls, "" where they do not determine it.

    Messages to and from every rank, itself included, are an all-to-all.
    """
    result = object_array([""] * count)
    kinds = calls.texts("kind")
    for kind in (*_CLASSES[:-1], "all-to-all", "gather", "scatter"):
        result[kernel[kinds.isin((kind,))]] = kind
    everyone = np.ones(count, bool)
    for kind in ("send", "receive"):
        chosen = kinds.isin((kind,)) & (ranks > 1)
        pairs = groups.group(kernel[chosen], calls["peer"][chosen])
        peers = np.bincount(kernel[chosen][pairs.first], minlength=count)
        size = np.zeros(count, np.int64)
        size[kernel[chosen]] = ranks[chosen]
        everyone &= (size > 1) & (peers == size)
    result[everyone] = "all-to-all"
    return result
