"""Arrays of numbers as columns: their types, absent values, and constants stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.compiled import library

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
