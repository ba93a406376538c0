"""Collectives of several GPUs that belong together: those of one communicator, in its order.

The recordings name the communicator of a collective, or streams of different GPUs belong together
that run the same kinds in the same order and end together. A recording may begin between the two
kernels of a collective, so that the order of one stream lags behind that of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.facts.collectives.alignment import ABSENT, CollectiveStream, places_in
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import NULL, Array, Integers, Mask

ENDS_TOGETHER_NS = 50_000
"""Kernels of one collective were measured to end within 5 µs of each other on one machine."""
_IN_STEP_NS, _SURE_NS = 10_000, 3_000
"""Bounds on the median change of the clock difference between collectives of one group: above the
first, streams do not match; up to the second, they surely do."""
_SEARCHED = 8
_MOST_LAG = 64
_MARGIN = 8
_LEAST_PAIRED_FRACTION = 0.5
_MOSTLY_TOGETHER = 0.75
_MOST_CONTRADICTING = 0.5
_FEW = 3


@record
class CollectiveTimes(Timed):
    """Collectives of several GPUs, one row per collective and GPU.

    `member` numbers the GPU, `lane` a stream of it, `kind` is equal for equal kinds. `bytes` are
    those that all ranks of the collective must agree on, −1 where unknown, `communicator` is NULL
    where unknown, `step` is the number of the step, equal on all ranks, −1 where unknown. `clock`
    has one entry per member: times of members with equal clocks are comparable.
    """

    member: Array
    lane: Array
    start_ns: Integers
    end_ns: Integers
    kind: Array
    bytes: Integers
    communicator: Integers
    step: Integers
    clock: Integers


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
    taken: set[int] = field(default_factory=set)

    def add(self, member: int, rows: Integers, places: Integers) -> None:
        """Add the stream of a member; `places` are the indices of its rows in the first stream."""
        paired = places != ABSENT
        self.members.append(member)
        self.streams.append(rows[paired])
        self.places.append(places[paired])
        self.taken.add(member)


def matched_rows(times: CollectiveTimes, *, by_name: bool = False) -> tuple[MatchedRows, ...]:
    """The streams of different members whose collectives are alike and end together.

    With `by_name`, streams of one named communicator that hold equally many collectives belong
    together whatever their ends.
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
            one.add(member, rows, np.arange(len(rows)))
            growing.append(one)
            of_number.setdefault(number, []).append(one)
    return tuple(_matched(times, each) for each in growing if len(each.members) > 1)


def _streams(times: CollectiveTimes) -> list[Integers]:
    """Rows of each (stream, communicator), by start; the list is in order of member and start."""
    communicator = np.unique(times.communicator, return_inverse=True)[1].astype(np.int64)
    by_stream = groups.group(times.member, times.lane, communicator)
    order = np.lexsort((times.start_ns, by_stream.ids))
    parts = np.split(order, np.flatnonzero(np.diff(by_stream.ids[order])) + 1)
    streams = [part for part in parts if len(part)]
    return sorted(streams, key=lambda each: (times.member[each[0]], times.start_ns[each[0]]))


def _join(
    times: CollectiveTimes,
    candidates: list[_Growing],
    member: int,
    rows: Integers,
    *,
    by_name: bool,
) -> bool:
    """Add a stream to the candidate that it fits best; False where it fits none."""
    best: tuple[float, _Growing, Integers] | None = None
    free = [each for each in candidates if member not in each.taken]
    for tried, each in enumerate(free):
        search = tried < _SEARCHED or by_name
        fit = _fit(times, each.first, rows, search=search)
        fit = fit or _fit(_without_steps(times), each.first, rows, search=search)
        named = by_name and each.number != NULL
        if fit is None and named and len(rows) == len(each.first):
            fit = _in_order(times, each.first, rows)
        if fit is not None and (named or fit[0] <= _within_ns(times, each.first, rows)):
            best = (fit[0], each, fit[1]) if best is None or fit[0] < best[0] else best
    if best is not None:
        best[1].add(member, rows, best[2])
    return best is not None


def _without_steps(times: CollectiveTimes) -> CollectiveTimes:
    """The collectives with unknown steps, for recordings that number steps differently."""
    return replace(times, step=np.full(len(times.step), -1))


def _within_ns(times: CollectiveTimes, one: Integers, other: Integers) -> int:
    """How far the ends of two streams of an unnamed communicator may be apart.

    Streams of different groups run in step as well, but less closely.
    """
    return ENDS_TOGETHER_NS if _same_clock(times, one, other) else _IN_STEP_NS


def _same_clock(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    return bool(times.clock[times.member[one[0]]] == times.clock[times.member[other[0]]])


def _in_order(
    times: CollectiveTimes, one: Integers, other: Integers
) -> tuple[float, Integers] | None:
    return (0.0, np.arange(len(other))) if _alike(times, one, other) else None


def _fit(
    times: CollectiveTimes, one: Integers, other: Integers, *, search: bool
) -> tuple[float, Integers] | None:
    """Median end difference of two streams in ns, and the index in `one` of each row of `other`.

    The streams may differ by a constant lag. Where their ends differ even then, and if `search` is
    True, collectives that only one recording has are searched for. None where the streams do not
    fit.
    """
    whole = _pairs_off(times, one, other)
    if whole is not None:
        return whole.apart_ns, whole.places
    lag = lag_between(times, one, other)
    by_lag = None if lag is None else _quality(times, one, other, np.arange(len(other)) - lag)
    if by_lag is not None and (
        not search or _sure(by_lag, one, other) or _whole(times, one, other, by_lag)
    ):
        return by_lag.apart_ns, by_lag.places
    places = None
    if search and min(len(one), len(other)) >= _FEW:
        places = places_in(
            _stream(times, one),
            _stream(times, other),
            ENDS_TOGETHER_NS,
            same_clock=_same_clock(times, one, other),
        )
    by_search = None if places is None else _quality(times, one, other, places)
    least = _LEAST_PAIRED_FRACTION * min(len(one), len(other))
    if by_search is None or by_search.together < max(least, _FEW - 1):
        best = by_lag
    else:
        best = by_search if by_lag is None or by_search.better_than(by_lag) else by_lag
    return None if best is None else (best.apart_ns, best.places)


def _pairs_off(times: CollectiveTimes, one: Integers, other: Integers) -> _Quality | None:
    """The pairs by position, where streams of one named communicator agree in all but their steps.

    A rank whose steps were inferred may begin each of them a few collectives sooner than another.
    None otherwise, and for streams without a common clock that also agree when shifted by one.
    """
    if len(one) != len(other) or not _alike(_without_steps(times), one, other):
        return None
    contradicting = _contradict(times.step[one], times.step[other])
    if np.mean(contradicting) > _MOST_CONTRADICTING:
        return None
    if not _same_clock(times, one, other) and _alike(_without_steps(times), one[1:], other[:-1]):
        return None
    paired = _quality(times, one, other, np.arange(len(other)))
    return paired if _whole(times, one, other, paired) else None


def _stream(times: CollectiveTimes, rows: Integers) -> CollectiveStream:
    return CollectiveStream(
        times.end_ns[rows], times.kind[rows], times.bytes[rows], times.step[rows]
    )


class _Quality(NamedTuple):
    """Quality of a pairing of two streams.

    `apart_ns` is the median end difference; `together` and `not_together` count the pairs that end
    together and those that do not.
    """

    places: Integers
    apart_ns: float
    together: int
    not_together: int

    def better_than(self, other: _Quality) -> bool:
        """Whether more pairs end together, as many with fewer that do not, or much closer ones."""
        if (self.together, -self.not_together) > (other.together, -other.not_together):
            return self.apart_ns <= max(2 * other.apart_ns, _SURE_NS)
        return self.together >= 0.5 * other.together and self.apart_ns < 0.5 * other.apart_ns


def _quality(times: CollectiveTimes, one: Integers, other: Integers, places: Integers) -> _Quality:
    rows = np.flatnonzero((places >= 0) & (places < len(one)))
    apart = times.end_ns[one[places[rows]]] - times.end_ns[other[rows]]
    change = np.abs(apart if _same_clock(times, one, other) else np.diff(apart))
    together = int((change <= ENDS_TOGETHER_NS).sum())
    apart_ns = float(np.median(change)) if len(change) else 0.0
    return _Quality(places, apart_ns, together, len(change) - together)


def _sure(quality: _Quality, one: Integers, other: Integers) -> bool:
    """Whether a pairing by constant lag is so close and so complete that no search is needed."""
    most = min(len(one), len(other)) - 1
    return quality.apart_ns <= _SURE_NS and quality.together >= most


def _whole(times: CollectiveTimes, one: Integers, other: Integers, quality: _Quality) -> bool:
    """Whether two streams of one named communicator pair off in order, though some ends differ.

    The sender of a small message or a broadcast leaves before its receivers: a complete pairing in
    order is better evidence than the nearest ends.
    """
    number = times.communicator[one[0]]
    named = number != NULL and number == times.communicator[other[0]]
    in_order = len(one) == len(other) and bool((quality.places == np.arange(len(other))).all())
    return bool(named and in_order and quality.together >= _MOSTLY_TOGETHER * len(other))


def lag_between(times: CollectiveTimes, one: Integers, other: Integers) -> int | None:
    """The offset in order between the collectives of two streams; None if they are unrelated.

    On one clock, collectives that belong together end together. Otherwise the end difference must
    hardly change from one collective to the next. Of several lags, the one with the least
    difference counts.
    """
    same_clock = _same_clock(times, one, other)
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
        if apart <= (ENDS_TOGETHER_NS if same_clock else _SURE_NS):
            return lag
        best = min(best or (apart, lag), (apart, lag), key=lambda each: each[0])
    return best[1] if best is not None and best[0] <= ENDS_TOGETHER_NS else None


def _alike(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    """Whether two streams run the same kinds, of the same sizes and in the same steps if known."""
    if (times.kind[one] != times.kind[other]).any():
        return False
    columns = (times.bytes, times.step)
    return not any(_contradict(each[one], each[other]).any() for each in columns)


def _contradict(one: Integers, other: Integers) -> Mask:
    """True where two values differ and both are known (−1: unknown)."""
    result: Mask = (one != other) & (one >= 0) & (other >= 0)
    return result


def _apart_ns(difference: Integers, *, same_clock: bool) -> float:
    """Median end difference; without a common clock, its median change between collectives."""
    return float(np.median(np.abs(difference if same_clock else np.diff(difference))))


def _matched(times: CollectiveTimes, of: _Growing) -> MatchedRows:
    order = sorted(range(len(of.members)), key=lambda each: of.members[each])
    low = min(int(each.min(initial=0)) for each in of.places)
    high = max(int(each.max(initial=0)) for each in of.places)
    rows = np.full((len(order), high - low + 1), -1, np.int64)
    for member, each in enumerate(order):
        rows[member, of.places[each] - low] = of.streams[each]
    members = tuple(of.members[each] for each in order)
    numbers = groups.different(times.communicator[[own[0] for own in of.streams if len(own)]])
    clocks = groups.different(times.clock[list(members)])
    return MatchedRows(members, rows, len(clocks) == 1, int(numbers[-1]))


def ends_together(ends: Integers, there: Mask, within_ns: int = ENDS_TOGETHER_NS) -> Mask:
    """True for the collectives that all members left within `within_ns`, on one clock.

    The sender of a small message or a broadcast need not wait for the receivers. `ends` and `there`
    (True where recorded) have shape (members, collectives).
    """
    last = np.where(there, ends, np.iinfo(np.int64).min).max(axis=0)
    first = np.where(there, ends, np.iinfo(np.int64).max).min(axis=0)
    together: Mask = last - first <= within_ns
    return together
