"""Calls of Python and built-in functions, in the order of their threads' stacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from traceview import groups
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers
from traceview.trace.kineto.columns import BLOCK_ROWS, ColumnParts
from traceview.trace.kineto.cpu_work import CpuWork
from traceview.trace.kineto.events import NO_ARGUMENTS, Events
from traceview.trace.kineto.values import Codes, integers

_COLUMNS = ("start_ns", "length_ns", "name", "id", "thread")


@dataclass
class PythonCalls:
    """Calls of Python and built-in functions, gathered chunk by chunk."""

    parts: ColumnParts = field(default_factory=ColumnParts)
    names: Codes = field(default_factory=Codes)

    def add(self, events: Events, work: CpuWork) -> None:
        events, start, end = work.timed(events)
        args = [event.args or NO_ARGUMENTS for event in events]
        self.parts.add(
            start_ns=start,
            length_ns=end - start,
            thread=work.owners.of(events),
            name=self.names.of([event.name for event in events]),
            # Absent and invalid ids become −1.
            id=np.maximum(integers([one.python_id for one in args]), -1),
        )


@record
class CallRows:
    """Calls with a duration above 0. When sorted, a caller comes before its callees."""

    start: Integers
    end: Integers
    name: Integers
    id: Integers

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Array) -> CallRows:
        return CallRows(self.start[rows], self.end[rows], self.name[rows], self.id[rows])

    def then(self, later: CallRows) -> CallRows:
        """These calls and the `later` ones, sorted."""
        joined = CallRows(
            np.concatenate((self.start, later.start)),
            np.concatenate((self.end, later.end)),
            np.concatenate((self.name, later.name)),
            np.concatenate((self.id, later.id)),
        )
        return joined if joined._is_sorted() else joined.take(joined._order())

    def _is_sorted(self) -> bool:
        start, end = self.start, self.end
        inside = (start[1:] == start[:-1]) & (end[1:] < end[:-1])
        return bool(((start[1:] > start[:-1]) | inside).all())

    def _order(self) -> Integers:
        """By start, longest first, then id: ids count up, so the caller has the smallest."""
        return np.lexsort((self.id, -self.end, self.start))


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
