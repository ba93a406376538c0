"""The graph of a recording, bound, replayed and walked back, is the same with and without C."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.plain_library import without_c
from traceview.traces.facts.dependencies import blame
from traceview.traces.facts.dependencies.graph import Dependencies
from traceview.traces.facts.dependencies.recorded_graph import build
from traceview.traces.facts.dependencies.replay import Changed, replay
from traceview.traces.facts.idle.gap_bounds import gap_bounds
from traceview.traces.facts.operations import operations
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load


@pytest.fixture(params=["mlp_sync", "streams", "threads", "two_gpus"])
def trace(request: pytest.FixtureRequest, unpack: Callable[[str], Path]) -> Trace:
    return load(unpack(request.param))


def walked(trace: Trace, graph: Dependencies) -> blame.IdleParts:
    gaps = gap_bounds(trace)
    item = np.full(len(operations(trace)), -1, np.int32)
    item[graph.operation] = np.arange(len(graph.operation)) + graph.calls
    return blame.walk(graph, gaps.start_ns, gaps.end_ns, item[gaps.after])


def test_edges_are_bound_as_in_c(trace: Trace) -> None:
    graph, plain = build(trace), without_c(lambda: build(trace))
    for edges, others in ((graph.begin, plain.begin), (graph.finish, plain.finish)):
        for name in ("first", "on", "lag_ns", "kind"):
            assert getattr(edges, name).tolist() == getattr(others, name).tolist(), name


def test_replays_are_those_of_c(trace: Trace) -> None:
    graph = build(trace)

    def faster(changed: Changed) -> None:
        changed.own_ns[::3] //= 2

    times, plain = replay(graph, [faster]), without_c(lambda: replay(graph, [faster]))
    assert times.start_ns.tolist() == plain.start_ns.tolist()
    assert times.end_ns.tolist() == plain.end_ns.tolist()


def test_idle_time_is_walked_back_as_in_c(trace: Trace) -> None:
    graph = build(trace)
    parts, plain = walked(trace, graph), without_c(lambda: walked(trace, graph))
    assert len(parts) > 10
    for name in (field.name for field in fields(parts)):
        assert getattr(parts, name).tolist() == getattr(plain, name).tolist(), name
