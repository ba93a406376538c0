"""Radix sort of integers, and the number of open intervals over time."""

from __future__ import annotations

import ctypes
from ctypes import c_int64

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.tables import Integers

_FEW = 1 << 11
"""Below this length numpy sorts faster than a radix sort."""


def sort(numbers: Integers, first_bit: int = 0) -> None:
    """Sort numbers ≥ 0 in place. Their bits below `first_bit` already ascend with the row."""
    if len(numbers) < _FEW or not library.has("traceview_sort"):
        numbers.sort()
        return
    room = np.empty(len(numbers), np.int64)
    library.call(
        "traceview_sort",
        pointer(numbers),
        pointer(room),
        c_int64(len(numbers)),
        c_int64(first_bit),
    )


def most_first(values: Integers) -> Integers | None:
    """Stable argsort in descending order; None for few values, and those of too great a range."""
    if len(values) < _FEW or not library.has("traceview_most_first"):
        return None
    values = np.ascontiguousarray(values, np.int64)
    order, room = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    given = (pointer(values), c_int64(len(values)), pointer(order), pointer(room))
    return order if library.answer("traceview_most_first", *given) else None


def running(begun: Integers, ended: Integers) -> tuple[Integers, Integers]:
    """Each time at which an interval begins or ends, and how many are open from then on.

    `begun` and `ended` are their start and end times, each ascending.
    """
    changes = len(begun) + len(ended)
    if not library.has("traceview_running"):
        # One integer per change: the time, and whether it is a begin.
        change = np.sort(np.concatenate((ended << 1, begun << 1 | 1)), kind="stable")
        value = np.cumsum(((change & 1) << 1) - 1)
        time = change >> 1
        last = np.append(time[1:] != time[:-1], True)[:changes]
        return time[last], value[last]
    times, values = np.empty(changes, np.int64), np.empty(changes, np.int64)
    begun, ended = np.ascontiguousarray(begun, np.int64), np.ascontiguousarray(ended, np.int64)
    count = c_int64()
    library.call(
        "traceview_running",
        pointer(begun),
        c_int64(len(begun)),
        pointer(ended),
        c_int64(len(ended)),
        pointer(times),
        pointer(values),
        ctypes.byref(count),
    )
    return times[: count.value], values[: count.value]
