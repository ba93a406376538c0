"""How well two streams of collectives fit: which of their collectives are the same ones.

The streams are of different GPUs. They fit if they run the same kinds in the same order and their
collectives end together. One may lag behind the other, or lack some collectives.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from traceview.facts.collectives.alignment import ABSENT, CollectiveStream, drift, places_in
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import NULL, Array, Integers, Mask

ENDS_TOGETHER_NS = 50_000
"""Kernels of one collective were measured to end within 5 µs of each other on one machine."""
IN_STEP_NS, _SURE_NS = 10_000, 3_000
"""Bounds on the median change of the clock difference between collectives of one group: above the
first, streams do not match; up to the second, they surely do."""
_MOST_DRIFT = 2e-4
"""Clocks of machines run up to 100 ppm too fast or too slow."""
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
        if not search or sure or _whole(times, one, other, by_lag):
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
    return best[1] if best is not None and best[0] <= ENDS_TOGETHER_NS else None


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
    result: Mask = (one != other) & (one >= 0) & (other >= 0)
    return result


def ends_off_ns(times: CollectiveTimes, one: Integers, other: Integers) -> Integers:
    """End difference of each pair in ns; without a common clock, its changes from pair to pair.

    A constant drift of the clocks is no change.
    """
    ends, other_ends = times.end_ns[one], times.end_ns[other]
    apart = ends - other_ends
    if len(apart) and not share_clock(times, one, other):
        slope = min(max(drift(other_ends, apart), -_MOST_DRIFT), _MOST_DRIFT)
        apart = np.rint(np.diff(apart) - slope * np.diff(other_ends)).astype(np.int64)
    off: Integers = np.abs(apart)
    return off


def are_in_order(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    """Whether two streams hold equally many collectives, alike one by one."""
    return len(one) == len(other) and are_alike(times, one, other)


def share_clock(times: CollectiveTimes, one: Integers, other: Integers) -> bool:
    return bool(times.clock[times.member[one[0]]] == times.clock[times.member[other[0]]])
