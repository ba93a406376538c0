"""The graph of a rank, and what its items are spent on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview.base.tables import Array, Integers, RowNumbers
from traceview.traces.facts import kernel_classes, operations
from traceview.traces.facts.dependencies.graph import Dependencies, Edge
from traceview.traces.facts.forecast import model
from traceview.traces.facts.steps.steps import step_of_operations, steps
from traceview.traces.ranks import rank_windows, sent
from traceview.traces.trace import Trace

LEAST_OF_LAUNCHES = 0.05
"""A thread that launches a smaller part of a rank's work does not set its pace."""


def rank_graphs(
    trace: Trace, owners: Mapping[rank_windows.RankOwner, tuple[Integers, RowNumbers]]
) -> dict[rank_windows.RankOwner, sent.RankGraph]:
    """The graph of each rank of a recording, by its owner; empty where no launches were recorded.

    With each owner come the rows of its loop in the table of steps, and the operation of each of
    its collectives.
    """
    replayed, graph = model(trace), model(trace).graph
    if not (graph.launch >= 0).any():
        return {}
    packed, item = sent.PackedGraph.of(graph, replayed.call_ns), replayed.item_of_operation
    result = {}
    for owner, (loop, collective) in owners.items():
        step, pool = _spent_on(trace, graph, owner, loop)
        columns = (sent.SentColumn.of(each) for each in (step, pool, item[collective]))
        result[owner] = sent.RankGraph(packed, *columns)
    return result


def _spent_on(
    trace: Trace, graph: Dependencies, owner: rank_windows.RankOwner, loop: Integers
) -> tuple[RowNumbers, Array]:
    """The step and the pool of each item that is the rank's."""
    ops, all_steps = operations.operations(trace), steps(trace)
    step, pool = np.full(len(graph), -1, np.int32), np.zeros(len(graph), np.uint8)
    own = (ops.device == owner.device) & (ops.process == owner.process)
    operation = np.flatnonzero(own[graph.operation])
    position = np.full(len(all_steps) + 1, -1, np.int32)
    position[loop] = np.arange(len(loop))
    items = graph.calls + operation
    step[items] = position[step_of_operations(trace)[graph.operation[operation]]]
    exchanges = kernel_classes.communication_operations(trace)[graph.operation[operation]]
    pool[items[~exchanges]] = sent.Pool.WORK
    launch = graph.launch[operation]
    threads, count = np.unique(graph.thread[launch[launch >= 0]], return_counts=True)
    threads = threads[count >= LEAST_OF_LAUNCHES * count.sum()]
    launching = np.isin(graph.thread, threads)
    edges = graph.begin
    handed = np.flatnonzero((edges.kind == Edge.HAND_OVER) & (edges.on >= 0))
    # What a thread in between does before it hands back is the launching thread's time, too.
    between = edges.of[handed[launching[edges.on[handed]]]]
    calls = np.union1d(np.flatnonzero(launching), between)
    pool[calls] = sent.Pool.CPU
    if len(loop):
        begin = all_steps.cpu_start_ns[loop]
        at = np.searchsorted(begin, graph.start_ns[calls], side="right") - 1
        inside = graph.start_ns[calls] < all_steps.cpu_end_ns[loop[-1]]
        step[calls] = np.where(inside, at, -1)
    return step, pool
