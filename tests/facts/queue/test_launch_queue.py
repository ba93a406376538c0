"""Launch calls before a full queue: recorded by CUPTI, or inferred from depth and duration."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses import launch_overhead, run_ahead
from traceview.traces.facts.launches import FULL, queue_full

LIMIT = 1023
CALL, KERNEL = 4_000, 40_000


def filled(launches=1100, *, limit=LIMIT, extra=0):
    """Launches behind a long kernel: once `limit` are queued, a call lasts until one has ended."""
    export = Export()
    ends, now = [], 0
    free = 10_000_000
    for number in range(launches):
        start, took = now, CALL
        if number >= limit:
            took = max(CALL, ends[number - limit] - start + CALL)
        took += extra * (number % 50 == 0)
        export.launch((start, start + took), (free, free + KERNEL))
        ends.append(free + KERNEL)
        free += KERNEL
        now = start + took
    return export


def test_calls_at_the_plateau_that_last_far_longer_were_held_back(tmp_path):
    trace = filled().load(tmp_path)
    calls, found = trace.api_calls, queue_full(trace)
    took = calls["end_ns"] - calls["start_ns"]
    long = took > 4 * CALL
    assert long.sum() == 1100 - LIMIT
    assert not found.recorded
    assert found.held_ns.tolist() == [t - CALL if t > 4 * CALL else 0 for t in took.tolist()]


def test_held_time_is_no_launch_overhead_and_gives_the_verdict(tmp_path):
    result = ask(launch_overhead.ANALYSIS, filled(), tmp_path)
    row = next(result.tables["calls"].rows())
    assert row["total_ns"] == 1100 * CALL
    assert row["max_ns"] == CALL
    assert row["queue_full_ns"] == result.summary["queue_full_ns"] > 10_000_000 - LIMIT * CALL
    assert row["exposed_ns"] == 0
    assert "inferred" in result.notes[0]
    ahead = ask(run_ahead.ANALYSIS, filled(), tmp_path)
    assert rows(ahead, "devices", "verdict", "queue_full_ns") == [
        ("queue-full", row["queue_full_ns"])
    ]


@pytest.mark.parametrize("limit", [FULL - 100, 10**6])
def test_long_calls_behind_a_queue_that_is_not_full_are_overhead(tmp_path, limit):
    """Noise of 100 µs in one call of fifty, with up to 1,100 or 900 in the queue."""
    export = filled(FULL - 100, limit=limit, extra=100_000)
    result = ask(launch_overhead.ANALYSIS, export, tmp_path)
    assert result.summary["queue_full_ns"] == 0
    assert not result.notes
    ahead = ask(run_ahead.ANALYSIS, export, tmp_path)
    assert rows(ahead, "devices", "verdict") == [("gpu-bound",)]


def test_a_deep_queue_that_holds_nothing_back_is_not_full(tmp_path):
    ahead = ask(run_ahead.ANALYSIS, filled(1200, limit=10**6), tmp_path)
    assert rows(ahead, "devices", "verdict", "max_queue_depth") == [("gpu-bound", 1200)]


def test_a_record_of_cupti_is_taken_at_its_word(tmp_path):
    export = (
        Export("3.24.0")
        .launch((0, 5), (10, 1000))
        .launch((20, 500), (1000, 2000))
        .launch((510, 520), (2000, 3000), thread=1)
        .overhead(40, 490, kind="queue-full", name="Command Buffer Full")
        .overhead(511, 519, kind="queue-full", name="Command Buffer Full", process=2)
    )
    trace = export.load(tmp_path)
    assert queue_full(trace).recorded
    assert queue_full(trace).held_ns.tolist() == [0, 450, 0]
    result = ask(launch_overhead.ANALYSIS, export, tmp_path)
    assert rows(result, "calls", "total_ns", "queue_full_ns") == [(5 + 30 + 10, 450)]
    assert "recorded" in result.notes[0]


def test_held_time_inside_an_idle_gap_of_another_gpu_is_not_exposed_launching(tmp_path):
    export = (
        Export("3.24.0")
        .launch((0, 5), (10, 100), device=0)
        .launch((100, 900), (1000, 2000), device=0)
        .overhead(200, 900, kind="queue-full", name="Command Buffer Full")
    )
    result = ask(launch_overhead.ANALYSIS, export, tmp_path)
    assert rows(result, "calls", "exposed_ns") == [(100,)]


def test_two_streams_have_a_queue_each(tmp_path):
    """600 in each of two streams fill neither."""
    export = Export()
    for number in range(1200):
        stream, place = 7 + number % 2, number // 2
        took = 100_000 if number > 1150 else CALL
        start = 10_000_000 + KERNEL * place
        call = (100_000 * number, 100_000 * number + took)
        export.launch(call, (10**9 + start, 10**9 + start + KERNEL), stream=stream)
    assert queue_full(export.load(tmp_path)).held_ns.sum() == 0


def test_a_graph_is_one_entry_of_the_queue(tmp_path):
    export = Export()
    for number in range(20):
        start = 10_000_000 + 10_000 * number
        nodes = [(start + 100 * node, start + 100 * node + 90) for node in range(100)]
        took = 500_000 if number > 15 else CALL
        export.graph_launch((500_000 * number, 500_000 * number + took), nodes)
    assert queue_full(export.load(tmp_path)).held_ns.sum() == 0


def test_on_a_real_recording_the_plateau_is_found(unpack):
    """No shipped recording fills its queue: what is deep there is healthy."""
    from traceview.traces.trace.load import load

    for name in ("mlp_nosync", "mlp_sync"):
        assert queue_full(load(unpack(name))).held_ns.sum() == 0
