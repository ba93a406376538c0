"""Arrays of numbers as columns: types, absent values, constants, codes, quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from ctypes import Structure, c_int64, c_void_p
from itertools import count, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.base.compiled import library
from traceview.base.compiled.library import address

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
RowNumbers = npt.NDArray[np.int32]
TextValues = npt.NDArray[np.object_]


def null_of(dtype: np.dtype[Any]) -> int:
    """The value for "absent" in a nullable integer column: the minimum of its type."""
    return int(np.iinfo(dtype).min)


NULL = null_of(np.dtype(np.int64))

MOST_ROWS = int(np.iinfo(np.int32).max)
_LEAST_GATHERED = 10_000
"""With fewer rows, numpy is faster than a call into C."""


def row_numbers(rows: Array) -> RowNumbers:
    """Row numbers as int32; no table has more than MOST_ROWS rows."""
    return rows.astype(np.int32, copy=False)


def constant(value: int | float, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A read-only array of length or shape `shape` with one value, which is stored once."""
    return np.broadcast_to(np.array(value, dtype), shape)


def thrifty(values: Array) -> Array:
    """`values`, as a `constant` if they are all equal."""
    if len(values) < 2 or values[0] != values[-1] or values.strides == (0,):
        return values
    return constant(values[0], len(values), values.dtype) if (values == values[0]).all() else values


def picked(values: Array, rows: Array | slice) -> Array:
    """`values[rows]`, without a copy if either is a `constant` or the rows are a slice."""
    if isinstance(rows, slice):
        return values[rows]
    if rows.dtype != bool and rows.strides == (0,) and len(rows):
        return constant(values[rows[0]], len(rows), values.dtype)
    if values.strides != (0,) or not len(values):
        return _gathered(values, rows)
    return np.broadcast_to(values[:1].reshape(()), _count(rows))


def _gathered(values: Array, rows: Array) -> Array:
    """`values[rows]`. Raises IndexError for a row that is out of bounds.

    In one pass of C: numpy widens 32-bit row numbers, and reads all of them once more to check
    their bounds.
    """
    if len(rows) < _LEAST_GATHERED or not (_fits_c(values, "biuf") and _fits_c(rows, "i")):
        few: Array = values[rows]
        return few
    result = np.empty(len(rows), values.dtype)
    given = (values, values.itemsize, len(values), rows, rows.itemsize, len(rows), result)
    reason = library.call("traceview_gather", *given)
    if reason is not None:
        raise IndexError(reason)
    return result


def _fits_c(values: Array, kinds: str) -> bool:
    """Whether `values` is one contiguous column of numbers that C can read."""
    sizes = (4, 8) if kinds == "i" else (1, 2, 4, 8)
    plain = values.ndim == 1 and values.flags.c_contiguous and values.dtype.isnative
    return plain and values.dtype.kind in kinds and values.itemsize in sizes


def unbroken(rows: Array) -> Array | slice:
    """Ascending row numbers, as a slice if they are consecutive: a slice picks without a copy."""
    if not len(rows) or int(rows[-1]) - int(rows[0]) >= len(rows):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def joined(parts: Sequence[Array]) -> Array:
    """Concatenate the parts; equal constants stay a `constant`."""
    nonempty = [part for part in parts if len(part)] or list(parts[:1])
    if len(nonempty) == 1:
        return nonempty[0]
    same = all(part.strides == (0,) and part[0] == nonempty[0][0] for part in nonempty)
    total = sum(map(len, nonempty))
    return constant(nonempty[0][0], total, nonempty[0].dtype) if same else np.concatenate(nonempty)


def _count(rows: Array) -> int:
    return int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)


def places_of(values: Sequence[Any], distinct: Iterable[Any]) -> RowNumbers:
    """The index of each value in `distinct`, −1 for values that are not in it.

    Runs no Python code per value.
    """
    index = dict(zip(distinct, count()))
    return np.fromiter(map(index.get, values, repeat(-1)), np.int32, len(values))


def object_array(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """A one-dimensional object array, whatever the values are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


# Intermediate arrays of so many rows stay in the CPU cache and need no new memory.
_PART = 1 << 17


def parts(rows: int, least: int = 0) -> Iterator[slice]:
    """Slices that cover `rows` rows, to compute on long columns with short temporary arrays.

    Each but the last has at least `least` rows.
    """
    each = max(_PART, least)
    return (slice(first, min(first + each, rows)) for first in range(0, rows, each))


def overlapping_parts(rows: int) -> Iterator[slice]:
    """As `parts`, each beginning with the last row of the one before, to compare neighbours."""
    return (slice(max(part.start - 1, 0), part.stop) for part in parts(rows))


def in_order(*keys: Array) -> bool:
    """Whether rows are in lexicographic order of the keys."""
    return all(_in_order(*(key[part] for key in keys)) for part in overlapping_parts(len(keys[0])))


def _in_order(*keys: Array) -> bool:
    equal = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        if (equal & (key[1:] < key[:-1])).any():
            return False
        equal &= key[1:] == key[:-1]
    return True


# Quantiles of arrays, by partition.
#
# numpy's import its masked arrays at the first call, which takes 30 ms.


def quantile(values: Array, share: float) -> float:
    """The quantile of some values, interpolated linearly as by `np.quantile`.

    `values` has shape (n,), n > 0; `share` is 0 to 1.
    """
    place = (len(values) - 1) * share
    low = int(place)
    high = min(low + 1, len(values) - 1)
    middle = np.partition(values, (low, high))
    one, other = middle[low].item(), middle[high].item()
    part = place - low
    return float(one + (other - one) * part if part < 0.5 else other - (other - one) * (1 - part))


def median(values: Array) -> float:
    """`np.median` of all values, of any shape and without NaN; NaN if there are none."""
    return float(medians(values.reshape(-1))) if values.size else math.nan


def medians(values: Array, axis: int = -1) -> npt.NDArray[np.float64]:
    """`np.median` along an axis of values without NaN, which has at least one row."""
    count = values.shape[axis]
    low, high = (count - 1) // 2, count // 2
    ranked = np.partition(values, (low, high), axis)
    middle = np.take(ranked, (low, high), axis)
    return np.asarray(middle.mean(axis), np.float64)


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
