"""The graphs of several ranks as one: a collective ends once its last rank has begun it.

Behind the graphs follows an item for each collective, the arrival of its last rank: it begins
behind the begins of all its parts, and each part ends behind it, its transfer later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Integers, Mask, RowNumbers, row_numbers
from traceview.traces.facts import forecast
from traceview.traces.facts.dependencies import replay
from traceview.traces.facts.dependencies.graph import Dependencies, Edge, Edges


@record
class Exchanges:
    """Parts of collectives: the number of the collective and the joined item of each part.

    `together` is True for parts that end no sooner than the last one begins; of others, as those of
    messages, the times tell.
    """

    number: Integers
    item: RowNumbers
    together: Mask


@record
class JoinedPart:
    """One of the joined graphs, and where its items and edges are among all."""

    graph: Dependencies
    items: slice
    begin: slice
    finish: slice


@record
class Joined(Dependencies):
    """Graphs one after the other, and the arrivals. Calls are no longer its first items."""

    order: RowNumbers
    parts: tuple[JoinedPart, ...]

    def on(self, part: int, edit: replay.Edit) -> replay.Edit:
        """An edit of one of the graphs as an edit of all."""
        own = self.parts[part]
        return lambda changed: edit(changed.part(own.graph, own.items, own.begin, own.finish))


@record
class JointModel(forecast.StepModel):
    """Steps of several ranks: a step ends when the last of them has ended it.

    `call_ns` is what the recorder adds to a call, by part.
    """

    graph: Joined
    call_ns: Sequence[int]

    @cached_property
    def recorded(self) -> Integers:
        """The time of each step as replayed unchanged: clocks that drift differ by some ppm."""
        return self.durations(replay.replay(self.graph))

    @property
    def misfit(self) -> float:
        """How far the unchanged replay is from the recordings, as a fraction of their time."""
        recorded = int(self.durations(replay.Times(self.graph.start_ns, self.graph.end_ns)).sum())
        return abs(int(self.recorded.sum()) - recorded) / max(recorded, 1)

    def cheaper(self, changed: replay.Changed) -> None:
        for part, cost_ns in enumerate(self.call_ns):
            self.graph.on(part, forecast.cheaper_by(cost_ns))(changed)


def joined(graphs: Sequence[Dependencies], exchanges: Exchanges) -> Joined:
    """The graphs, whose times are on one clock, with their exchanges."""
    starts, ends = ([getattr(each, name) for each in graphs] for name in ("start_ns", "end_ns"))
    start, end = np.concatenate(starts), np.concatenate(ends)
    own = np.concatenate([graph.own_ns for graph in graphs])
    arrived, number, waits = _arrivals(exchanges, start, end)
    # By item: its collective, and that if it ends behind the arrival.
    part_of, behind = np.full((2, len(start)), -1, np.int64)
    part_of[exchanges.item], behind[exchanges.item[waits]] = number, number[waits]
    first = np.append(0, np.cumsum([len(graph) for graph in graphs]))
    graphs = [
        _returning(graph, np.flatnonzero(behind[at : at + len(graph)] >= 0))
        for graph, at in zip(graphs, first.tolist(), strict=False)
    ]
    order, later = _order(graphs, part_of, behind, len(arrived))
    begin, finish = (
        _concatenated([getattr(graph, name) for graph in graphs], len(arrived))
        for name in ("begin", "finish")
    )
    begins = np.flatnonzero((part_of >= 0) & ~later)
    begins = begins[np.argsort(part_of[begins], kind="stable")]
    counts = np.bincount(part_of[begins], minlength=len(arrived))
    begin.first[len(start) + 1 :] += np.cumsum(counts)
    rows = np.flatnonzero(np.append(behind, np.full(len(arrived), -1))[finish.of] >= 0)
    item = finish.of[rows]
    lag = end[item] - arrived[behind[item]]
    own[item] = np.minimum(own[item], np.maximum(lag, 0))
    finish.on[rows], finish.lag_ns[rows] = len(start) + behind[item], lag
    none = np.zeros(0, np.int32)
    return Joined(
        calls=0,
        call=none,
        operation=none,
        item_of_call=none,
        thread=none,
        does=none,
        start_ns=np.concatenate([start, arrived]),
        end_ns=np.concatenate([end, arrived]),
        own_ns=np.concatenate([own, np.zeros(len(arrived), np.int64)]),
        begin=Edges(
            begin.first,
            np.concatenate([begin.on, row_numbers(begins)]),
            np.concatenate([begin.lag_ns, np.zeros(len(begins), np.int64)]),
            # Of a part its begin counts.
            np.concatenate([begin.kind, np.full(len(begins), Edge.LAUNCH, np.uint8)]),
        ),
        finish=finish,
        launch=none,
        latency_ns=min(graph.latency_ns for graph in graphs),
        pitch_ns=min(graph.pitch_ns for graph in graphs),
        order=order,
        parts=tuple(
            JoinedPart(
                graph,
                slice(at, until),
                *(slice(*each.first[[at, until]]) for each in (begin, finish)),
            )
            for graph, at, until in zip(graphs, first.tolist(), first[1:].tolist(), strict=False)
        ),
    )


def _arrivals(
    exchanges: Exchanges, start: Integers, end: Integers
) -> tuple[Integers, Integers, Mask]:
    """When the last part of each collective begins; the collective of each part, and if it waits.

    Collectives are in order of the first ends of parts that wait, which no part begins behind.
    """
    number = exchanges.number
    arrived = np.full(int(number.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(arrived, number, start[exchanges.item])
    waits = exchanges.together | (end[exchanges.item] >= arrived[number])
    ended = np.full(len(arrived), np.iinfo(np.int64).max)
    np.minimum.at(ended, number[waits], end[exchanges.item[waits]])
    by_end = np.argsort(np.where(ended < np.iinfo(np.int64).max, ended, arrived), kind="stable")
    place = np.empty(len(by_end), np.int64)
    place[by_end] = np.arange(len(by_end))
    return arrived[by_end], place[number], waits


def _returning(graph: Dependencies, item: Integers) -> Dependencies:
    """The graph with an edge for each of these operations to end behind; on nothing as yet."""
    edges = graph.finish
    at = edges.first[item]
    first = edges.first + np.searchsorted(item, np.arange(len(edges.first)))
    columns = ((edges.on, -1), (edges.lag_ns, 0), (edges.kind, Edge.LAUNCH))
    return replace(graph, finish=Edges(first, *(np.insert(old, at, new) for old, new in columns)))


def _concatenated(every: Sequence[Edges], more: int) -> Edges:
    """The edges of graphs one after the other, and none of so many items more."""
    firsts, ons = [np.zeros(1, np.int64)], []
    items = 0
    for edges in every:
        firsts.append(firsts[-1][-1] + edges.first[1:])
        ons.append(np.where(edges.on >= 0, edges.on + items, -1).astype(np.int32))
        items += len(edges.first) - 1
    firsts.append(np.full(more, firsts[-1][-1]))
    lag, kind = (np.concatenate([getattr(e, name) for e in every]) for name in ("lag_ns", "kind"))
    return Edges(np.concatenate(firsts), np.concatenate(ons), lag, kind)


def _order(
    graphs: Sequence[Dependencies], part_of: Integers, behind: Integers, count: int
) -> tuple[RowNumbers, Mask]:
    """All items in an order along all edges, and True for parts that it finds behind their arrival.

    Each item's level is the last collective that ended before it in its graph's own order. An
    arrival follows all items of lower levels; clocks that disagree may put a part behind it.
    """
    entries, levels, at = [], [], 0
    later = np.zeros(len(part_of), bool)
    for graph in graphs:
        entry = graph.order.astype(np.int64)
        item = at + np.where(entry < 0, ~entry, entry)
        ends = (entry < 0) & (behind[item] >= 0)
        level = np.maximum.accumulate(np.where(ends, 2 * behind[item] + 1, 0))
        begins = (entry >= 0) & (part_of[item] >= 0)
        later[item[begins & (level > 2 * part_of[item])]] = True
        entries.append(np.where(entry < 0, ~item, item))
        levels.append(level)
        at += len(graph)
    entries.append(at + np.arange(count))
    levels.append(2 * np.arange(count))
    order = np.argsort(np.concatenate(levels), kind="stable")
    return row_numbers(np.concatenate(entries)[order]), later
