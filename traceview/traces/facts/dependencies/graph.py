"""The run as a graph: which call or operation each one had to wait for, and for how long after.

Items are the API calls, those inside another call left out, and behind them the operations. An edge
says that an item begins, or that a waiting call returns, no earlier than `lag_ns` after another
item's end (of its launch call: after its begin). Of all edges of an item one is binding: its lag is
what was recorded, so that an unchanged replay is the recording to the nanosecond. The others had
slack, and their lag is what such an edge takes where it is binding, the median of this recording:
the latency of a launch on an idle stream, the pitch of kernels that follow each other.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, row_numbers
from traceview.traces.facts import operations as work
from traceview.traces.facts.operations import CallKind
from traceview.traces.trace import Trace


class Edge(IntEnum):
    """Why an item waits for another."""

    THREAD = 0
    """The call before it on its thread, and what the thread did in between."""
    LAUNCH = 1
    """The call that enqueued the operation, from its begin; from its end where it loaded code."""
    STREAM = 2
    """The operation before it on its stream."""
    EVENT = 3
    """An event that the stream was made to wait for."""
    GRAPH = 4
    """A node of the same CUDA graph on another stream."""
    HELD = 5
    """Work behind whose end it started, although nothing recorded says why."""
    HAND_OVER = 6
    """The last call of the thread that handed over."""
    WAIT = 7
    """Work that the call waits for."""
    PACE = 8
    """The call that began the pass before, where something outside of CUDA paces a loop."""


INFERRED = frozenset({Edge.EVENT, Edge.GRAPH, Edge.HELD, Edge.HAND_OVER})


@record
class Edges:
    """Edges by the item that waits: those of item i are `first[i]` to `first[i + 1]`.

    `on` is the item waited for; `kind` an `Edge`.
    """

    first: Integers
    on: RowNumbers
    lag_ns: Integers
    kind: Array

    @cached_property
    def of(self) -> RowNumbers:
        """The item that waits, per edge."""
        return row_numbers(np.repeat(np.arange(len(self.first) - 1), np.diff(self.first)))


@record
class Pauses:
    """What threads do between launches that follow each other, which belongs to these.

    Per pause the launch `before` and `after` it, and its time outside of calls and in `queries`,
    calls that only look something up: nsys records some before nearly every launch. `ends` is the
    launch or other call in front of which each call of the graph is made, or that call itself.
    """

    before: Array
    after: Array
    time_ns: Integers
    queries: Array
    ends: Array


@record
class Dependencies:
    """The graph of a recording, or of the part that was launched in a window of time.

    Items 0 to `calls` - 1 are the rows `call` of api_calls, by thread and start, `thread` that of
    each and `does` its kind; the others are the rows `operation` of operations. `own_ns` is how
    long an item takes once all that it waits for is done. `begin` are the edges that an item begins
    behind, `finish` those that a call returns behind. `launch` is the call that launched each
    operation, −1 if unknown. `item_of_call` is the item of each row of api_calls, −1 where there is
    none; a graph for walks does without.
    """

    calls: int
    call: RowNumbers
    operation: RowNumbers
    item_of_call: RowNumbers
    thread: Array
    does: Array
    start_ns: Integers
    end_ns: Integers
    own_ns: Integers
    begin: Edges
    finish: Edges
    launch: RowNumbers
    latency_ns: int
    pitch_ns: int

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def order(self) -> RowNumbers:
        """Items such that each comes behind all it waits for; ~item is where a call returns.

        Edges against the order of time, where clocks disagree, go: `on` becomes −1.
        """
        key = self.start_ns.copy()
        launched = np.flatnonzero(self.launch >= 0)
        key[self.calls + launched] = np.maximum(
            key[self.calls + launched], self.start_ns[self.launch[launched]]
        )
        returning = np.flatnonzero(np.diff(self.finish.first))
        items = np.concatenate([np.arange(len(key)), ~returning])
        when = np.concatenate([key, self.end_ns[returning]])
        # At one time an operation ends first, then a waiting call returns, then calls begin.
        rank = np.repeat([1, 2, 0], [self.calls, len(key) - self.calls, len(returning)])
        rank[len(key) :] -= returning >= self.calls
        order = np.lexsort((rank, when))
        place = np.empty(len(items), np.int64)
        place[order] = np.arange(len(order))
        begun, returned = place[: len(key)], place[: len(key)].copy()
        returned[returning] = place[len(key) :]
        for edges, at in ((self.begin, begun), (self.finish, returned)):
            ready = np.where(edges.kind == Edge.LAUNCH, begun[edges.on], returned[edges.on])
            edges.on[ready >= at[edges.of]] = -1
        return row_numbers(items[order])

    @cached_property
    def pauses(self) -> Pauses:
        """The pauses between launches as recorded."""
        edges, launches = self.begin, np.zeros(self.calls, bool)
        launches[edges.on[(edges.kind == Edge.LAUNCH) & (edges.on >= 0)]] = True
        query = ~launches & (self.does == CallKind.OTHER)
        others = np.flatnonzero(~query)
        ends = np.append(others, -1)[np.cumsum(~query) - ~query]
        # Behind the last other call of a thread comes none.
        ends[(ends >= 0) & (self.thread[ends] != self.thread)] = -1
        spent_ns = np.where(query, self.own_ns[: self.calls], 0)
        rows = np.flatnonzero((edges.kind == Edge.THREAD) & (edges.lag_ns > 0))
        spent_ns[edges.of[rows]] += edges.lag_ns[rows]
        known = ends >= 0
        time_ns = groups.added(ends[known], spent_ns[known], self.calls)
        before, after = others[:-1], others[1:]
        follows = launches[before] & launches[after] & (self.thread[before] == self.thread[after])
        before, after = before[follows], after[follows]
        return Pauses(before, after, time_ns[after], np.flatnonzero(query), ends)


@record
class Predecessors:
    """What each operation waited behind on the GPU: the one before it on its stream, or an event's.

    `operation` is −1 where there is none.
    """

    operation: RowNumbers
    by_event: Mask


def predecessors(trace: Trace, graph: Dependencies) -> Predecessors:
    """What the operations that have edges waited behind, by row of operations."""
    operation = np.full(len(work.operations(trace)), -1, np.int32)
    by_event = np.zeros(len(operation), bool)
    edges = graph.begin
    for kind in (Edge.STREAM, Edge.EVENT):
        rows = np.flatnonzero((edges.kind == kind) & (edges.on >= graph.calls))
        of = graph.operation[edges.of[rows] - graph.calls]
        operation[of] = graph.operation[edges.on[rows] - graph.calls]
        by_event[of] = kind == Edge.EVENT
    return Predecessors(operation, by_event)
