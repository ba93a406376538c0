"""The run again, with changed parts: these kernels faster, this wait gone.

An edit changes how long items take, or the lag behind what they wait for; the order of work on each
stream and of calls on each thread stays. A replay without edits is the recording.

Left out: kernels that run at once do not slow each other down, and the launch queue has no end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from ctypes import Structure, c_int64, c_void_p

import numpy as np

from traceview.base import groups, intervals
from traceview.base.compiled import library
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask
from traceview.traces.facts.dependencies.graph import Dependencies, Edge, Edges
from traceview.traces.facts.operations import CallKind

LONG = 10
"""Times the median from which on a call or a pause has another reason than a launch: the first
launch of a kernel loads its code for 0.1 to 70 ms, others take 5 µs (tests/data/launches)."""
LONG_NS = 1_000_000
"""A thread that stays longer in a call or outside of calls does something other than launch: see
facts.idle.causes.OWN_WORK_NS."""
KEPT = 0.75
"""Of a call and of the pause before it, at least: steps of eight programs that the CPU limits took
0.71 to 0.89 of their recorded time without nsys, in the same process (docs/accuracy.md)."""
KEPT_NS = 12_000
"""Where only a greater cost explains the steps, a call and its pause keep this share of it."""
NODE_PITCH_NS = 300
"""Between nodes of a CUDA graph: 0.25, 0.27 and 0.38 µs beyond the recorded kernels of three
programs on an H200, whose streams had 1.0 to 1.3 µs (docs/accuracy.md)."""
UsualTimes = tuple[int, int | None] | None
"""The median call and pause; None where all that they take goes, however long."""
_OTHER_WORK = (CallKind.ALLOCATE, CallKind.LOAD)
_NO_LAG = int(np.iinfo(np.int64).min) // 4


@record
class Times:
    """When each item of the graph begins and ends, in ns."""

    start_ns: Integers
    end_ns: Integers


class Changed:
    """A copy of what edits change of a graph: own times, and lags of edges."""

    def __init__(self, graph: Dependencies) -> None:
        self.graph = graph
        self.own_ns = graph.own_ns.copy()
        self.begin_ns = graph.begin.lag_ns.copy()
        self.finish_ns = graph.finish.lag_ns.copy()

    def part(self, graph: Dependencies, items: slice, begin: slice, finish: slice) -> Changed:
        """What edits change of a graph that is a part of this one: they change it here, too."""
        result = copy(self)
        result.graph, result.own_ns = graph, self.own_ns[items]
        result.begin_ns, result.finish_ns = self.begin_ns[begin], self.finish_ns[finish]
        return result

    def scale(self, item: Array, factor: float | Array) -> None:
        """These items take `factor` of their own time."""
        self.own_ns[item] = np.round(self.own_ns[item] * factor).astype(np.int64)

    def shorten(self, item: Array, less_ns: Array) -> None:
        """These items take so much less of their recorded time, and of what edits left of it."""
        left = 1 - less_ns / np.maximum(self.graph.own_ns[item], 1)
        self.scale(item, np.maximum(left, 0.0))

    def wait_for_nothing(self, call: Array) -> None:
        """These calls return at once."""
        self.finish_ns[self._of(self.graph.finish, call)] = _NO_LAG

    def remove_calls(self, call: Array) -> None:
        """These calls are not made: they take no time and wait for nothing."""
        self.wait_for_nothing(call)
        self.own_ns[call] = 0

    def remove_operations(self, operation: Array) -> None:
        """These operations do not run: what waits for one begins with it, without a pitch."""
        self.own_ns[operation] = 0
        # Edges on nothing, −1, are on the last.
        chosen = np.flatnonzero(groups.marked(operation, len(self.graph) + 1)[self.graph.begin.on])
        lag_ns = self.begin_ns[chosen]
        self.begin_ns[chosen] = np.minimum(lag_ns, np.maximum(lag_ns - self.graph.pitch_ns, 0))

    def remove_launches(
        self,
        operation: Array,
        beside: Array,
        group: Array,
        usual_ns: UsualTimes = None,
        part: float = 1.0,
        *,
        around: bool = False,
    ) -> None:
        """These operations are not launched: the calls that launched nothing else go, too.

        `group` is that of each operation of `beside`, of which they are a part: with a call goes
        the thread's time between it and the launch of its group next to it, the framework's cost of
        each operation of a chain. Of calls and pauses much longer than usual (`Model.usual_ns`)
        only the usual part goes: the rest has other reasons, such as code that is loaded. Of what
        would go `part` does: the rest is what the program does instead. With `around`, what pauses
        before and behind a run of them have beyond the usual goes, too, and of all other pauses as
        much again.
        """
        graph, edges, gone = self.graph, self.graph.begin, np.zeros(len(self.graph), bool)
        gone[operation] = True
        self.remove_operations(operation)
        launch = (edges.kind == Edge.LAUNCH) & (edges.on >= 0)
        call, leaves = edges.on[launch], gone[edges.of[launch]]
        without = np.zeros(graph.calls, bool)
        without[call[leaves]] = True
        without[call[~leaves]] = False
        calls = np.flatnonzero(without)
        self.wait_for_nothing(calls)
        usual_call_ns, usual_pause_ns = usual_ns or (None, None)
        less_ns = part * _usual(self.own_ns[calls], usual_call_ns)
        self.own_ns[calls] -= np.round(less_ns).astype(np.int64)
        of_operation = np.full(len(graph), -1, np.int64)
        of_operation[beside] = group
        of_call = np.full(graph.calls, -1, np.int64)
        of_call[call] = np.maximum(of_call[call], of_operation[edges.of[launch]])
        between = graph.pauses
        before, after = between.before, between.after
        goes = (without[before] | without[after]) & (of_call[before] == of_call[after])
        goes &= of_call[after] >= 0
        less = np.zeros(graph.calls + 1)
        less[after] = part * _usual(between.time_ns, usual_pause_ns)
        less[after] /= np.maximum(between.time_ns, 1)
        less[after[~goes]] = 0
        if around and usual_pause_ns:
            edge = without[before] != without[after]
            more_ns = np.minimum(between.time_ns, LONG * usual_pause_ns) - usual_pause_ns
            share = np.maximum(more_ns, 0) / np.maximum(between.time_ns, 1)
            less[after[edge]] = share[edge]
        first, last = self.begin_ns.sum(), self.own_ns[: graph.calls].sum()
        self._shorten_pauses(less[between.ends], between.queries)
        if around and len(calls):
            gone_ns = less_ns.sum() + first - self.begin_ns.sum()
            gone_ns += last - self.own_ns[: graph.calls].sum()
            self._shorten_others(calls, float(gone_ns))

    def _shorten_others(self, calls: Array, less_ns: float) -> None:
        """Pauses of threads that launch, from the first of these calls on, take so much less."""
        graph, edges = self.graph, self.graph.begin
        launches = groups.different(edges.on[(edges.kind == Edge.LAUNCH) & (edges.on >= 0)])
        threads = np.isin(graph.thread, groups.different(graph.thread[launches]))
        begins, ends = graph.start_ns[calls].min(), graph.start_ns[calls].max()
        start = graph.start_ns[: graph.calls]
        inside = threads & (start >= begins) & (start <= ends)
        rows = np.flatnonzero((edges.kind == Edge.THREAD) & (self.begin_ns > 0))
        rows = rows[inside[edges.of[rows]] & (self.begin_ns[rows] <= LONG_NS)]
        part = 1 - min(less_ns / max(float(self.begin_ns[rows].sum()), 1.0), 1.0)
        self.begin_ns[rows] = np.round(self.begin_ns[rows] * part).astype(np.int64)

    def fuse(
        self, operation: Array, group: Array, factor: float, usual_ns: UsualTimes = None
    ) -> None:
        """The operations of each group become its last one, which takes `factor` of their time.

        They follow each other on a stream. Only that one is launched, see `remove_launches`.
        """
        left_ns = on_last(group, np.round(self.own_ns[operation] * factor).astype(np.int64))
        self.own_ns[operation] = left_ns
        gone = np.ones(len(operation), bool)
        gone[last_rows(group)] = False
        self.remove_launches(operation[gone], operation, group, usual_ns)

    def _shorten_pauses(self, part: Array, queries: Array) -> None:
        """The threads spend so much less, as a part, before each call, and in these calls."""
        edges = self.graph.begin
        rows = np.flatnonzero((edges.kind == Edge.THREAD) & (self.begin_ns > 0))
        less_ns = self.begin_ns[rows] * part[edges.of[rows]]
        self.begin_ns[rows] -= np.round(less_ns).astype(np.int64)
        self.own_ns[queries] -= np.round(self.own_ns[queries] * part[queries]).astype(np.int64)

    def scale_pause(self, call: Array, factor: float | Array) -> None:
        """The thread takes `factor` of its time before these calls, outside of calls."""
        edges = self.graph.begin
        scale = np.ones(len(self.graph))
        scale[call] = factor
        chosen = (edges.kind == Edge.THREAD) | (edges.kind == Edge.HAND_OVER)
        chosen &= self.begin_ns > 0
        self.begin_ns[chosen] = np.round(self.begin_ns[chosen] * scale[edges.of[chosen]]).astype(
            np.int64
        )

    def launch_at_once(self, operation: Array, group: Array) -> None:
        """The operations of each group are launched by its first call, as by one CUDA graph.

        The ordinary work of launching between the first and the last launch of a group goes. Waits
        stay, and so do allocations, loads of code, and calls and pauses longer than `LONG_NS`.
        """
        graph = self.graph
        does, calls = graph.does, slice(0, graph.calls)
        launch = graph.begin.kind == Edge.LAUNCH
        call_of = np.full(len(graph), -1, np.int64)
        call_of[graph.begin.of[launch]] = graph.begin.on[launch]
        call = call_of[operation]
        operation, group, call = (each[call >= 0] for each in (operation, group, call))
        if not len(call):
            return
        start, thread = graph.start_ns[calls], graph.thread[calls]
        of_group = groups.group(group)
        order = np.lexsort((start[call], of_group.ids))
        first = np.flatnonzero(np.diff(of_group.ids[order], prepend=-1))
        begins, ends = start[call[order[first]]], np.maximum.reduceat(start[call[order]], first)
        around = _enclosing(begins, ends)
        leader, between = np.zeros(graph.calls, bool), np.zeros(graph.calls, bool)
        leader[call[order[first[around == np.arange(len(first))]]]] = True
        # A group takes up only its own threads: others' groups may run at the same time.
        for number, rows in groups.rows_of(thread[call]).items():
            own, at = groups.different(of_group.ids[rows]), np.flatnonzero(thread == number)
            taken = intervals.union(begins[around[own]], ends[own] + 1)
            between[at] = intervals.inside(taken, start[at])
        between &= ~leader
        between &= ~np.isin(does, _OTHER_WORK)
        self.own_ns[np.flatnonzero(between & (self.own_ns[calls] <= LONG_NS))] = 0
        edges = graph.begin
        pause = np.isin(edges.kind, (Edge.THREAD, Edge.HAND_OVER))
        pause &= (self.begin_ns > 0) & (self.begin_ns <= LONG_NS)
        pause[pause] = between[edges.of[pause]]
        self.begin_ns[pause] = 0
        chosen = self._of(graph.begin, operation) & launch
        self.begin_ns[chosen] = np.minimum(self.begin_ns[chosen], graph.latency_ns)
        follows = self._of(graph.begin, operation) & (graph.begin.kind == Edge.STREAM)
        pitch_ns = np.full(len(graph), min(graph.pitch_ns, NODE_PITCH_NS))
        pitch_ns[operation[order[first]]] = graph.pitch_ns
        pitch_ns = pitch_ns[graph.begin.of[follows]]
        self.begin_ns[follows] = np.minimum(self.begin_ns[follows], pitch_ns)

    def cheaper_calls(self, cost_ns: int) -> None:
        """Each call costs its thread so much less, as without a recorder.

        A call keeps `KEPT` of its own time, and the thread as much of its pause before it: a
        recorder works at both ends of a call. They keep less where only a cost beyond
        `KEPT_NS / KEPT` explains how long steps took without it.
        """
        graph, gone = self.graph, 1 - min(KEPT, KEPT_NS / max(cost_ns, 1))
        own = self.own_ns[: graph.calls]
        less = np.minimum(cost_ns, np.ceil(own * gone).astype(np.int64))
        own -= less
        edges = graph.begin
        rows = np.flatnonzero((edges.kind == Edge.THREAD) & (self.begin_ns > 0))
        rest = (cost_ns - less)[edges.of[rows]]
        self.begin_ns[rows] -= np.minimum(rest, (self.begin_ns[rows] * gone).astype(np.int64))

    def _of(self, edges: Edges, item: Array) -> Mask:
        """True for the edges of these items."""
        mark = np.zeros(len(self.graph), bool)
        mark[item] = True
        return mark[edges.of]

    def replay(self) -> Times:
        """The run with these changes."""
        graph = self.graph
        start, end = np.empty(len(graph), np.int64), np.empty(len(graph), np.int64)
        given = compiled(graph, self.own_ns, self._launched_ns(), self.finish_ns)
        library.call("traceview_replay", given, start, end)
        return Times(start, end)

    def _launched_ns(self) -> Integers:
        """The lags behind which items begin: work comes sooner out of a long launch call cut short.

        Such a call, as one that loads code, reaches the GPU at its end.
        """
        edges, latency_ns = self.graph.begin, self.graph.latency_ns
        less = self.graph.own_ns - self.own_ns
        of_long = (edges.kind == Edge.LAUNCH) & (self.graph.own_ns[edges.on] > latency_ns)
        rows = np.flatnonzero(of_long & (less[edges.on] > 0) & (self.begin_ns > latency_ns))
        result = self.begin_ns.copy()
        result[rows] = np.maximum(result[rows] - less[edges.on[rows]], latency_ns)
        return result


def _enclosing(begin: Integers, end: Integers) -> Integers:
    """For each interval the row of one that has it within; its own where no other does."""
    order = np.lexsort((-end, begin))
    last = np.maximum.accumulate(end[order])
    rows = np.arange(len(order))
    longest = np.maximum.accumulate(np.where(end[order] > np.append(-1, last[:-1]), rows, 0))
    result = np.empty(len(order), np.int64)
    result[order] = order[longest]
    return result


def last_rows(group: Array) -> Integers:
    """The last row of each group."""
    of_group = groups.group(group)
    result = np.zeros(of_group.size, np.int64)
    result[of_group.ids] = np.arange(len(group))
    return result


def on_last(group: Array, time_ns: Integers) -> Integers:
    """The time of each group on its last row, nothing on the others."""
    result = np.zeros(len(group), np.int64)
    result[last_rows(group)] = groups.sums(groups.group(group), time_ns)
    return result


def _usual(times_ns: Array, usual_ns: int | None) -> Array:
    """The times, the usual one in place of those much longer."""
    if usual_ns is None:
        return times_ns
    return np.where(times_ns > LONG * usual_ns, usual_ns, times_ns)


Edit = Callable[[Changed], None]
"""Applies a remedy to a copy of the graph."""


def replay(graph: Dependencies, edits: Iterable[Edit] = ()) -> Times:
    """The run with all of these edits, applied in their order."""
    changed = Changed(graph)
    for edit in edits:
        edit(changed)
    return changed.replay()


class _Edges(Structure):
    _fields_ = tuple((name, c_void_p) for name in ("first", "on", "lag", "kind"))


class CompiledGraph(Structure):
    """A graph as C has it. It keeps its arrays alive."""

    _fields_ = (
        *((name, c_int64) for name in ("calls", "items", "entries")),
        *((name, c_void_p) for name in ("order", "start", "end", "own")),
        ("begin", _Edges),
        ("finish", _Edges),
        ("latency", c_int64),
    )
    arrays: list[Array]


def compiled(
    graph: Dependencies, own: Array, begin_ns: Array, finish_ns: Array, order: Array | None = None
) -> CompiledGraph:
    """The graph with these own times and lags, for C; `order` replaces that of a replay."""
    order = graph.order if order is None else order
    arrays: list[Array] = []

    def at(values: Array, kind: type[np.generic]) -> int:
        arrays.append(np.ascontiguousarray(values, kind))
        return library.address(arrays[-1])

    def edges(of: Edges, lag: Array) -> _Edges:
        return _Edges(
            at(of.first, np.int64), at(of.on, np.int32), at(lag, np.int64), at(of.kind, np.uint8)
        )

    result = CompiledGraph(
        graph.calls,
        len(graph),
        len(order),
        at(order, np.int32),
        at(graph.start_ns, np.int64),
        at(graph.end_ns, np.int64),
        at(own, np.int64),
        edges(graph.begin, begin_ns),
        edges(graph.finish, finish_ns),
        graph.latency_ns,
    )
    result.arrays = arrays
    return result
