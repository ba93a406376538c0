"""The graph of every shipped recording: replayed unchanged, and its idle time in parts."""

from __future__ import annotations

import numpy as np
import pytest

import traceview
from tests.places import DATA, REPOSITORY
from traceview.base.errors import TraceviewError
from traceview.traces.facts.dependencies.recorded_graph import dependencies
from traceview.traces.facts.dependencies.replay import replay
from traceview.traces.facts.forecast import model
from traceview.traces.facts.idle.gap_bounds import gap_bounds
from traceview.traces.facts.idle.gaps import every_gap

pytestmark = pytest.mark.slow

RECORDINGS = sorted(
    path
    for folder in (REPOSITORY / "examples", DATA)
    for kind in ("*.sqlite.xz", "*.json.xz")
    for path in folder.rglob(kind)
)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_an_unchanged_replay_is_the_recording_and_parts_sum_to_its_idle_time(path):
    try:
        trace = traceview.load(path)
    except TraceviewError:
        pytest.skip("no recording")
    graph = dependencies(trace)

    times = replay(graph)

    # Where clocks disagree edges are left out; the end of the run must be right to 1 %.
    run_ns = int(graph.end_ns.max(initial=0) - graph.start_ns.min(initial=0))
    assert np.abs(times.end_ns - graph.end_ns).max(initial=0) <= 0.01 * run_ns
    forecast = model(trace).forecast() if len(graph) else None
    assert forecast is None or abs(forecast.saved_ns) <= 0.01 * forecast.recorded_ns
    every, gaps = every_gap(trace), gap_bounds(trace)
    of_gap = np.bincount(every.gap, every.idle_ns, len(gaps)).astype(np.int64)
    assert np.array_equal(of_gap, gaps.idle_ns)
