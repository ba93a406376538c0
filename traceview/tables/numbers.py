"""Integer columns as codes into their distinct values; one pass of C code where these are few."""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p

import numpy as np

from traceview.compiled import library
from traceview.compiled.library import address
from traceview.tables.arrays import Array, Integers, RowNumbers, constant, picked
from traceview.tables.parts import in_order, parts

_BITS = 16
"""2^15 distinct values and their hash table of 2^16 slots stay in the cache of a core."""


# Up to this span, a lookup table indexed by value is cheaper than sorting.
_DENSE = 1 << 22


class _CValues(Structure):
    _fields_ = (
        ("values", c_void_p),
        ("most", c_int64),
        ("count", c_int64),
        ("slots", c_void_p),
        ("bits", c_int64),
    )


def few_values(column: Array) -> tuple[Integers, RowNumbers] | None:
    """Distinct values in order of appearance, and for each row the index of its value.

    `column` holds signed integers. None if it has many distinct values.
    """
    # A column has no more values than rows, and most columns of small traces are short.
    bits = min(_BITS, len(column).bit_length() + 1)
    most = 1 << (bits - 1)
    values, slots = np.empty(most, np.int64), np.empty(1 << bits, np.int32)
    table = _CValues(address(values), most, 0, address(slots), bits)
    numbers = np.empty(len(column), np.int32)
    given = (table, column, column.itemsize, len(column), numbers)
    reason = library.call("traceview_number_values", *given)
    return None if reason else (values[: table.count].copy(), numbers)


def numbered(values: Array) -> tuple[Integers, RowNumbers]:
    """The distinct values, ascending, and for each row the index of its value."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int32)
    if values.strides == (0,):
        return values[:1].astype(np.int64), constant(0, len(values), np.int32)
    if (few := few_values(values)) is not None:
        return _ascending(*few)
    low, high = int(values.min()), int(values.max())
    if high - low < _DENSE:
        return _numbered_directly(values, low, high)
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, inverse.astype(np.int32)


def _ascending(distinct: Integers, codes: RowNumbers) -> tuple[Integers, RowNumbers]:
    """Distinct values and codes, renumbered from order of appearance to ascending order."""
    order = np.argsort(distinct)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    # In most columns the values appear in ascending order.
    if not in_order(place):
        for part in parts(len(codes)):
            codes[part] = picked(place, codes[part])
    return distinct[order], codes


def _numbered_directly(values: Array, low: int, high: int) -> tuple[Integers, RowNumbers]:
    seen = np.zeros(high - low + 1, bool)
    for part in parts(len(values)):
        # As int64: the type of the values may be too narrow for differences.
        seen[np.subtract(values[part], low, dtype=np.int64)] = True
    place = np.cumsum(seen, dtype=np.int32)
    place -= 1
    codes = np.empty(len(values), np.int32)
    for part in parts(len(values)):
        codes[part] = place[np.subtract(values[part], low, dtype=np.int64)]
    return np.flatnonzero(seen) + low, codes
