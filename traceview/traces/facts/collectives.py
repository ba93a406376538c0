"""Transfers between GPUs, and which collectives of several GPUs belong together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask, RowNumbers, Texts, object_array
from traceview.traces.facts import collective_alignment, kernel_classes, messages, operations
from traceview.traces.facts.collective_alignment import ABSENT
from traceview.traces.facts.ranges import ranges, selection
from traceview.traces.facts.steps.steps import operations_in_warm_up
from traceview.traces.trace import Trace, fact

PEER_COPY = "peer-copy"
# ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_SendRecv, multimem_one_shot_all_reduce_kernel.
_KINDS = (
    ("all-reduce", r"all_?reduce|cross_device_reduce"),
    ("reduce-scatter", r"reduce_?scatter"),
    ("all-gather", r"all_?gather"),
    ("all-to-all", r"all_?to_?all"),
    ("dispatch", r"dispatch"),
    ("combine", r"combine"),
    ("send-receive", r"send_?recv|\bsend\b|\brecv\b|p2p"),
    ("broadcast", r"broad_?cast"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
    ("barrier", r"barrier"),
)
_RULES = tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in _KINDS)
# torch names the collective in a range around its launch: nccl:all_to_all.
_TORCH_RANGE = re.compile(r"(?:^|/)nccl:(\w+)")
# RCCL's kernels run any kind of collective.
_ANY_KIND = re.compile(r"(nccl|rccl)\w*Kernel_Generic", re.IGNORECASE)


@record
class Transfers(intervals.Timed):
    """The selected transfers, one row per transfer, in order of start.

    `operation` is the row in operations, `device` and `stream` are as there, `kind` an index into
    `kinds`. `bytes` and `bus_bytes` are −1 where unknown. `is_collective` is False for copies.
    `communicator` is NCCL's number, NULL where unknown, and `ranks` the size of that communicator,
    0 where unknown. `sends` and `receives` are the directions of messages, `peer` the rank at their
    other end, −1 where there is no single one. `steady` is False for transfers of warm-up.
    """

    operation: RowNumbers
    device: Array
    stream: RowNumbers
    start_ns: Integers
    end_ns: Integers
    kind: Integers
    kinds: tuple[str, ...]
    bytes: Integers
    bus_bytes: Integers
    communicator: Integers
    ranks: Integers
    sends: Mask
    receives: Mask
    peer: Integers
    is_collective: Mask
    steady: Mask

    def __len__(self) -> int:
        return len(self.operation)


@fact
def transfers(trace: Trace) -> Transfers:
    """The selected transfers between GPUs."""
    ops = operations.operations(trace)
    rows = np.flatnonzero(
        kernel_classes.communication_operations(trace) & selection.selected_operations(trace)
    )
    is_kernel = ops.kind[rows] == operations.Kind.KERNEL
    kernels = rows[is_kernel]
    short_names = trace.recorded("kernels").texts("short_name").take(ops.row[kernels])
    tree = ranges.range_tree(trace)
    path = ranges.attributed_operations(trace).path(tree)[kernels]
    around = tree.patterns.texts(tree.pattern_of_paths(path))
    # By the kernel's name, else by torch's range around its launch, else by the NCCL calls.
    by_name, of_range = _of_texts(short_names, kind_of_kernel), _of_texts(around, _kind_of_range)
    named = np.where((by_name == messages.SEND_RECEIVE) & (of_range != ""), of_range, by_name)
    called = messages.messages(trace, kernels, named)
    open_kind = (named == messages.SEND_RECEIVE) | short_names.matching(_ANY_KIND.match)
    every_kind = object_array([PEER_COPY] * len(rows))
    every_kind[is_kernel] = np.where(open_kind & (called.kind != ""), called.kind, named)
    kinds = Texts.of(every_kind)
    copied = trace.recorded("copies")["bytes"][ops.row[rows[~is_kernel]]]
    return Transfers(
        operation=rows.astype(np.int32),
        device=ops.device[rows],
        stream=ops.stream[rows],
        start_ns=ops.start_ns[rows],
        end_ns=ops.end_ns[rows],
        kind=kinds.codes.astype(np.int64),
        kinds=tuple(map(str, kinds.values)),
        bytes=_either(is_kernel, called.bytes, copied),
        bus_bytes=_either(is_kernel, called.bus_bytes, copied),
        communicator=_either(is_kernel, called.communicator, NULL),
        ranks=_either(is_kernel, called.ranks, 0),
        sends=_either(is_kernel, called.sends, 0) > 0,
        receives=_either(is_kernel, called.receives, 0) > 0,
        peer=_either(is_kernel, called.peer, -1),
        is_collective=is_kernel,
        steady=~operations_in_warm_up(trace)[rows],
    )


def _either(is_kernel: Mask, of_kernels: Array, of_copies: Integers | int) -> Integers:
    result = np.zeros(len(is_kernel), np.int64)
    result[is_kernel], result[~is_kernel] = of_kernels, of_copies
    return result


def _of_texts(texts: Texts, kind_of: Callable[[str], str]) -> Array:
    """The kind of each text, computed once per distinct text; "" for an absent text."""
    alike = groups.group(texts.codes)
    distinct = texts.take(alike.first).decode()
    kinds = object_array(["" if text is None else kind_of(text) for text in distinct])
    return kinds[alike.ids]


def kind_of_kernel(name: str) -> str:
    """The collective that a kernel of that name runs; the name itself where it is unknown."""
    return _known_kind(name) or name


def _known_kind(name: str) -> str:
    return next((kind for kind, rule in _RULES if rule.search(name)), "")


def _kind_of_range(pattern: str) -> str:
    """The collective that torch names; "" for a group of messages (`nccl:coalesced`)."""
    names = _TORCH_RANGE.findall(pattern)
    return _known_kind(names[-1]) if names else ""


# Collectives of several GPUs that belong together: those of one communicator, in its order.
#
# The recordings name the communicator of a collective, or streams of different GPUs belong
# together that run the same kinds in the same order and end together. A recording may begin
# between the two kernels of a collective, so that the order of one stream lags behind that of
# another.

# Who waited for whom in collectives that belong together.
#
# A collective ends on all its GPUs together, as none can leave before the last has sent its part.
# So the GPU with the shortest kernel arrived last, and each other one waited for it as long as
# its own kernel took longer. No clocks are needed for that.


class CollectiveWaits(NamedTuple):
    """Waits of the collectives of one communicator.

    `wait_ns` has shape (members, collectives), −1 where a member is not recorded or the wait is not
    known. `last` is the index of the member that arrived last, −1 where unknown; `late_ns` is the
    longest wait for that member, 0 where unknown.
    """

    wait_ns: Integers
    last: Integers
    late_ns: Integers


def waits_of(duration_ns: Integers, there: Mask, together: Mask) -> CollectiveWaits:
    """The waits in collectives, from `duration_ns` of shape (members, collectives).

    `there`, of the same shape, is True where a member's collective was recorded; `together` has one
    entry per collective, False where its ends are apart.
    """
    known = together & (there.sum(axis=0) > 1)
    duration = np.where(there, duration_ns, np.iinfo(np.int64).max)
    shortest, last = duration.min(axis=0), duration.argmin(axis=0)
    wait = np.where(there & known, duration - np.where(known, shortest, 0), -1)
    return CollectiveWaits(
        wait_ns=wait,
        last=np.where(known, last, -1),
        late_ns=np.where(known, np.maximum(wait.max(axis=0), 0), 0),
    )


_SEARCHED = 8
_IN_STEP = 0.9
"""Of the messages of two streams: so many end together where the streams are peers."""


@record
class MatchedRows:
    """Streams whose collectives belong together, one per member.

    `rows` are rows of CollectiveTimes, shape (members, collectives), −1 where the member's
    recording lacks the collective. `number` is the communicator, NULL where the match was inferred.
    """

    members: tuple[int, ...]
    rows: Integers
    same_clock: bool
    number: int


@dataclass
class _Growing:
    """A stream, and the streams of other members matched to it so far.

    `places` has, per matched stream, the index of each of its collectives in the first stream.
    """

    first: Integers
    number: int
    members: list[int]
    streams: list[Integers]
    places: list[Integers]

    def add(self, member: int, rows: Integers, places: Integers) -> None:
        """Add the stream of a member; `places` are the indices of its rows in the first stream."""
        paired = places != ABSENT
        self.members.append(member)
        self.streams.append(rows[paired])
        self.places.append(places[paired])


def matched_rows(
    times: collective_alignment.CollectiveTimes, *, by_name: bool = False
) -> tuple[MatchedRows, ...]:
    """The streams of different members whose collectives are alike and end together.

    With `by_name`, streams of one named communicator that hold equally many collectives belong
    together whatever their ends.
    """
    growing: list[_Growing] = []
    of_number: dict[int, list[_Growing]] = {}
    # Each (stream, communicator) by start; these in order of member and start.
    communicator = np.unique(times.communicator, return_inverse=True)[1].astype(np.int64)
    by_stream = groups.group(times.member, times.lane, communicator)
    order = np.lexsort((times.start_ns, by_stream.ids))
    parts = np.split(order, np.flatnonzero(np.diff(by_stream.ids[order])) + 1)
    streams = sorted(
        (part for part in parts if len(part)),
        key=lambda part: (times.member[part[0]], times.start_ns[part[0]]),
    )
    for rows in streams:
        member, number = int(times.member[rows[0]]), int(times.communicator[rows[0]])
        candidates = growing if number == NULL else of_number.get(number, [])
        if number != NULL:
            candidates = [*candidates, *of_number.get(NULL, ())]
        if not _join(times, candidates, member, rows, by_name=by_name and number != NULL):
            one = _Growing(rows, number, [], [], [])
            one.add(member, rows, np.arange(len(rows)))
            growing.append(one)
            of_number.setdefault(number, []).append(one)
    # Two that begin together show that they wait for a third one only where that is known.
    for one in [one for one in growing if len(one.members) == 1 and one.number == NULL]:
        if _join(times, growing, one.members[0], one.first, by_name=False):
            growing = [other for other in growing if other is not one]
    return tuple(_matched(times, one) for one in growing if len(one.members) > 1)


def _join(
    times: collective_alignment.CollectiveTimes,
    candidates: list[_Growing],
    member: int,
    rows: Integers,
    *,
    by_name: bool,
) -> bool:
    """Add a stream to the candidate that it fits best; False where it fits none."""
    best: tuple[float, _Growing, Integers] | None = None
    free = [one for one in candidates if member not in one.members]
    if times.is_message[rows].all() and times.communicator[rows[0]] == NULL:
        free = [one for one in free if _same_messages(times, one, rows)]
    for number, one in enumerate(free):
        search = number < _SEARCHED or by_name
        pairs = collective_alignment.fit(times, one.first, rows, search=search)
        pairs = pairs or collective_alignment.fit(
            collective_alignment.without_steps(times), one.first, rows, search=search
        )
        named = by_name and one.number != NULL
        if pairs is None and named and collective_alignment.are_in_order(times, one.first, rows):
            pairs = 0.0, np.arange(len(rows))
        # Streams of different groups run in step as well, but less closely.
        one_clock = collective_alignment.share_clock(times, one.first, rows)
        within_ns = (
            collective_alignment.ENDS_TOGETHER_NS if one_clock else collective_alignment.IN_STEP_NS
        )
        if pairs is not None and (
            named
            or pairs[0] <= within_ns
            or collective_alignment.are_tied(times, one.first, rows, pairs[1])
            or _wait_for(times, one, rows, pairs[1])
        ):
            best = (pairs[0], one, pairs[1]) if best is None or pairs[0] < best[0] else best
    if best is not None:
        best[1].add(member, rows, best[2])
    return best is not None


def _wait_for(
    times: collective_alignment.CollectiveTimes, one: _Growing, rows: Integers, places: Integers
) -> bool:
    """Whether a stream and one of those matched so far end together whoever begins late.

    `places` are the indices of its collectives in the first of them.
    """
    for stream, of_first in zip(one.streams, one.places, strict=True):
        nearest = np.minimum(np.searchsorted(of_first, places), len(of_first) - 1)
        there = np.where(of_first[nearest] == places, nearest, ABSENT)
        if collective_alignment.wait_for_each_other(times, stream, rows, there):
            return True
    return False


def _same_messages(
    times: collective_alignment.CollectiveTimes, one: _Growing, rows: Integers
) -> bool:
    """Whether the messages of a stream are those of others, without a name that says so.

    A stage of a pipeline may exchange with both of its neighbours on one stream, in step with
    theirs: only streams that pair off from the first to the last message, and closely, are alike.
    """
    if len(one.members) > 1 and times.direction[rows].any():
        return False
    if not collective_alignment.are_in_order(times, one.first, rows):
        return False
    off = collective_alignment.ends_off_ns(times, one.first, rows)
    return len(off) > 0 and bool(np.mean(off <= collective_alignment.IN_STEP_NS) >= _IN_STEP)


def _matched(times: collective_alignment.CollectiveTimes, of: _Growing) -> MatchedRows:
    order = sorted(range(len(of.members)), key=of.members.__getitem__)
    low = min(int(places.min(initial=0)) for places in of.places)
    high = max(int(places.max(initial=0)) for places in of.places)
    rows = np.full((len(order), high - low + 1), -1, np.int64)
    for member, number in enumerate(order):
        rows[member, of.places[number] - low] = of.streams[number]
    members = tuple(of.members[number] for number in order)
    numbers = groups.different(times.communicator[[one[0] for one in of.streams if len(one)]])
    clocks = groups.different(times.clock[list(members)])
    return MatchedRows(members, rows, len(clocks) == 1, int(numbers[-1]))


def ends_together(
    ends: Integers, there: Mask, within_ns: int = collective_alignment.ENDS_TOGETHER_NS
) -> Mask:
    """True for the collectives that all members left within `within_ns`, on one clock.

    The sender of a small message or a broadcast need not wait for the receivers. `ends` and `there`
    (True where recorded) have shape (members, collectives).
    """
    last = np.where(there, ends, np.iinfo(np.int64).min).max(axis=0)
    first = np.where(there, ends, np.iinfo(np.int64).max).min(axis=0)
    return last - first <= within_ns
