"""Statistics of groups of integers, each group's beside each other; in C code.

Only where there is a compiled library: `is_available`.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address, pointer
from traceview.tables import Array, Integers

_FUNCTIONS = ("traceview_group_statistics", "traceview_different_in_groups")
MOST_DIFFERENT = 64
"""The numbers of which a group's different ones are counted are smaller."""


class _CStatistics(Structure):
    _fields_ = tuple(
        (name, c_void_p) for name in ("calls", "total", "least", "median", "most", "end", "room")
    )


def is_available() -> bool:
    """Whether the compiled library has these functions."""
    return library.has(*_FUNCTIONS)


def statistics_of(ids: Integers, count: int, values: Integers) -> tuple[Integers, ...]:
    """Count, sum, minimum, median and maximum of the values of each of `count` groups.

    Every group has a value.
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
    """How many different values each of `count` groups has, of numbers below MOST_DIFFERENT."""
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
