"""Columns of integers that hold few different values, numbered in one pass of C code."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address, pointer
from traceview.tables import Array, Integers, RowNumbers

_BITS = 16
_MOST = 1 << (_BITS - 1)
"""So many different values, and the hash table of them, stay in the cache of a core."""


class _CValues(Structure):
    _fields_ = (
        ("values", c_void_p),
        ("most", c_int64),
        ("count", c_int64),
        ("slots", c_void_p),
        ("bits", c_int64),
    )


def few_values(column: Array) -> tuple[Integers, RowNumbers] | None:
    """The different values in order of appearance, and for each row the number of its value.

    Of signed integers. None if there are many different ones, or no compiled library.
    """
    if not library.has("traceview_number_values"):
        return None
    values, slots = np.empty(_MOST, np.int64), np.empty(1 << _BITS, np.int32)
    table = _CValues(address(values), _MOST, 0, address(slots), _BITS)
    column = np.ascontiguousarray(column)
    numbers = np.empty(len(column), np.int32)
    reason = library.call(
        "traceview_number_values",
        ctypes.byref(table),
        pointer(column),
        c_int64(column.itemsize),
        c_int64(len(column)),
        pointer(numbers),
    )
    return None if reason else (values[: table.count].copy(), numbers)
