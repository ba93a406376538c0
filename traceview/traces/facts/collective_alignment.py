"""Alignment of two streams of collectives, where each may miss some, and how well they fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from traceview.base.intervals import Timed
from traceview.base.records import record
from traceview.base.tables import NULL, Array, ColumnRecord, Integers, Mask, arrays

# Alignment of two streams of collectives by end time, where each recording may miss some.
#
# A collective ends within microseconds on all its ranks, so two streams are in step where the
# times between successive ends are equal. Such a window gives the difference of the clocks, first
# near it and then farther away, and each collective is paired with the one that ends at its time.

_WINDOW, _LEAST_WINDOW, _ANCHORS, _BEST = 16, 6, 8, 3
_MOST_APART = 4_096
_THIRD = 3
ABSENT = np.iinfo(np.int64).min
"""In place of an index, for a collective that the other stream does not have."""


@record
class CollectiveStream(ColumnRecord):
    """Collectives of a stream, in order of start; `bytes` and `step` are −1 where unknown.

    Ends need not ascend: a collective may end while an earlier one still runs.
    """

    end_ns: Integers
    kind: Array
    bytes: Integers
    step: Integers


@record
class _Line:
    """Difference between the clocks of two streams: `offset_ns` at time `at`, drifting by `slope`.

    `on_other` converts times of one clock to the other.
    """

    offset_ns: float
    slope: float
    at: int

    def on_other(self, time: Integers) -> Integers:
        since = (time - self.at).astype(np.float64)
        return time + np.rint(self.offset_ns + self.slope * since).astype(np.int64)


def places_in(
    one: CollectiveStream, other: CollectiveStream, within_ns: int, *, same_clock: bool
) -> Integers | None:
    """The index in `one` of each collective of `other`; ABSENT where `one` does not have it.

    Indices may lie before the first or after the last collective of `one`. None where the streams
    are nowhere in step.
    """
    best: tuple[float, Integers] | None = None
    for line, first, last in _starts(one, other, within_ns, same_clock=same_clock):
        extended = _extended(one, other, line, first, last, within_ns)
        if extended is not None:
            # The best has many pairs, whose end difference hardly changes from one to the next.
            rows = np.flatnonzero(extended != ABSENT)
            change_ns = np.abs(np.diff(one.end_ns[extended[rows]] - other.end_ns[rows]))
            unrest = (arrays.median(change_ns) + 1.0) / max(len(rows), 1) ** 2
            best = (unrest, extended) if best is None or unrest < best[0] else best
    return None if best is None else _filled(one, other, best[1])


def _starts(
    one: CollectiveStream, other: CollectiveStream, within_ns: int, *, same_clock: bool
) -> Iterator[tuple[_Line, int, int]]:
    """Yield initial lines, each with the range [first, last) of `other` that it was taken from."""
    shorter = min(len(one), len(other))
    # A short stream must leave room for windows on either side of the lost collectives.
    size = min(_WINDOW, shorter, max(_LEAST_WINDOW, shorter // _THIRD))
    if same_clock:
        yield _Line(0.0, 0.0, int(other.end_ns[0])), 0, len(other)
        return
    ends, kinds = (
        np.lib.stride_tricks.sliding_window_view(each, size) for each in (one.end_ns, one.kind)
    )
    anchors = np.linspace(0, len(other) - size, _ANCHORS).astype(np.int64)
    for anchor in np.unique(anchors).tolist():
        low = max(0, anchor - abs(len(one) - len(other)) - _MOST_APART)
        high = anchor + abs(len(one) - len(other)) + _MOST_APART + 1
        apart = ends[low:high] - other.end_ns[anchor : anchor + size]
        spread = np.ptp(apart, axis=1)
        same = (kinds[low:high] == other.kind[anchor : anchor + size]).all(axis=1)
        first = np.arange(low, low + len(apart))
        same &= alike(one, first, other, np.full(len(first), anchor))
        spread = np.where(same, spread, np.iinfo(np.int64).max)
        for place in np.argsort(spread, kind="stable")[:_BEST].tolist():
            if spread[place] <= 2 * within_ns:
                at = int(other.end_ns[anchor + size // 2])
                yield _Line(arrays.median(apart[place]), 0.0, at), anchor, anchor + size


def _extended(
    one: CollectiveStream,
    other: CollectiveStream,
    line: _Line,
    first: int,
    last: int,
    within_ns: int,
) -> Integers | None:
    """Places along a line that is fitted anew as its range grows to all of `other`.

    None where a range has fewer than two pairs.
    """
    while True:
        rows = np.arange(first, last)
        places = _nearest(one, other, rows, line, within_ns)
        paired = places != ABSENT
        if int(paired.sum()) < 2:
            return None
        # The medians of the first and last third of the end differences fit the line.
        ends = other.end_ns[rows[paired]]
        at = int(ends[len(ends) // 2])
        apart = (one.end_ns[places[paired]] - ends).astype(np.int64)
        middle, slope = arrays.median(apart), drift(ends, apart)
        rest = apart - middle - slope * (ends - at)
        line = _Line(middle + arrays.median(rest), slope, at)
        if last - first == len(other):
            return _nearest(one, other, np.arange(len(other)), line, within_ns)
        length = last - first
        first, last = max(0, first - length), min(len(other), last + length)


def _nearest(
    one: CollectiveStream, other: CollectiveStream, rows: Integers, line: _Line, within_ns: int
) -> Integers:
    """The index in `one` of the collective that ends with each of these rows of `other`.

    Indices ascend; ABSENT where no collective of `one` ends within `within_ns`.
    """
    due = line.on_other(other.end_ns[rows])
    by_end = np.argsort(one.end_ns, kind="stable")
    later = np.clip(np.searchsorted(one.end_ns[by_end], due), 1, max(len(one) - 1, 1))
    before, after = by_end[later - 1], by_end[np.minimum(later, len(one) - 1)]
    nearer = np.abs(one.end_ns[before] - due) <= np.abs(one.end_ns[after] - due)
    place = np.where(nearer, before, after)
    off = np.abs(one.end_ns[place] - due)
    good = (off <= within_ns) & alike(one, place, other, rows)
    order = np.lexsort((off, place))
    first = np.ones(len(rows), bool)
    chosen = order[good[order]]
    first[chosen[1:][place[chosen[1:]] == place[chosen[:-1]]]] = False
    good &= first
    highest = np.maximum.accumulate(np.where(good, place, -1))
    good[1:] &= place[1:] > highest[:-1]
    return np.where(good, place, ABSENT)


def alike(one: CollectiveStream, places: Integers, other: CollectiveStream, rows: Integers) -> Mask:
    """True for the pairs of equal kind whose sizes and steps are equal or unknown."""
    equal: Mask = one.kind[places] == other.kind[rows]
    for of_one, of_other in ((one.bytes, other.bytes), (one.step, other.step)):
        value, other_value = of_one[places], of_other[rows]
        equal &= (value == other_value) | (value < 0) | (other_value < 0)
    return equal


def drift(ends: Integers, apart: Integers) -> float:
    """How fast `apart` grows with `ends`, by the medians of their first and last third."""
    third = len(ends) // _THIRD
    if not third:
        return 0.0
    since: npt.NDArray[np.float64] = (ends - ends[0]).astype(np.float64)
    run = arrays.median(since[-third:]) - arrays.median(since[:third])
    rise = arrays.median(apart[-third:] - apart[0]) - arrays.median(apart[:third] - apart[0])
    return float(rise / run) if run > 0 else 0.0


def _filled(one: CollectiveStream, other: CollectiveStream, places: Integers) -> Integers:
    """`places` with further pairs between and beside the given ones, whatever their ends.

    They must agree in number and kind. The sender of a message may leave before its receiver, so
    that their ends differ.
    """
    paired = np.flatnonzero(places != ABSENT)
    rows = np.arange(len(other))
    before = np.searchsorted(paired, rows, side="right") - 1
    after = np.minimum(before + 1, len(paired) - 1)
    low, high = paired[np.maximum(before, 0)], paired[after]
    by_low = places[low] + rows - low
    in_step = (
        (places[high] - places[low] == high - low) | (before < 0) | (before == len(paired) - 1)
    )
    inside = (by_low >= 0) & (by_low < len(one))
    fits = ~inside
    fits[inside] = alike(one, by_low[inside], other, rows[inside])
    return np.where(places != ABSENT, places, np.where(in_step & fits, by_low, ABSENT))


# How well two streams of collectives fit: which of their collectives are the same ones.
#
# The streams are of different GPUs. They fit if they run the same kinds in the same order and
# their collectives end together. One may lag behind the other, or lack some collectives.

ENDS_TOGETHER_NS = 50_000
"""Kernels of one collective were measured to end within 5 µs of each other on one machine."""
IN_STEP_NS, _SURE_NS = 10_000, 3_000
"""Bounds on the median change of the clock difference between collectives of one group: above the
first, streams do not match; up to the second, they surely do."""
_MOST_DRIFT = 2e-4
"""Clocks of machines run up to 100 ppm too fast or too slow."""
_LEAST_TIED, _TIED = 48, 1.0
"""Differences of ends that belong together scatter about a line: their median deviation from it is
0.7 of their median change from one to the next. Those of unrelated streams add up: simulated with
independent noise, 48 collectives have 0.99 or more in 19 of 20 cases, 116 have 1.6."""
_MOST_LAG = 64
_MARGIN = 8
_LEAST_PAIRED_FRACTION = 0.5
_MOSTLY_TOGETHER = 0.75
_MOST_CONTRADICTING = 0.5
_FEW = 3


@record
class CollectiveTimes(Timed):
    """Collectives of several GPUs, one row per collective and GPU.

    `member` numbers the GPU, `lane` a stream of it, `kind` is equal for equal kinds. `is_message`
    is True for messages, or parts of one collective that NCCL runs as messages; `direction` is 1
    for a message that is sent, −1 for one that is received, 0 for both or unknown. `bytes` are
    those that all ranks of the collective must agree on, −1 where unknown, `communicator` is NULL
    where unknown, `step` is the number of the step, equal on all ranks, −1 where unknown. `clock`
    has one entry per member: times of members with equal clocks are comparable.
    """

    member: Array
    lane: Array
    start_ns: Integers
    end_ns: Integers
    kind: Array
    is_message: Mask
    direction: Integers
    bytes: Integers
    communicator: Integers
    step: Integers
    clock: Integers


def without_steps(times: CollectiveTimes) -> CollectiveTimes:
    """The collectives with unknown steps, for recordings that number steps differently."""
    return replace(times, step=np.full(len(times.step), -1))


def fit(
    times: CollectiveTimes, one: Integers, other: Integers, *, search: bool
) -> tuple[float, Integers] | None:
    """Median end difference of two streams in ns, and the index in `one` of each row of `other`.

    The streams may differ by a constant lag. Where their ends differ even then, and if `search` is
    True, collectives that only one recording has are searched for. None where the streams do not
    fit.
    """
    best = _fit_of_all(times, one, other, search=search)
    return None if best is None else (best.apart_ns, _trimmed(times, one, other, best.places))


def _trimmed(times: CollectiveTimes, one: Integers, other: Integers, places: Integers) -> Integers:
    """`places` without first and last pairs that do not belong together.

    Where one recording lost a collective and the other ends with it, the order alone pairs it with
    the next one: by the pair beside it, it ends nearer to another collective.
    """
    ends, other_ends = times.end_ns[one], times.end_ns[other]
    paired = np.flatnonzero((places >= 0) & (places < len(one)))
    result = places.copy()
    for inwards in (paired, paired[::-1]):
        for row, inner in pairwise(inwards.tolist()):
            place = int(places[row])
            apart = int(ends[places[inner]] - other_ends[inner])
            if _is_nearest(ends, place, other_ends[row] + apart) and _is_nearest(
                other_ends, row, ends[place] - apart
            ):
                break
            result[row] = ABSENT
    return result


def _is_nearest(ends: Integers, place: int, due_ns: int) -> bool:
    """Whether no collective beside this one ends nearer to the time that is due."""
    around = np.abs(ends[max(place - 1, 0) : place + 2] - due_ns)
    return bool(np.abs(ends[place] - due_ns) <= around.min())


def _fit_of_all(
    times: CollectiveTimes, one: Integers, other: Integers, *, search: bool
) -> _Quality | None:
    """The same before pairs at the edges are checked."""
    whole = _pairs_off(times, one, other)
    if whole is not None:
        return whole
    lag = lag_between(times, one, other)
    by_lag = None if lag is None else _quality(times, one, other, np.arange(len(other)) - lag)
    shorter = min(len(one), len(other))
    if by_lag is not None:
        # So close and so complete that no search is needed.
        sure = by_lag.apart_ns <= _SURE_NS and by_lag.together >= shorter - 1
        tied = are_tied(times, one, other, by_lag.places)
        if not search or sure or tied or _whole(times, one, other, by_lag):
            return by_lag
    if not search or shorter < _FEW:
        return by_lag
    first, second = (
        CollectiveStream(times.end_ns[rows], times.kind[rows], times.bytes[rows], times.step[rows])
        for rows in (one, other)
    )
    one_clock = share_clock(times, one, other)
    places = places_in(first, second, ENDS_TOGETHER_NS, same_clock=one_clock)
    by_search = None if places is None else _quality(times, one, other, places)
    if by_search is None or by_search.together < max(_LEAST_PAIRED_FRACTION * shorter, _FEW - 1):
        return by_lag
    return by_search if by_lag is None or by_search.better_than(by_lag) else by_lag


def _pairs_off(times: CollectiveTimes, one: Integers, other: Integers) -> _Quality | None:
    """The pairs by position, where streams of one named communicator agree in all but their steps.

    A rank whose steps were inferred may begin each of them a few collectives sooner than another.
    None otherwise, and for streams without a common clock that also agree when shifted by one.
    """
    if not are_in_order(without_steps(times), one, other):
        return None
    contradicting = _contradict(times.step[one], times.step[other])
    if np.mean(contradicting) > _MOST_CONTRADICTING:
        return None
    one_clock = share_clock(times, one, other)
    if not one_clock and are_alike(without_steps(times), one[1:], other[:-1]):
        return None
    paired = _quality(times, one, other, np.arange(len(other)))
    if not _whole(times, one, other, paired):
        return None
    off = ends_off_ns(times, one, other)
    if not one_clock:
        # The change to the pair before or after it, whichever is less.
        off = np.minimum(np.append(off, off[-1:]), np.append(off[:1], off))
    # Of a pair of different steps that does not end together either, each recording lacks the
    # collective that the other one has.
    strangers = contradicting & (off > ENDS_TOGETHER_NS)
    return paired._replace(places=np.where(strangers, ABSENT, paired.places))


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
    change = ends_off_ns(times, one[places[rows]], other[rows])
    together = int((change <= ENDS_TOGETHER_NS).sum())
    apart_ns = float(np.median(change)) if len(change) else 0.0
    return _Quality(places, apart_ns, together, len(change) - together)


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
    same_clock = share_clock(times, one, other)
    most = min(_MOST_LAG, abs(len(one) - len(other)) + _MARGIN)
    least = max(_LEAST_PAIRED_FRACTION * min(len(one), len(other)), 1 if same_clock else _FEW)
    best: tuple[float, int] | None = None
    for lag in sorted(range(-most, most + 1), key=abs):
        first, last = max(0, -lag), min(len(one), len(other) - lag)
        if last - first < least:
            continue
        a, b = one[first:last], other[first + lag : last + lag]
        if not are_alike(times, a, b):
            continue
        apart = float(np.median(ends_off_ns(times, a, b)))
        if apart <= (ENDS_TOGETHER_NS if same_clock else _SURE_NS):
            return lag
        best = min(best or (apart, lag), (apart, lag), key=lambda pair: pair[0])
    # Whether they are the same collectives is for others to judge.
    return best[1] if best is not None and best[0] <= 2 * ENDS_TOGETHER_NS else None


def are_alike(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    """Whether two streams run the same kinds, of the same sizes and in the same steps if known.

    What one of them sends, the other receives.
    """
    if (times.kind[one] != times.kind[other]).any():
        return False
    if (times.direction[one] * times.direction[other] > 0).any():
        return False
    columns = (times.bytes, times.step)
    return not any(_contradict(column[one], column[other]).any() for column in columns)


def _contradict(one: Integers, other: Integers) -> Mask:
    """True where two values differ and both are known (−1: unknown)."""
    return (one != other) & (one >= 0) & (other >= 0)


def ends_off_ns(times: CollectiveTimes, one: Integers, other: Integers) -> Integers:
    """End difference of each pair in ns; without a common clock, its changes from pair to pair.

    A constant drift of the clocks is no change.
    """
    ends, other_ends = times.end_ns[one], times.end_ns[other]
    apart = ends - other_ends
    if len(apart) and not share_clock(times, one, other):
        slope = min(max(drift(other_ends, apart), -_MOST_DRIFT), _MOST_DRIFT)
        apart = np.rint(np.diff(apart) - slope * np.diff(other_ends)).astype(np.int64)
    return np.abs(apart)


def are_tied(times: CollectiveTimes, one: Integers, other: Integers, places: Integers) -> bool:
    """Whether two streams pair off in order, and ends stay as far apart as they are with scatter.

    Streams of different groups, each at its own pace, drift apart.
    """
    whole = len(one) == len(other) >= _LEAST_TIED and bool((places == np.arange(len(one))).all())
    if not whole:
        return False
    ends = times.end_ns[other]
    apart = times.end_ns[one] - ends
    apart = apart - apart[0] - drift(ends, apart) * (ends - ends[0])
    scatter = arrays.median(np.abs(apart - arrays.median(apart)))
    return scatter <= _TIED * arrays.median(np.abs(np.diff(apart)))


_LEAST_WAITED, _WAITED_NS, _STAYS = 6, 100_000, 0.1
"""In so many collectives one stream begins 100 µs sooner or later against the other than in the one
before, and they end a tenth of that apart at most: who came first waited. Four V100 ended up to 140
µs apart where one of them had begun 18 ms later; streams of different groups carry such a shift to
the end."""


def wait_for_each_other(
    times: CollectiveTimes, one: Integers, other: Integers, places: Integers
) -> bool:
    """Whether two streams end together whichever of them begins a collective late."""
    rows = np.flatnonzero((places >= 0) & (places < len(one)))
    a, b = one[places[rows]], other[rows]
    begins, ends = (np.abs(np.diff(each[a] - each[b])) for each in (times.start_ns, times.end_ns))
    waited = begins >= _WAITED_NS
    stays = ends[waited] <= _STAYS * begins[waited]
    return len(stays) >= _LEAST_WAITED and bool(np.mean(stays) >= _MOSTLY_TOGETHER)


def are_in_order(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    """Whether two streams hold equally many collectives, alike one by one."""
    return len(one) == len(other) and are_alike(times, one, other)


def share_clock(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    return bool(times.clock[times.member[one[0]]] == times.clock[times.member[other[0]]])
