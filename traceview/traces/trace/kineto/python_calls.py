"""Calls of Python and built-in functions, and the stacks of their threads at given times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Array, ColumnRecord, Integers, RowNumbers
from traceview.traces.trace.kineto.columns import BLOCK_ROWS, Codes, ColumnParts
from traceview.traces.trace.kineto.cpu_work import CpuWork
from traceview.traces.trace.kineto.events import Events

_COLUMNS = ("start_ns", "length_ns", "name", "id", "thread")


@dataclass
class PythonCalls:
    """Calls of Python and built-in functions, gathered chunk by chunk."""

    parts: ColumnParts = field(default_factory=ColumnParts)
    names: Codes = field(default_factory=Codes)

    def add(self, events: Events, work: CpuWork) -> None:
        timed = work.timed(events)
        self.parts.add(
            start_ns=timed.start_ns,
            length_ns=timed.end_ns - timed.start_ns,
            thread=work.owners.of(timed.events),
            name=self.names.of(timed.names),
            # Absent and invalid ids become −1.
            id=np.maximum(timed.integers("python_id"), -1),
        )


@record
class CallRows(ColumnRecord):
    """Calls with a duration above 0. When sorted, a caller comes before its callees."""

    start: Integers
    end: Integers
    name: Integers
    id: Integers

    def then(self, later: CallRows) -> CallRows:
        """These calls and the `later` ones, sorted."""
        columns = ((getattr(part, name) for part in (self, later)) for name in _OF_CALL)
        joined = CallRows(*(np.concatenate(tuple(parts)) for parts in columns))
        start, end = joined.start, joined.end
        inside = (start[1:] == start[:-1]) & (end[1:] < end[:-1])
        if ((start[1:] > start[:-1]) | inside).all():
            return joined
        # By start, longest first, then id: ids count up, so the caller has the smallest.
        return joined.take(np.lexsort((joined.id, -end, start)))


_OF_CALL = ("start", "end", "name", "id")
NO_CALLS = CallRows(*(np.zeros(0, np.int64) for _ in range(4)))


@record
class ThreadSpan:
    """The first start and the last end of a thread's calls."""

    first_ns: int
    end_ns: int


@dataclass
class CallBlocks:
    """The calls of every thread, block by block, by the final number of the thread.

    On each thread, no call starts before the calls of earlier blocks.
    """

    parts: ColumnParts
    thread: RowNumbers
    spans: dict[int, ThreadSpan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reached: dict[int, int] = {}
        for thread, calls in self._each(forget=False):
            first, last = int(calls.start.min()), int(calls.start.max())
            if first < reached.get(thread, first):
                # Traces of other programs: sorted as a whole, which takes more memory.
                self.parts = _resorted(self.parts, self.thread)
                self.thread = np.arange(int(self.thread.max()) + 1, dtype=np.int32)
                self.spans.clear()
                self.__post_init__()
                return
            reached[thread] = last
            known = self.spans.get(thread, ThreadSpan(first, first))
            end = max(known.end_ns, int(calls.end.max()))
            self.spans[thread] = ThreadSpan(min(known.first_ns, first), end)

    def __iter__(self) -> Iterator[tuple[int, CallRows]]:
        """Yield (thread, calls); each block is freed after it was read."""
        return self._each(forget=True)

    def _each(self, *, forget: bool) -> Iterator[tuple[int, CallRows]]:
        blocks = self.parts.blocks(*_COLUMNS, forget=forget)
        for start, length, name, ids, provisional in blocks:
            thread, rows = self.thread[provisional], CallRows(start, start + length, name, ids)
            lasting = length > 0
            for number in groups.different(thread[lasting]).tolist():
                yield number, rows.take(np.flatnonzero(lasting & (thread == number)))


def _resorted(parts: ColumnParts, thread: RowNumbers) -> ColumnParts:
    """The calls sorted by thread and start, with final thread numbers."""
    columns: dict[str, Array] = {name: parts.take(name) for name in _COLUMNS}
    columns["thread"] = thread[columns["thread"]]
    order = np.lexsort((columns["start_ns"], columns["thread"]))
    result = ColumnParts()
    for first in range(0, len(order), BLOCK_ROWS):
        rows = order[first : first + BLOCK_ROWS]
        result.add(**{name: values[rows] for name, values in columns.items()})
    return result


# The stack of a thread at given times, from the calls that the profiler traced.
#
# Calls are read once, in order, and only those still running are kept: a trace of gigabytes has
# tens of millions of calls, few of which are on a stack at one of the given times.

MOST_DEPTH = 1_024


@dataclass
class ContextTree:
    """Distinct stacks: each context is a function, called from another context (−1: from none)."""

    functions: int
    name: list[int] = field(default_factory=list)
    caller: list[int] = field(default_factory=list)
    _number: dict[int, int] = field(default_factory=dict)

    def of(self, levels: list[Array]) -> RowNumbers:
        """The context of each stack; `levels` are from the innermost function out, −1: none."""
        context = np.full(len(levels[0]) if levels else 0, -1, np.int32)
        for level in reversed(levels):
            rows = np.flatnonzero(level >= 0)
            key = (context[rows] + np.int64(1)) * self.functions + level[rows]
            distinct, which = np.unique(key, return_inverse=True)
            numbers = [self._of_key(pair) for pair in distinct.tolist()]
            context[rows] = np.array(numbers, np.int32)[which.reshape(-1)]
        return context

    def _of_key(self, key: int) -> int:
        number = self._number.setdefault(key, len(self.name))
        if number == len(self.name):
            caller, name = divmod(key, self.functions)
            self.caller.append(caller - 1)
            self.name.append(name)
        return number

    def levels(self, contexts: Array) -> list[Array]:
        """Per level from the innermost out, the function of each context, −1 beyond the root."""
        name, caller = (np.array(column, np.int32) for column in (self.name, self.caller))
        return list(_levels(name, caller, contexts))


def contexts_at(
    calls: CallBlocks, times: Mapping[int, Sequence[Integers]], functions: int
) -> tuple[dict[int, list[RowNumbers]], ContextTree]:
    """The contexts of each thread at its series of rising times; −1 where no call runs."""
    tree = ContextTree(max(functions, 1))
    threads = {
        number: _Thread([_Series(series) for series in some]) for number, some in times.items()
    }
    for number, some in calls:
        if number in threads:
            threads[number].add(some, tree)
    return {number: thread.finished(tree) for number, thread in threads.items()}, tree


class _Series:
    """Ascending times of one thread, and the contexts at those that were reached so far."""

    def __init__(self, times: Integers) -> None:
        self.times, self.passed = times, 0
        self.contexts: RowNumbers = np.full(len(times), -1, np.int32)

    def until(self, reached: np.int64 | None) -> slice:
        """The slice of times before `reached` (None: all) that have no context yet."""
        first, last = self.passed, len(self.times)
        self.passed = last if reached is None else int(np.searchsorted(self.times, reached))
        return slice(first, self.passed)


@dataclass
class _Thread:
    """The series of a thread, and its calls that still run at the time reached so far."""

    series: list[_Series]
    running: CallRows = NO_CALLS

    def add(self, later: CallRows, tree: ContextTree) -> None:
        calls = self.running.then(later)
        reached = calls.start[-1]
        # No later call starts before `reached`: all calls that run until then are known.
        self._answer(calls, reached, tree)
        self.running = calls.take(np.flatnonzero(calls.end > reached))

    def finished(self, tree: ContextTree) -> list[RowNumbers]:
        self._answer(self.running, None, tree)
        return [series.contexts for series in self.series]

    def _answer(self, calls: CallRows, reached: np.int64 | None, tree: ContextTree) -> None:
        # The row of the caller of each call, −1 if none.
        #
        # It is the last row before it that ends no earlier. Rows that end earlier are skipped by
        # way of their own candidates, so that many siblings take few rounds. Times decide, not the
        # caller ids, because Kineto loses some.
        parent = np.arange(-1, len(calls.end) - 1, dtype=np.int32)
        open_ = np.arange(1, len(calls.end))
        while len(open_):
            open_ = open_[calls.end[parent[open_]] < calls.end[open_]]
            parent[open_] = parent[parent[open_]]
            open_ = open_[parent[open_] >= 0]
        for series in self.series:
            rows = series.until(reached)
            times = series.times[rows]
            inner = _innermost(calls, parent, times)
            result = np.full(len(times), -1, np.int32)
            inside = np.flatnonzero(inner >= 0)
            used, which = np.unique(inner[inside], return_inverse=True)
            if len(used):
                result[inside] = tree.of(list(_levels(calls.name, parent, used)))[which.reshape(-1)]
            series.contexts[rows] = result


def _innermost(calls: CallRows, parent: RowNumbers, times: Integers) -> Integers:
    """At each time, the last call that started, or its innermost open caller; −1 if none."""
    row = np.searchsorted(calls.start, times, side="right") - 1
    for _ in range(MOST_DEPTH):
        over = np.flatnonzero((row >= 0) & (calls.end[row] <= times))
        if not len(over):
            return row
        row[over] = parent[row[over]]
    return np.where((row >= 0) & (calls.end[row] > times), row, -1)


def _levels(name: Array, caller: RowNumbers, rows: Array) -> Iterator[Array]:
    """Per level from the innermost out, the name of each row's caller, −1 beyond the root."""
    above = rows
    for _ in range(MOST_DEPTH):
        inside = above >= 0
        if not inside.any():
            return
        yield np.where(inside, name[np.maximum(above, 0)], name.dtype.type(-1))
        above = np.where(inside, caller[np.maximum(above, 0)], np.int32(-1))
