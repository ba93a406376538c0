"""Ancestors in a tree of ranges, from the row of the parent of each, −1 at the top."""

from __future__ import annotations

import numpy as np

from traceview.compiled import library
from traceview.tables import Array, Mask, RowNumbers, row_numbers


def nearest(value: RowNumbers, parent: RowNumbers, rows: Array) -> RowNumbers:
    """The value of each of the rows, or of its nearest ancestor if its own is negative; else −1."""
    result = np.empty(len(rows), np.int32)
    library.call("traceview_nearest", value, parent, rows, len(rows), result)
    return result


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
    rows, marked = row_numbers(np.flatnonzero(mine)), np.zeros(len(mine), bool)
    library.call("traceview_mark_around", parent, rows, len(rows), marked)
    return marked
