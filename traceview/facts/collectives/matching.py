"""Collectives of several GPUs that belong together: those of one communicator, in its order.

The recordings name the communicator of a collective, or streams of different GPUs belong together
that run the same kinds in the same order and end together. A recording may begin between the two
kernels of a collective, so that the order of one stream lags behind that of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview import groups
from traceview.intervals import Timed
from traceview.tables import NULL, Array, Integers, Mask

ENDS_TOGETHER_NS = 50_000
"""Kernels of one collective were measured to end within 5 µs of each other on one machine."""
_MOST_LAG = 64
_MARGIN = 8
_LEAST_PAIRED_FRACTION = 0.5
_FEW = 3


@dataclass(frozen=True)
class CollectiveTimes(Timed):
    """Collectives of several GPUs, one row each.

    `member` numbers the GPU, `lane` a stream of it, `kind` is equal for equal kinds. `bytes` are
    those that all ranks of the collective must agree on, −1 where unknown, `communicator` is NULL
    where unknown. `clock` is by member: times compare where it is equal.
    """

    member: Array
    lane: Array
    start_ns: Integers
    end_ns: Integers
    kind: Array
    bytes: Integers
    communicator: Integers
    clock: Integers


@dataclass(frozen=True)
class MatchedRows:
    """Streams whose collectives belong together, one of each member.

    `rows` are those of CollectiveTimes, −1 where a member's is not in its recording; shape
    (members, collectives). `number` is the communicator, NULL where it was inferred.
    """

    members: tuple[int, ...]
    rows: Integers
    same_clock: bool
    number: int


@dataclass
class _Growing:
    """A stream, and those of other members that belong to it, with their lags behind it."""

    first: Integers
    number: int
    members: list[int]
    streams: list[Integers]
    lags: list[int]
    taken: set[int] = field(default_factory=set)

    def add(self, member: int, rows: Integers, lag: int) -> None:
        self.members.append(member)
        self.streams.append(rows)
        self.lags.append(lag)
        self.taken.add(member)


def matched_rows(times: CollectiveTimes, *, by_name: bool = False) -> tuple[MatchedRows, ...]:
    """The streams of different members whose collectives are alike and end together.

    With `by_name` equally many of a communicator that is named belong together whatever their ends.
    """
    growing: list[_Growing] = []
    of_number: dict[int, list[_Growing]] = {}
    for rows in _streams(times):
        member, number = int(times.member[rows[0]]), int(times.communicator[rows[0]])
        candidates = growing if number == NULL else of_number.get(number, [])
        if number != NULL:
            candidates = [*candidates, *of_number.get(NULL, ())]
        if not _join(times, candidates, member, rows, by_name=by_name and number != NULL):
            one = _Growing(rows, number, [], [], [])
            one.add(member, rows, 0)
            growing.append(one)
            of_number.setdefault(number, []).append(one)
    return tuple(_matched(times, each) for each in growing if len(each.members) > 1)


def _streams(times: CollectiveTimes) -> list[Integers]:
    """Rows of each stream and communicator in order of start; by member and first use."""
    communicator = np.unique(times.communicator, return_inverse=True)[1].astype(np.int64)
    by_stream = groups.group(times.member, times.lane, communicator)
    order = np.lexsort((times.start_ns, by_stream.ids))
    parts = np.split(order, np.flatnonzero(np.diff(by_stream.ids[order])) + 1)
    found = [part for part in parts if len(part)]
    return sorted(found, key=lambda each: (times.member[each[0]], times.start_ns[each[0]]))


def _join(
    times: CollectiveTimes,
    candidates: list[_Growing],
    member: int,
    rows: Integers,
    *,
    by_name: bool,
) -> bool:
    """Add a stream to the first of the candidates that it belongs to; False where there is none."""
    for each in candidates:
        if member in each.taken:
            continue
        lag = lag_between(times, each.first, rows)
        named = by_name and each.number != NULL and len(rows) == len(each.first)
        if lag is None and named and _alike(times, each.first, rows):
            lag = 0
        if lag is not None:
            each.add(member, rows, lag)
            return True
    return False


def lag_between(times: CollectiveTimes, one: Integers, other: Integers) -> int | None:
    """The offset in order between the collectives of two streams; None if they are unrelated.

    On one clock those that belong together end together. Otherwise the time between the ends must
    hardly change from one collective to the next. Of several lags that with the least difference.
    """
    members = times.member[one[0]], times.member[other[0]]
    same_clock = bool(times.clock[members[0]] == times.clock[members[1]])
    most = min(_MOST_LAG, abs(len(one) - len(other)) + _MARGIN)
    least = max(_LEAST_PAIRED_FRACTION * min(len(one), len(other)), 1 if same_clock else _FEW)
    best: tuple[float, int] | None = None
    for lag in sorted(range(-most, most + 1), key=abs):
        first, last = max(0, -lag), min(len(one), len(other) - lag)
        if last - first < least:
            continue
        a, b = one[first:last], other[first + lag : last + lag]
        if not _alike(times, a, b):
            continue
        apart = _apart_ns(times.end_ns[a] - times.end_ns[b], same_clock=same_clock)
        if apart <= ENDS_TOGETHER_NS and (same_clock or (not lag and len(one) == len(other))):
            return lag
        best = min(best or (apart, lag), (apart, lag), key=lambda each: each[0])
    return best[1] if best is not None and best[0] <= ENDS_TOGETHER_NS else None


def _alike(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    """Whether two streams run the same kinds, of the same sizes where these are known."""
    if (times.kind[one] != times.kind[other]).any():
        return False
    sizes, others = times.bytes[one], times.bytes[other]
    return not ((sizes != others) & (sizes >= 0) & (others >= 0)).any()


def _apart_ns(difference: Integers, *, same_clock: bool) -> float:
    """The median difference of ends; of clocks that drift, its change between collectives."""
    return float(np.median(np.abs(difference if same_clock else np.diff(difference))))


def _matched(times: CollectiveTimes, of: _Growing) -> MatchedRows:
    begin = max(of.lags)
    places = [
        np.arange(len(own)) - lag + begin for own, lag in zip(of.streams, of.lags, strict=True)
    ]
    rows = np.full((len(of.members), max(int(place[-1]) for place in places) + 1), -1, np.int64)
    for member, (own, place) in enumerate(zip(of.streams, places, strict=True)):
        rows[member, place] = own
    numbers = groups.different(times.communicator[[own[0] for own in of.streams]])
    clocks = groups.different(times.clock[of.members])
    return MatchedRows(tuple(of.members), rows, len(clocks) == 1, int(numbers[-1]))


def ends_together(ends: Integers, there: Mask, within_ns: int = ENDS_TOGETHER_NS) -> Mask:
    """False for the collectives that a member left long before another, on one clock.

    The sender of a small message or a broadcast need not wait for those who receive it. `ends` and
    `there` have shape (members, collectives).
    """
    last = np.where(there, ends, np.iinfo(np.int64).min).max(axis=0)
    first = np.where(there, ends, np.iinfo(np.int64).max).min(axis=0)
    together: Mask = last - first <= within_ns
    return together
