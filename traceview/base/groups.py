"""Group and order rows by small integer keys: direct addressing where keys are dense.

Hashing and comparison sorts make trace tools slow. Ids in traces are nearly always dense, so a
table with one slot per key groups them in a few linear passes.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p
from functools import cached_property
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from traceview.base.compiled import library
from traceview.base.compiled.library import address
from traceview.base.tables import MOST_ROWS, Array, Integers, Mask, RowNumbers, row_numbers
from traceview.base.tables.arrays import in_order as in_order
from traceview.base.tables.arrays import overlapping_parts as overlapping_parts
from traceview.base.tables.arrays import parts as parts

NO_ROWS = np.zeros(0, np.int32)
_FEW = 4
"""Up to this many distinct values, comparing with each is faster than sorting."""
_SPAN = 1 << 16
"""Width of a value range whose counting-sort table stays in the CPU cache."""
_SHORT = 1 << 11
"""Below this length numpy sorts faster than a radix sort."""
_MOST_DISTINCT = 64
"""Exclusive upper bound of the values that C counts as bits of one word per group."""


def order_of(numbers: Array) -> Integers:
    """Stable argsort of mostly small integers."""
    least, most = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if most - least < _SPAN:
        return _counted_order(numbers, least, most - least + 1)[0]
    return np.argsort(numbers, kind="stable")


def _counted_order(numbers: Array, least: int, span: int) -> tuple[Integers, Integers]:
    """Stable argsort of integers from `least` to `least` + `span` - 1, and where each one's end."""
    numbers = _signed(numbers)
    ends, order = np.zeros(span, np.int64), np.empty(len(numbers), np.int64)
    given = (numbers, numbers.itemsize, len(numbers), least, span, ends, order)
    library.call("traceview_order", *given)
    return order, ends


def _signed(values: Array) -> Array:
    """Integers of a type that C tells by its size."""
    return values if values.dtype.kind == "i" else values.astype(np.int64)


def most_first(values: Integers) -> Integers:
    """Stable argsort in descending order."""
    if len(values) >= _SHORT:
        order, room = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
        if library.call("traceview_most_first", values, len(values), order, room):
            return order
    # Few values, or of too great a range for one key of value and row.
    return np.argsort(-values, kind="stable")


class MostFirst:
    """The order of `most_first`, of which the first rows are found without sorting all."""

    def __init__(self, values: Integers) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def every(self) -> Integers:
        """All rows in order."""
        return most_first(self._values)

    def first(self, count: int) -> Integers:
        """The first rows in order."""
        values, others = self._values, len(self._values) - count
        if not count:
            return np.zeros(0, np.int64)
        if others <= 0:
            return self.every
        # Among the least of them there may be more of equal value.
        rows = np.flatnonzero(values >= np.partition(values, others)[others])
        return rows[most_first(values[rows])[:count]]


class Groups(NamedTuple):
    """`ids`: group number of each row, 0 to count−1; `first`: the first row of each group."""

    ids: Integers
    first: Integers

    @property
    def size(self) -> int:
        return len(self.first)


def different(values: Array) -> Array:
    """The distinct values of an integer array, ascending, in its type.

    Addressed directly where they are dense: `np.unique` takes ten times as long, and imports
    numpy's masked arrays.
    """
    if not len(values) or values.strides == (0,):
        return values[:1].copy()
    least, most = int(values.min()), int(values.max())
    if most - least > 4 * len(values) + 1024:
        ordered = np.sort(values)
        distinct: Array = ordered[np.append(True, ordered[1:] != ordered[:-1])]
        return distinct
    used = marked(values, most - least + 1, least)
    return (np.flatnonzero(used) + least).astype(values.dtype)


def marked(values: Array, size: int, least: int = 0) -> Mask:
    """`size` flags: whether `least`, `least` + 1, … occur among the integers, all of this range."""
    values, used = _signed(values), np.zeros(size, bool)
    library.call("traceview_mark_values", values, values.itemsize, len(values), least, used)
    return used


def isin(values: Array, wanted: Array) -> Mask:
    """`np.isin` of integer arrays; numpy's imports its masked arrays, which takes 30 ms."""
    if not len(wanted):
        return np.zeros(len(values), bool)
    known = different(wanted)
    place = np.searchsorted(known, values)
    result: Mask = known[np.minimum(place, len(known) - 1)] == values
    return result


_EVERY_ROW = WeakValueDictionary[int, RowNumbers]()


def every_row(count: int) -> RowNumbers:
    """The numbers of so many rows, ascending; all who ask share one array, which is read-only."""
    rows = _EVERY_ROW.get(count)
    if rows is None:
        rows = _EVERY_ROW[count] = np.arange(count, dtype=np.int32)
        rows.flags.writeable = False
    return rows


def rows_of(values: Array) -> dict[int, RowNumbers]:
    """The rows of each distinct value, values and rows ascending: one sort for all of them."""
    every = different(values).tolist()
    if len(every) == 1:
        return {every[0]: every_row(len(values))}
    if len(every) <= _FEW:
        return {value: row_numbers(np.flatnonzero(values == value)) for value in every}
    least, span = every[0], every[-1] - every[0] + 1
    if span < _SPAN:
        order, ends = _counted_order(values, least, span)
        ends = ends[np.asarray(every) - least]
    else:
        order = order_of(values)
        ends = np.flatnonzero(np.append(opens(values[order])[1:], True)) + 1
    return dict(zip(every, np.split(row_numbers(order), ends[:-1]), strict=True))


def group(*keys: Array) -> Groups:
    """Rows with equal keys get equal ids; groups are ordered by their keys."""
    rows = len(keys[0])
    if not rows:
        return Groups(np.zeros(0, np.int64), np.zeros(0, np.int64))
    most = min(4 * rows + 1024, MOST_ROWS)
    # A constant key separates no rows.
    first, *others = [key for key in keys if key.strides != (0,)] or keys[:1]
    number, span = _numbers(first, most)
    for key in others:
        digit, base = _numbers(key, most)
        if span * base > most and _follows(number, span, digit):
            continue
        if span * base > most:
            (number, span), (digit, base) = _renumbered(number, span), _renumbered(digit, base)
        joint = number * np.int64(base) if span * base > most else number * number.dtype.type(base)
        joint += digit
        number, span = _numbers(joint, most)
        del joint, digit
    slots, found = np.empty(span, np.int32), c_int64()
    ids, first = np.empty(rows, np.int64), np.empty(min(rows, span) + 1, np.int64)
    library.call("traceview_group", number, rows, span, slots, ids, first, found)
    first = first[: found.value]
    # The buffer has room for a group per row: a short result is copied, so that it can be freed.
    return Groups(ids, first if 2 * len(first) > rows else first.copy())


def _follows(number: Array, span: int, digit: Array) -> bool:
    """Whether equal numbers always have equal digits, so that the digit separates no more rows."""
    slots, result = np.empty(span, np.int32), c_int64()
    library.call("traceview_follows", number, digit, len(number), span, slots, result)
    return bool(result.value)


def _numbers(key: Array, most: int) -> tuple[RowNumbers, int]:
    """Keys as numbers from 0, in key order, and the exclusive bound of these, at most `most`."""
    least = int(key.min())
    span = int(key.max()) - least + 1
    if span > most:
        distinct, ids = np.unique(key, return_inverse=True)
        return row_numbers(ids), len(distinct)
    if not least and key.dtype == np.int32:
        return key, span
    # Wrapped or not, the difference is less than `span`.
    return np.subtract(key, key.dtype.type(least), dtype=np.int32, casting="unsafe"), span


def _renumbered(number: Array, span: int) -> tuple[Array, int]:
    """The numbers below `span`, renumbered without gaps, and how many distinct ones there are."""
    used = np.zeros(span, bool)
    used[number] = True
    place = np.cumsum(used, dtype=np.int32)
    place -= 1
    return place[number], int(used.sum())


class _CStatistics(Structure):
    _fields_ = tuple(
        (name, c_void_p) for name in ("calls", "total", "least", "median", "most", "end", "room")
    )


class Stats(NamedTuple):
    """Statistics per group; the median of an even count is the rounded mean of the middle two."""

    calls: Integers
    total: Integers
    least: Integers
    median: Integers
    most: Integers


def stats(groups: Groups, values: Integers) -> Stats:
    """Count, sum, minimum, median and maximum of each group."""
    *result, end = (np.empty(groups.size, np.int64) for _ in range(6))
    room = np.empty(len(values), np.int64)
    of = _CStatistics(*map(address, (*result, end, room)))
    library.call("traceview_group_statistics", groups.ids, values, len(values), groups.size, of)
    return Stats(*result)


def ordered(groups: Groups, values: Integers) -> Integers:
    """The values sorted within their groups, groups in order.

    Sorting plain integers is many times faster than sorting by two keys.
    """
    if not len(values):
        return values
    least = int(values.min())
    bits = (int(values.max()) - least).bit_length()
    if groups.size.bit_length() + bits > 62:
        return values[np.lexsort((values, groups.ids))]
    # In place, as at ten million rows each copy takes 80 MB. Shifts are faster than products.
    key = groups.ids << bits
    key += values
    key -= least
    if len(key) < _SHORT:
        key.sort()
    else:
        library.call("traceview_sort", key, np.empty_like(key), len(key), 0)
    key &= (1 << bits) - 1
    key += least
    return key


def medians(ids: Integers, count: int, values: Integers) -> npt.NDArray[np.float64]:
    """Median of the values of each of `count` groups, 0 for an empty group."""
    if not len(values):
        return np.zeros(count)
    ranked = ordered(Groups(ids, np.zeros(count, np.int64)), values)
    size = np.bincount(ids, minlength=count)
    first = np.cumsum(size) - size
    middle = (first + each for each in ((size - 1) // 2, size // 2))
    low, high = (ranked[np.clip(place, 0, len(values) - 1)] for place in middle)
    return np.where(size > 0, low / 2 + high / 2, 0.0)


def doubled_deviation(medians: npt.NDArray[np.float64], values: Integers) -> Integers:
    """Twice the absolute deviation of each value from its median; doubled to stay an integer."""
    off: Integers = np.abs(2 * values - (2 * medians).astype(np.int64))
    return off


def quantile(ids: Integers, count: int, values: Integers, share: float) -> npt.NDArray[np.float64]:
    """Quantile of the values of each of `count` groups, 0 for an empty group.

    `share` is 0 to 1; interpolates linearly, as numpy does.
    """
    if not len(values):
        return np.zeros(count)
    ranked = ordered(Groups(ids, np.zeros(count, np.int64)), values)
    size = np.bincount(ids, minlength=count)
    place = np.maximum(size - 1, 0) * share
    low = np.floor(place).astype(np.int64)
    first = np.cumsum(size) - size
    one = ranked[np.minimum(first + low, len(values) - 1)]
    other = ranked[np.minimum(first + np.minimum(low + 1, size - 1), len(values) - 1)]
    part, way = place - low, other - one
    return np.where(size > 0, np.where(part < 0.5, one + way * part, other - way * (1 - part)), 0.0)


def opens(*keys: Array) -> Mask:
    """True for the first row and rows that differ from the previous one in any key."""
    result = np.ones(len(keys[0]), bool)
    for place, key in enumerate(keys):
        other = key[1:] != key[:-1]
        result[1:] = result[1:] | other if place else other
    return result


def sums(groups: Groups, values: Array) -> Integers:
    """Exact int64 sum of each group."""
    return added(groups.ids, values, groups.size)


def added(numbers: Array, values: Array, size: int) -> Integers:
    """Exact int64 sum of the values of each number from 0 to size − 1, without those below 0."""
    if numbers.dtype not in (np.int32, np.int64):
        numbers = numbers.astype(np.int32)
    result = np.zeros(size, np.int64)
    given = (numbers, numbers.itemsize, values, len(values), result)
    library.call("traceview_add_by_number", *given)
    return result


def count(groups: Groups, mine: Mask | None = None) -> Integers:
    """Number of rows per group, optionally only those in a mask."""
    ids = groups.ids if mine is None else groups.ids[np.flatnonzero(mine)]
    return np.bincount(ids, minlength=groups.size).astype(np.int64, copy=False)


def frequencies(values: Array, size: int) -> Integers:
    """How often each number from 0 to size − 1 occurs; `np.bincount` would widen all values."""
    result = np.zeros(size, np.int64)
    for part in parts(len(values), size):
        result += np.bincount(values[part], minlength=size)
    return result


def varied(ids: RowNumbers, size: int, values: RowNumbers) -> Mask:
    """True for those of `size` groups, by number, whose rows differ in their values."""
    last, result = np.empty(size, np.int32), np.zeros(size, bool)
    library.call("traceview_mark_varied", ids, values, len(values), last, result)
    return result


def distinct(groups: Groups, values: Array) -> Integers:
    """Number of distinct values in each group."""
    if (values[groups.first][groups.ids] == values).all():
        return np.ones(groups.size, np.int64)
    if 0 <= int(values.min()) <= int(values.max()) < _MOST_DISTINCT:
        bits, counts = np.zeros(groups.size, np.int64), np.empty(groups.size, np.int64)
        given = (groups.ids, values, len(values), groups.size, bits, counts)
        library.call("traceview_different_in_groups", *given)
        return counts
    pairs = group(groups.ids, values)
    return np.bincount(groups.ids[pairs.first], minlength=groups.size).astype(np.int64)
