"""The graphs of several ranks as one: a collective ends once its last rank has begun it.

Behind the graphs follows an item for each collective, the arrival of its last rank: it begins
behind the begins of all its parts, and each part ends behind it, its transfer later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from traceview import groups
from traceview.facts.dependencies.forecast import StepModel, cheaper
from traceview.facts.dependencies.graph import Dependencies, Edge, Edges
from traceview.facts.dependencies.replay import Changed, Edit, Times, replay
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, row_numbers


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
class Part:
    """One of the joined graphs, and where its items and edges are among all."""

    graph: Dependencies
    items: slice
    begin: slice
    finish: slice


@record
class Joined(Dependencies):
    """Graphs one after the other, and the arrivals. Calls are no longer its first items."""

    order: RowNumbers
    parts: tuple[Part, ...]

    def on(self, part: int, edit: Edit) -> Edit:
        """An edit of one of the graphs as an edit of all."""
        own = self.parts[part]
        return lambda changed: edit(changed.part(own.graph, own.items, own.begin, own.finish))


@record
class JointModel(StepModel):
    """Steps of several ranks: a step ends when the last of them has ended it."""

    graph: Joined

    @cached_property
    def recorded(self) -> Integers:
        """The time of each step as replayed unchanged: clocks that drift differ by some ppm."""
        return self.durations(replay(self.graph))

    @property
    def misfit(self) -> float:
        """How far the unchanged replay is from the recordings, as a fraction of their time."""
        recorded = int(self.durations(Times(self.graph.start_ns, self.graph.end_ns)).sum())
        return abs(int(self.recorded.sum()) - recorded) / max(recorded, 1)

    def cheaper(self, changed: Changed) -> None:
        for part in range(len(self.graph.parts)):
            self.graph.on(part, cheaper)(changed)


def joined(graphs: Sequence[Dependencies], exchanges: Exchanges) -> Joined:
    """The graphs, whose times are on one clock, with their exchanges."""
    sizes = np.array([len(graph) for graph in graphs], np.int64)
    offset = np.cumsum(sizes) - sizes
    start, end, own = (
        np.concatenate([getattr(graph, name) for graph in graphs])
        for name in ("start_ns", "end_ns", "own_ns")
    )
    arrived = np.full(int(exchanges.number.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(arrived, exchanges.number, start[exchanges.item])
    waits = exchanges.together | (end[exchanges.item] >= arrived[exchanges.number])
    waiting, of = exchanges.item[waits], exchanges.number[waits]
    # In order of the first ends of parts that wait, which no part begins behind.
    ended = arrived.copy()
    ended[of] = np.iinfo(np.int64).max
    np.minimum.at(ended, of, end[waiting])
    by_end = np.argsort(ended, kind="stable")
    place = np.empty(len(by_end), np.int64)
    place[by_end] = np.arange(len(by_end))
    arrived, number = arrived[by_end], place[exchanges.number]
    part_of = np.full(len(start), -1, np.int64)
    part_of[exchanges.item] = number
    order, later = _order(graphs, offset, part_of, groups.marked(waiting, len(start)), len(arrived))
    lag = (end[exchanges.item] - arrived[number])[waits]
    own[waiting] = np.minimum(own[waiting], np.maximum(lag, 0))
    arrival = len(start) + number
    begin = _edges(
        [(graph.begin, at) for graph, at in zip(graphs, offset.tolist(), strict=True)],
        (arrival[~later[exchanges.item]], exchanges.item[~later[exchanges.item]], 0),
        len(start) + len(arrived),
    )
    finish = _edges(
        [(graph.finish, at) for graph, at in zip(graphs, offset.tolist(), strict=True)],
        (waiting, arrival[waits], lag),
        len(start) + len(arrived),
    )
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
        begin=begin,
        finish=finish,
        launch=none,
        latency_ns=min(graph.latency_ns for graph in graphs),
        pitch_ns=min(graph.pitch_ns for graph in graphs),
        order=order,
        parts=tuple(
            Part(
                graph,
                slice(at, at + len(graph)),
                _slice(begin, graph.begin, at),
                _slice(finish, graph.finish, at),
            )
            for graph, at in zip(graphs, offset.tolist(), strict=True)
        ),
    )


def _slice(every: Edges, own: Edges, at: int) -> slice:
    first = int(every.first[at])
    return slice(first, first + len(own.on))


def _order(
    graphs: Sequence[Dependencies], offset: Integers, part_of: Integers, waits: Mask, count: int
) -> tuple[RowNumbers, Mask]:
    """All items in an order along all edges, and True for parts that it finds behind their arrival.

    Each item's level is the last collective that ended before it in its graph's own order. An
    arrival follows all items of lower levels; clocks that disagree may put a part behind it.
    """
    entries, levels = [], []
    later = np.zeros(len(part_of), bool)
    for graph, at in zip(graphs, offset.tolist(), strict=True):
        number, ending = (each[at : at + len(graph)] for each in (part_of, waits))
        entry = _returning(graph, np.flatnonzero(ending)).order.astype(np.int64)
        item = np.where(entry < 0, ~entry, entry)
        ends = (entry < 0) & ending[item]
        level = np.maximum.accumulate(np.where(ends, 2 * number[item] + 1, 0))
        begins = (entry >= 0) & (number[item] >= 0)
        later[at + item[begins & (level > 2 * number[item])]] = True
        entries.append(np.where(entry < 0, entry - at, entry + at))
        levels.append(level)
    entries.append(len(part_of) + np.arange(count))
    levels.append(2 * np.arange(count))
    order = np.argsort(np.concatenate(levels), kind="stable")
    return row_numbers(np.concatenate(entries)[order]), later


def _returning(graph: Dependencies, item: Array) -> Dependencies:
    """The graph with edges behind which these items end, so that its order says where they do."""
    return replace(graph, finish=_edges([(graph.finish, 0)], (item, item, 0), len(graph)))


def _edges(
    graphs: Sequence[tuple[Edges, int]],
    added: tuple[Array, Array, Array | int],
    items: int,
) -> Edges:
    """The edges of the graphs, moved to where their items are, and others: item, on and lag."""
    item, behind, lag = added
    of = np.concatenate([*(edges.of + at for edges, at in graphs), item])
    on = np.concatenate(
        [*(np.where(edges.on >= 0, edges.on + at, -1) for edges, at in graphs), behind]
    )
    lags = np.concatenate(
        [*(edges.lag_ns for edges, _ in graphs), np.broadcast_to(lag, len(item))]
    ).astype(np.int64)
    # Of a part its begin counts, of an arrival its end, which is its begin.
    kind = np.concatenate(
        [*(edges.kind for edges, _ in graphs), np.full(len(item), Edge.LAUNCH, np.uint8)]
    )
    order = np.argsort(of, kind="stable")
    first = np.append(0, np.cumsum(np.bincount(of, minlength=items)))
    return Edges(first, row_numbers(on[order]), lags[order], kind[order])
