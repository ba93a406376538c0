"""Alignment of two streams of collectives by end time, where each recording may miss some.

A collective ends within microseconds on all its ranks, so two streams are in step where the times
between successive ends are equal. Such a window gives the difference of the clocks, first near it
and then farther away, and each collective is paired with the one that ends at its time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from traceview.records import record
from traceview.tables import Array, Integers, Mask, quantiles

_WINDOW, _LEAST_WINDOW, _ANCHORS, _BEST = 16, 6, 8, 3
_MOST_APART = 4_096
_THIRD = 3
ABSENT = np.iinfo(np.int64).min
"""In place of an index, for a collective that the other stream does not have."""


@record
class CollectiveStream:
    """Collectives of a stream, in order of start; `bytes` and `step` are −1 where unknown.

    Ends need not ascend: a collective may end while an earlier one still runs.
    """

    end_ns: Integers
    kind: Array
    bytes: Integers
    step: Integers

    def __len__(self) -> int:
        return len(self.end_ns)


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
        result: Integers = time + np.rint(self.offset_ns + self.slope * since).astype(np.int64)
        return result


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
            unrest = (quantiles.median(change_ns) + 1.0) / max(len(rows), 1) ** 2
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
                yield _Line(quantiles.median(apart[place]), 0.0, at), anchor, anchor + size


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
        middle, slope = quantiles.median(apart), drift(ends, apart)
        rest = apart - middle - slope * (ends - at)
        line = _Line(middle + quantiles.median(rest), slope, at)
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
    run = quantiles.median(since[-third:]) - quantiles.median(since[:third])
    rise = quantiles.median(apart[-third:] - apart[0]) - quantiles.median(apart[:third] - apart[0])
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
