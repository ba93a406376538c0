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
from traceview.trace.kineto.events import Events
from traceview.trace.kineto.values import Codes

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
