"""Columns while a reader makes them: staged, in order, without rows that cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import (
    NULL,
    Array,
    Integers,
    Mask,
    Texts,
    constant,
    object_array,
    rows_of,
    thrifty,
)
from traceview.traces.trace.schema import TABLES
from traceview.traces.trace.sqlite.page_reader import THREADS

Staged = dict[str, Array | Texts]
INT32 = np.iinfo(np.int32)


def numbers_of(staged: Staged, name: str) -> Array:
    """A column that is not text."""
    values = staged[name]
    assert not isinstance(values, Texts)
    return values


def texts_of(staged: Staged, name: str) -> Texts:
    """A column of texts."""
    values = staged[name]
    assert isinstance(values, Texts)
    return values


def absent_texts(rows: int) -> Texts:
    """A column without a text in any row."""
    return Texts(constant(-1, rows, np.int32), object_array([]))


def same_text(text: str, rows: int) -> Texts:
    """A column with the same text in every row."""
    return Texts(constant(0, rows, np.int32), object_array([text]))


def thrifty_columns(staged: Staged) -> Staged:
    """Store constant columns, about half of all columns in most traces, as a single value."""
    return {
        name: values.thrifty() if isinstance(values, Texts) else thrifty(values)
        for name, values in staged.items()
    }


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


# Rows that cannot be true, of any table and any recorder: they are left out and counted.
#
# A damaged file, a bug of a recorder or a second import can leave rows without a time, that end
# before they start, far outside the recording, of an impossible size, or twice in a table. One
# such row among thousands of kernels makes a GPU busy that was idle. Every reader passes its
# tables through here, and nothing later has to ask whether a time is one.

Reason = Literal["no time", "ends early", "outside", "impossible size", "twice"]
_ROWS = {"sets": "memsets", "api_calls": "API calls", "os_calls": "OS runtime calls"}

# The messages of a recorder are about the time before and after the recording as well.
_EXEMPT = frozenset({"diagnostics"})
# Clocks of several machines and processes differ. No row of 106 recordings lies outside at all.
_CLOCKS_APART_NS, _CLOCKS_APART_FRACTION = 100_000_000, 0.01
# Where the length is not recorded: a trace of 43 s with all its GPU work in 0.2 s is a true one
# (HolisticTraceAnalysis, simple_add), and an hour of start-up before the steps may be.
_SILENCE_NS = 3_600_000_000_000
MOST_BYTES = 1 << 44
"""More than any GPU or host has; sums of 500,000 such rows still fit into int64."""
_TIMES = ("start_ns", "end_ns", "time_ns")
_SIZE = "bytes"
MEASURED = frozenset({*_TIMES, _SIZE})
"""Columns whose values decide whether a row is possible."""
# Clocks of Windows tick every 100 ns, torch.profiler before 2.4 writes whole microseconds: there
# two short ranges of one name can have the same times.
_COARSE_TICK_NS = 100
_CLOCK_ROWS = 4096
"""So many rows show whether a clock is fine."""
_NO_ROWS = np.zeros(0, np.int64)


@record
class Window:
    """The time in which rows of a recording can lie, in ns."""

    first_ns: int
    last_ns: int

    def holds(self, time_ns: int) -> bool:
        return self.first_ns <= time_ns <= self.last_ns

    def since(self, origin_ns: int) -> Window:
        """The same window on a clock whose 0 is `origin_ns` of this one."""
        return Window(self.first_ns - origin_ns, self.last_ns - origin_ns)

    def wider(self, by_ns: int) -> Window:
        return Window(self.first_ns - by_ns, self.last_ns + by_ns)


@record
class ImpossibleRows:
    """`rows` of the `of` rows of a table that cannot be true, for one reason."""

    table: str
    reason: Reason
    rows: int
    of: int


def window(tables: Mapping[str, Staged | None], length_ns: int | None) -> Window:
    """The window of a recording of that length, from its clock's 0 on.

    Where the length is None, or most rows lie elsewhere, it is around the middle of the rows.
    """
    times = [
        start
        for name, staged in tables.items()
        if staged is not None and (start := _times(name, staged)) is not None
    ]
    first = min((int(start.min()) for start in times), default=0)
    last = max((int(start.max()) for start in times), default=0)
    if length_ns is None:
        if last - first > _SILENCE_NS:
            first = last = _middle(times, _SILENCE_NS)
        return Window(first, last).wider(_SILENCE_NS)
    slack = _CLOCKS_APART_NS + int(_CLOCKS_APART_FRACTION * length_ns)
    whole = Window(0, length_ns).wider(slack)
    if whole.holds(first) and whole.holds(last):
        return whole
    middle = _middle(times, length_ns + slack)
    return whole if whole.holds(middle) else Window(middle, middle).wider(length_ns + slack)


def without_impossible(
    name: str, staged: Staged, within: Window
) -> tuple[Staged, tuple[ImpossibleRows, ...]]:
    """The possible rows of an `ordered` table, and how many were left out by reason.

    Rows that are twice in the table stay once.
    """
    recorded = left = len(next(iter(staged.values())))
    impossible: list[ImpossibleRows] = []
    for reason, (_, find) in _TESTS.items():
        if name in _EXEMPT or not left:
            break
        wrong = find(name, staged, within)
        if len(wrong):
            impossible.append(ImpossibleRows(name, reason, len(wrong), recorded))
            kept = np.ones(left, bool)
            kept[wrong] = False
            left -= len(wrong)
            chosen = np.flatnonzero(kept)
            staged = {column: rows_of(values, chosen) for column, values in staged.items()}
    return staged, tuple(impossible)


def warnings_of(impossible: Sequence[ImpossibleRows]) -> tuple[str, ...]:
    """One warning of all that was left out of a recording; none if nothing was."""
    if not impossible:
        return ()
    listed = [
        f"{left_out.rows:,} of {left_out.of:,} "
        f"{_ROWS.get(left_out.table, left_out.table.replace('_', ' '))} "
        f"({_TESTS[left_out.reason][0]})"
        for left_out in impossible
    ]
    return (f"rows that cannot be true are left out: {', '.join(listed)}",)


def _times(name: str, staged: Staged) -> Integers | None:
    """The start times of the rows of a table that has some, without absent ones."""
    start = staged.get("start_ns", staged.get("time_ns"))
    if start is None or isinstance(start, Texts) or name in _EXEMPT or not len(start):
        return None
    if int(start.min()) != NULL:
        return start
    known = start[start != NULL]
    return known if len(known) else None


def _middle(times: Sequence[Integers], within_ns: int) -> int:
    """The time around which most of the tables lie: few damaged rows do not move it, nor a table.

    Of several tables it is a middle one. Half the rows of a table may have no time but 0, and from
    one damaged Python call the reader of torch.profiler makes most of its samples.
    """
    middles = sorted({int(time) for start in times for time in _medians(start)})
    held = []
    for time in middles:
        window = Window(time, time).wider(within_ns)
        inside = [(s >= window.first_ns) & (s <= window.last_ns) for s in times]
        held.append(sum(np.count_nonzero(rows) / len(rows) for rows in inside))
    likely = [time for time, share in zip(middles, held, strict=True) if share == max(held)]
    return likely[len(likely) // 2] if likely else 0


def _medians(start: Integers) -> Integers:
    places = ((len(start) - 1) // 2, len(start) // 2)
    return np.partition(start, places)[list(places)]


def _without_time(name: str, staged: Staged, _: Window) -> Integers:
    columns = [numbers_of(staged, column) for column in _TIMES if column in _required(name)]
    return _where_any(values == NULL for values in columns if int(values.min()) == NULL)


def _ending_early(_: str, staged: Staged, __: Window) -> Integers:
    if "end_ns" not in staged:
        return _NO_ROWS
    start, end = numbers_of(staged, "start_ns"), numbers_of(staged, "end_ns")
    found = []
    for part in groups.parts(len(start)):
        early = end[part] < start[part]
        if early.any():
            found.append(np.flatnonzero(early & (end[part] != NULL)) + part.start)
    return np.concatenate(found) if found else _NO_ROWS


def _outside(_: str, staged: Staged, within: Window) -> Integers:
    wrong = []
    for column in filter(staged.__contains__, _TIMES):
        values = numbers_of(staged, column)
        if int(values.max()) > within.last_ns:
            wrong.append(values > within.last_ns)
        if int(values.min()) < within.first_ns:
            wrong.append((values < within.first_ns) & (values != NULL))
    return _where_any(wrong)


def _of_impossible_size(name: str, staged: Staged, _: Window) -> Integers:
    if _SIZE not in staged:
        return _NO_ROWS
    size = numbers_of(staged, _SIZE)
    if 0 <= int(size.min()) <= int(size.max()) <= MOST_BYTES:
        return _NO_ROWS
    wrong = (size < 0) | (size > MOST_BYTES)
    return np.flatnonzero(wrong & (size != NULL) if _SIZE not in _required(name) else wrong)


def _repeated(_: str, staged: Staged, __: Window) -> Integers:
    """Rows equal to an earlier one in every column, where two of them cannot both be true.

    A correlation id belongs to one call. Without one, only rows that take time are told apart by
    the clock of the recorder, if it is fine enough.
    """
    if not {"start_ns", "end_ns"} <= staged.keys():
        return _NO_ROWS
    start, end = numbers_of(staged, "start_ns"), numbers_of(staged, "end_ns")
    # In the order of a table, equal rows are neighbours, which start at the same time.
    together = np.flatnonzero(start[1:] == start[:-1])
    rows: Integers = groups.different(np.concatenate([together, together + 1]))
    single = end[rows] > start[rows]
    if "correlation_id" in staged:
        single |= numbers_of(staged, "correlation_id")[rows] > 0
    rows = rows[single]
    if len(rows) < 2 or not (start[:_CLOCK_ROWS] % _COARSE_TICK_NS).any():
        return _NO_ROWS
    codes = [values.codes if isinstance(values, Texts) else values for values in staged.values()]
    keys = [key[rows] for key in codes if key.strides != (0,)]
    # The last key sorts first: equal rows become neighbors, the earlier one first.
    order = np.lexsort((rows, *keys))
    equal = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    return np.sort(rows[order][1:][equal])


_TESTS: Mapping[Reason, tuple[str, Callable[[str, Staged, Window], Integers]]] = {
    "no time": ("no start or end time", _without_time),
    "ends early": ("end before start", _ending_early),
    "outside": ("outside the recording", _outside),
    "impossible size": ("impossible size", _of_impossible_size),
    "twice": ("recorded twice", _repeated),
}


@cache
def _required(name: str) -> frozenset[str]:
    """The columns of a table that have a value in every row."""
    return frozenset(column.name for column in TABLES[name].columns if not column.nullable)


def _where_any(masks: Iterable[Mask]) -> Integers:
    """The rows where any of the masks is True."""
    listed = list(masks)
    return np.flatnonzero(np.logical_or.reduce(listed)) if listed else _NO_ROWS
