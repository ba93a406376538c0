"""The graph of a rank as it is sent to the process that compares the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from traceview.facts.dependencies.forecast import model
from traceview.facts.dependencies.graph import Dependencies, Edge, Edges
from traceview.facts.kernel_classes import communication_operations
from traceview.facts.operations import operations
from traceview.facts.steps.steps import step_of_operations, steps
from traceview.ranks.figures import SentColumn
from traceview.ranks.rank_windows import RankOwner
from traceview.records import record
from traceview.tables import Array, Integers, RowNumbers
from traceview.trace import Trace

LEAST_OF_LAUNCHES = 0.05
"""A thread that launches a smaller part of a rank's work does not set its pace."""


class Pool(IntEnum):
    """What an item is spent on."""

    OTHER = 0
    CPU = 1
    """A call of a thread that launches, and the thread's time before it."""
    WORK = 2
    """Work of the GPU that exchanges nothing."""


@record
class RankGraph:
    """The graph of a rank's model (facts.dependencies.forecast.model), packed until it is needed.

    By item, `step` is a row of RankSteps (−1: none), `pool` a Pool. `collective` has the item of
    each row of RankCollectives, −1 outside of the graph. Ranks of one recording share `packed`.
    """

    packed: PackedGraph
    step: SentColumn
    pool: SentColumn
    collective: SentColumn


@record
class PackedGraph:
    """What a replay needs of a graph of so many calls and items."""

    calls: int
    items: int
    latency_ns: int
    pitch_ns: int
    columns: Mapping[str, SentColumn]

    @classmethod
    def of(cls, graph: Dependencies) -> PackedGraph:
        columns = {
            "start": graph.start_ns,
            "duration": graph.end_ns - graph.start_ns,
            "less": graph.end_ns - graph.start_ns - graph.own_ns,
            "launch": graph.launch,
        }
        for name, edges in (("begin", graph.begin), ("finish", graph.finish)):
            columns |= {
                f"{name}_first": edges.first,
                # Most items wait for one close to them.
                f"{name}_back": edges.of - edges.on,
                f"{name}_lag": edges.lag_ns,
                f"{name}_kind": edges.kind,
            }
        packed = {name: SentColumn.of(column) for name, column in columns.items()}
        return cls(graph.calls, len(graph), graph.latency_ns, graph.pitch_ns, packed)

    def unpacked(self) -> Dependencies:
        column = {name: packed.unpacked() for name, packed in self.columns.items()}
        none = np.zeros(0, np.int32)
        return Dependencies(
            calls=self.calls,
            call=none,
            operation=none,
            item_of_call=none,
            thread=none,
            does=none,
            start_ns=column["start"],
            end_ns=column["start"] + column["duration"],
            own_ns=column["duration"] - column["less"],
            begin=_edges(column, "begin"),
            finish=_edges(column, "finish"),
            launch=column["launch"],
            latency_ns=self.latency_ns,
            pitch_ns=self.pitch_ns,
        )


def _edges(column: Mapping[str, Array], name: str) -> Edges:
    first = column[f"{name}_first"]
    of = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
    lag, kind = column[f"{name}_lag"], column[f"{name}_kind"]
    return Edges(first, of - column[f"{name}_back"], lag, kind)


def rank_graphs(
    trace: Trace, owners: Mapping[RankOwner, tuple[Integers, RowNumbers]]
) -> dict[RankOwner, RankGraph]:
    """The graph of each rank of a recording, by its owner; empty where no launches were recorded.

    With each owner come the rows of its loop in the table of steps, and the operation of each of
    its collectives.
    """
    graph = model(trace).graph
    if not (graph.launch >= 0).any():
        return {}
    packed, item = PackedGraph.of(graph), model(trace).item_of_operation
    result = {}
    for owner, (loop, collective) in owners.items():
        step, pool = _spent_on(trace, graph, owner, loop)
        columns = (SentColumn.of(each) for each in (step, pool, item[collective]))
        result[owner] = RankGraph(packed, *columns)
    return result


def _spent_on(
    trace: Trace, graph: Dependencies, owner: RankOwner, loop: Integers
) -> tuple[RowNumbers, Array]:
    """The step and the pool of each item that is the rank's."""
    ops, all_steps = operations(trace), steps(trace)
    step, pool = np.full(len(graph), -1, np.int32), np.zeros(len(graph), np.uint8)
    own = (ops.device == owner.device) & (ops.process == owner.process)
    operation = np.flatnonzero(own[graph.operation])
    position = np.full(len(all_steps) + 1, -1, np.int32)
    position[loop] = np.arange(len(loop))
    items = graph.calls + operation
    step[items] = position[step_of_operations(trace)[graph.operation[operation]]]
    exchanges = communication_operations(trace)[graph.operation[operation]]
    pool[items[~exchanges]] = Pool.WORK
    launch = graph.launch[operation]
    threads, count = np.unique(graph.thread[launch[launch >= 0]], return_counts=True)
    threads = threads[count >= LEAST_OF_LAUNCHES * count.sum()]
    launching = np.isin(graph.thread, threads)
    edges = graph.begin
    handed = np.flatnonzero((edges.kind == Edge.HAND_OVER) & (edges.on >= 0))
    # What a thread in between does before it hands back is the launching thread's time, too.
    between = edges.of[handed[launching[edges.on[handed]]]]
    calls = np.union1d(np.flatnonzero(launching), between)
    pool[calls] = Pool.CPU
    if len(loop):
        begin = all_steps.cpu_start_ns[loop]
        at = np.searchsorted(begin, graph.start_ns[calls], side="right") - 1
        inside = graph.start_ns[calls] < all_steps.cpu_end_ns[loop[-1]]
        step[calls] = np.where(inside, at, -1)
    return step, pool
