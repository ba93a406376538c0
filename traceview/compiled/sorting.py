"""Integers sorted in a few passes over their digits, and two ascending columns merged."""

from __future__ import annotations

import ctypes
from ctypes import c_int64

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.tables import Integers

_FEW = 1 << 11
"""So few are sorted by numpy in less time than it takes to count their digits."""


def sort(numbers: Integers, first_bit: int = 0) -> None:
    """Sort numbers ≥ 0 in place. Below `first_bit`, they ascend with their rows."""
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


def running(begun: Integers, ended: Integers) -> tuple[Integers, Integers]:
    """Each time at which something begins or ends, and how many have begun and not ended then.

    `begun` and `ended` ascend.
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
