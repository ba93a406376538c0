"""The order of the rows of each table: by start, ranges by thread and nesting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.tables import NULL, Array, Texts, rows_of
from traceview.trace.sqlite.page_reader import THREADS
from traceview.trace.staged import Staged, numbers_of

MARK_KIND = "mark"
BY_THREAD = frozenset({"ranges", "call_sites"})
"""Tables in nesting order: see `_nested`."""


def ordered(name: str, staged: Staged) -> Staged:
    """The rows of a table in its order, which is stable; frees each unordered column."""
    if name in BY_THREAD:
        order = _nested(staged)
    elif "start_ns" in staged and not groups.in_order(numbers_of(staged, "start_ns")):
        order = np.argsort(numbers_of(staged, "start_ns"), kind="stable")
    else:
        order = None
    if order is None:
        return staged
    with ThreadPoolExecutor(THREADS) as pool:
        taken = {column: pool.submit(rows_of, staged.pop(column), order) for column in [*staged]}
        return {column: values.result() for column, values in taken.items()}


def _nested(staged: Staged) -> npt.NDArray[np.intp] | None:
    """Order by thread and start, the longest first; an unended range is longest.

    Marks come after all ranges, so that the columns of the ranges are slices of the table's.
    """
    start, end, thread = (numbers_of(staged, name) for name in ("start_ns", "end_ns", "thread"))
    kind, lane = staged.get("kind"), thread
    if isinstance(kind, Texts) and MARK_KIND in kind.values:
        # For marks, the thread plus the number of threads.
        threads = np.int32(int(thread.max(initial=0)) + 1)
        lane = np.where(kind.isin([MARK_KIND]), thread + threads, thread)
    order = groups.order_of(lane)
    rows_of_parts = (order[part] for part in groups.overlapping_parts(len(start)))
    if all(
        groups.in_order(lane[rows], start[rows], _longest_first(end[rows]))
        for rows in rows_of_parts
    ):
        return None if groups.in_order(lane) else order
    return np.lexsort((_longest_first(end), start, lane))


def _longest_first(end: Array) -> Array:
    return np.where(end == NULL, -np.iinfo(np.int64).max, -end)
