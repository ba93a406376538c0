"""Values of a column picked by row, in one pass of C code.

numpy widens 32-bit row numbers, and reads all of them once more to check their bounds.
"""

from __future__ import annotations

from ctypes import c_int64
from typing import Any

import numpy as np
import numpy.typing as npt

from traceview.compiled import library
from traceview.compiled.library import pointer

LEAST_ROWS = 10_000
"""With fewer rows, numpy is faster than a call into C."""
_ROWS = (np.dtype(np.int32), np.dtype(np.int64))
_BYTES = (1, 2, 4, 8)


def gather(values: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`values[rows]`. Raises IndexError for a row that is out of bounds."""
    if len(rows) < LEAST_ROWS or not _is_plain(values, rows):
        few: npt.NDArray[Any] = values[rows]
        return few
    picked = np.empty(len(rows), values.dtype)
    reason = library.call(
        "traceview_gather",
        pointer(values),
        c_int64(values.itemsize),
        c_int64(len(values)),
        pointer(rows),
        c_int64(rows.itemsize),
        c_int64(len(rows)),
        pointer(picked),
    )
    if reason is not None:
        raise IndexError(reason)
    return picked


def _is_plain(values: npt.NDArray[Any], rows: npt.NDArray[Any]) -> bool:
    """Whether there is a compiled library, and both are contiguous arrays of types it supports."""
    return (
        values.ndim == rows.ndim == 1
        and rows.dtype in _ROWS
        and values.dtype.kind in "biuf"
        and values.itemsize in _BYTES
        and values.flags.c_contiguous
        and rows.flags.c_contiguous
        and library.has("traceview_gather")
    )
