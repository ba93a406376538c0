"""Ancestors in a tree of ranges, from the row of the parent of each, −1 at the top."""

from __future__ import annotations

from ctypes import c_int64

import numpy as np

from traceview import groups
from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.tables import Array, Mask, RowNumbers, row_numbers


def nearest(value: RowNumbers, parent: RowNumbers, rows: Array) -> RowNumbers:
    """The value of each of the rows, or of its nearest ancestor if its own is negative; else −1."""
    if not library.has("traceview_nearest"):
        return _nearest(value, parent, rows)
    contiguous, result = np.ascontiguousarray(rows, np.int32), np.empty(len(rows), np.int32)
    library.call(
        "traceview_nearest",
        pointer(value),
        pointer(parent),
        pointer(contiguous),
        c_int64(len(contiguous)),
        pointer(result),
    )
    return result


def _nearest(value: RowNumbers, parent: RowNumbers, rows: Array) -> RowNumbers:
    result = np.full(len(rows), -1, np.int32)
    open_rows = np.flatnonzero(rows >= 0)
    at = rows[open_rows]
    while len(open_rows):
        result[open_rows] = value[at]
        at = np.where(value[at] < 0, parent[at], -1)
        open_rows, at = open_rows[at >= 0], at[at >= 0]
    return np.maximum(result, -1)


def inherited(value: RowNumbers, parent: RowNumbers) -> RowNumbers:
    """As `nearest` for all rows, in time that does not grow with the depth of the tree."""
    result, above = value.copy(), parent.copy()
    rows = np.flatnonzero((result < 0) & (above >= 0))
    # Each turn doubles how far `above` is; no row between has a value.
    while len(rows):
        farther = above[rows]
        result[rows], above[rows] = result[farther], above[farther]
        rows = rows[(result[rows] < 0) & (above[rows] >= 0)]
    return result


def with_ancestors(parent: RowNumbers, mine: Mask) -> Mask:
    """True for the rows of the mask `mine` and all their ancestors."""
    rows = np.flatnonzero(mine)
    if not library.has("traceview_mark_around"):
        return _with_ancestors(parent, mine, rows)
    marked_rows, marked = row_numbers(rows), np.zeros(len(mine), np.uint8)
    library.call(
        "traceview_mark_around",
        pointer(parent),
        pointer(marked_rows),
        c_int64(len(marked_rows)),
        pointer(marked),
    )
    return marked.view(bool)


def _with_ancestors(parent: RowNumbers, mine: Mask, rows: Array) -> Mask:
    result = mine.copy()
    while len(rows):
        above = groups.different(parent[rows])
        above = above[above >= 0]
        rows = above[~result[above]]
        result[rows] = True
    return result
