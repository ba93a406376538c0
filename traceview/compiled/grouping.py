"""Grouping of rows by small integers, statistics per group, and joins, in a few passes of C code.

These functions need the compiled library: see `is_available`.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address, pointer
from traceview.tables import Array, Integers, Mask, RowNumbers

_FUNCTIONS = (
    "traceview_group",
    "traceview_follows",
    "traceview_mark_values",
    "traceview_mark_varied",
    "traceview_order",
    "traceview_group_statistics",
    "traceview_different_in_groups",
    "traceview_add_by_number",
    "traceview_match_keys",
)
MOST_DIFFERENT = 64
"""Exclusive upper bound of the values that `different_in_groups` can count."""


class _CStatistics(Structure):
    _fields_ = tuple(
        (name, c_void_p) for name in ("calls", "total", "least", "median", "most", "end", "room")
    )


def is_available() -> bool:
    """Whether the compiled library has these functions."""
    return library.has(*_FUNCTIONS)


def grouped(numbers: RowNumbers, span: int) -> tuple[Integers, Integers]:
    """The group of each row, and the first row of each group.

    Rows with equal numbers, from 0 to `span` - 1, form a group; groups are in order of number.
    """
    numbers, slots = np.ascontiguousarray(numbers), np.empty(span, np.int32)
    ids, first = np.empty(len(numbers), np.int64), np.empty(min(len(numbers), span) + 1, np.int64)
    count = c_int64()
    library.call(
        "traceview_group",
        pointer(numbers),
        c_int64(len(numbers)),
        c_int64(span),
        pointer(slots),
        pointer(ids),
        pointer(first),
        ctypes.byref(count),
    )
    first = first[: count.value]
    # The buffer has room for a group per row: a short result is copied, so that it can be freed.
    return ids, first if 2 * len(first) > len(numbers) else first.copy()


def follows(numbers: RowNumbers, span: int, digits: RowNumbers) -> bool:
    """Whether rows with equal `numbers`, from 0 to `span` - 1, also have equal `digits`."""
    numbers, digits = np.ascontiguousarray(numbers), np.ascontiguousarray(digits)
    slots, result = np.empty(span, np.int32), c_int64()
    library.call(
        "traceview_follows",
        pointer(numbers),
        pointer(digits),
        c_int64(len(numbers)),
        c_int64(span),
        pointer(slots),
        ctypes.byref(result),
    )
    return bool(result.value)


def marked(values: Array, least: int, span: int) -> Mask:
    """`span` flags: whether `least`, `least` + 1, … occur among the signed integers."""
    values, used = np.ascontiguousarray(values), np.zeros(span, bool)
    library.call(
        "traceview_mark_values",
        pointer(values),
        c_int64(values.itemsize),
        c_int64(len(values)),
        c_int64(least),
        pointer(used),
    )
    return used


def varied(ids: RowNumbers, count: int, values: RowNumbers) -> Mask:
    """True for those of `count` groups whose rows differ in their values."""
    ids, values = (np.ascontiguousarray(each, np.int32) for each in (ids, values))
    last, result = np.empty(count, np.int32), np.zeros(count, bool)
    library.call(
        "traceview_mark_varied",
        pointer(ids),
        pointer(values),
        c_int64(len(values)),
        pointer(last),
        pointer(result),
    )
    return result


def ordered_rows(values: Array, least: int, span: int) -> tuple[Integers, Integers]:
    """Stable argsort of signed integers from `least` to `least` + `span` - 1.

    The second array has, for each of these numbers, where the rows with it end.
    """
    values, places = np.ascontiguousarray(values), np.zeros(span, np.int64)
    order = np.empty(len(values), np.int64)
    library.call(
        "traceview_order",
        pointer(values),
        c_int64(values.itemsize),
        c_int64(len(values)),
        c_int64(least),
        c_int64(span),
        pointer(places),
        pointer(order),
    )
    return order, places


def added(numbers: Array, values: Array, count: int) -> Integers:
    """The sum of the values of each number below `count`; negative numbers have none.

    `numbers` are int32 or int64.
    """
    numbers, values = np.ascontiguousarray(numbers), np.ascontiguousarray(values, np.int64)
    sums = np.zeros(count, np.int64)
    library.call(
        "traceview_add_by_number",
        pointer(numbers),
        c_int64(numbers.itemsize),
        pointer(values),
        c_int64(len(values)),
        pointer(sums),
    )
    return sums


def matched(keys: Integers, wanted: Integers) -> RowNumbers | None:
    """For each wanted key, the first row of `keys` that has it, or −1; None if keys collide."""
    keys, wanted = np.ascontiguousarray(keys, np.int64), np.ascontiguousarray(wanted, np.int64)
    bits = max(len(keys), 1).bit_length() + 1
    slots, result = np.empty(1 << bits, np.int32), np.empty(len(wanted), np.int32)
    is_done = library.answer(
        "traceview_match_keys",
        pointer(keys),
        c_int64(len(keys)),
        pointer(wanted),
        c_int64(len(wanted)),
        pointer(slots),
        c_int64(bits),
        pointer(result),
    )
    return result if is_done else None


def statistics_of(ids: Integers, count: int, values: Integers) -> tuple[Integers, ...]:
    """Count, sum, minimum, median and maximum of the values of each of `count` groups.

    Every group must have a value.
    """
    ids, values = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(values, np.int64)
    result = tuple(np.empty(count, np.int64) for _ in range(5))
    end, room = np.empty(count, np.int64), np.empty(len(values), np.int64)
    of = _CStatistics(*map(address, (*result, end, room)))
    library.call(
        "traceview_group_statistics",
        pointer(ids),
        pointer(values),
        c_int64(len(values)),
        c_int64(count),
        ctypes.byref(of),
    )
    return result


def different_in_groups(ids: Integers, count: int, values: Array) -> Integers:
    """Number of distinct values in each of `count` groups; values are below MOST_DIFFERENT."""
    ids, values = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(values, np.uint8)
    marks, counts = np.zeros(count, np.uint64), np.empty(count, np.int64)
    library.call(
        "traceview_different_in_groups",
        pointer(ids),
        pointer(values),
        c_int64(len(values)),
        c_int64(count),
        pointer(marks),
        pointer(counts),
    )
    return counts
