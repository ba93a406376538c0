"""The ranges that launched the kernels."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS


def test_each_kernel_counts_once_under_its_innermost_range(tmp_path):
    #  step_0 0─────────────────────────────100
    #    forward 5──────────40
    #      layer 10──20  layer 25──35
    export = (
        Export()
        .range("step_0", 0, 100)
        .range("forward", 5, 40)
        .range("layer", 10, 20)
        .range("layer", 25, 35)
        .launch((12, 13), (200, 210))  # layer, first instance
        .launch((26, 27), (210, 240))  # layer, second instance
        .launch((36, 37), (240, 245))  # forward alone
        .launch((50, 51), (245, 246))  # step_0 alone
        .launch((110, 111), (300, 307))  # no range
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "calls", "total_ns") == [
        ("step_0/forward/layer", 2, 40),
        ("(unattributed)", 1, 7),
        ("step_0/forward", 1, 5),
        ("step_0", 1, 1),
    ]
    assert rows(result, "ranges_inclusive", "range_path", "calls", "total_ns") == [
        ("step_0", 4, 46),
        ("step_0/forward", 3, 45),
        ("step_0/forward/layer", 2, 40),
    ]
    assert rows(result, "range_patterns", "range_pattern", "instances", "calls", "total_ns") == [
        ("step_#", 1, 4, 46),
        ("step_#/forward", 1, 3, 45),
        ("step_#/forward/layer", 2, 2, 40),
        ("(unattributed)", None, 1, 7),
    ]
    shares = [row[0] for row in rows(result, "ranges", "share_pct")]
    assert sum(shares) == pytest.approx(100.0, abs=1e-9)


def test_a_range_ends_before_the_instant_of_its_end(tmp_path):
    export = Export().range("a", 0, 10).launch((10, 12), (20, 30)).launch((9, 10), (30, 40))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("(unattributed)", 10), ("a", 10)]


def test_two_processes_with_the_same_correlation_ids(tmp_path):
    export = (
        Export()
        .range("left", 0, 10, process=1)
        .range("right", 0, 10, process=2)
        .launch((1, 2), (20, 25), process=1)
        .launch((1, 2), (20, 50), process=2)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("right", 30), ("left", 5)]


def test_a_thread_without_ranges_launches_for_the_main_thread(tmp_path):
    export = (
        Export()
        .range("backward", 0, 100)
        .launch((10, 11), (20, 30), thread=4)
        .launch((200, 201), (210, 220), thread=4)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "calls", "inferred_calls") == [
        ("(unattributed)", 1, 0),
        ("backward", 1, 1),
    ]


def test_two_worker_ranges_open_at_once_leave_it_unattributed(tmp_path):
    export = (
        Export()
        .range("one", 0, 100, thread=1)
        .range("two", 0, 100, thread=2)
        .launch((10, 11), (20, 30), thread=3)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path") == [("(unattributed)",)]


def test_a_kernel_without_a_launch_call_is_unattributed(tmp_path):
    export = Export().range("a", 0, 100).kernel_without_launch((20, 30))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("(unattributed)", 10)]


def test_nodes_of_a_graph_belong_to_its_launch(tmp_path):
    export = Export().range("replay", 0, 9).graph_launch((1, 2), [(10, 20), (20, 35)])

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "calls", "total_ns") == [("replay", 2, 25)]


def test_a_registered_name_and_a_range_that_never_ends(tmp_path):
    export = Export(registered_names=True).range("open", 0, None).launch((50, 51), (60, 70))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("open", 10)]


def test_warm_up_steps_can_be_left_out(tmp_path):
    export = Export()
    for step in range(3):
        start = 100 * step
        export.range(f"step_{step}", start, start + 50)
        export.launch((start + 1, start + 2), (start + 10, start + 20 + 10 * step))

    everything = ask(ANALYSIS, export, tmp_path)
    warm = ask(ANALYSIS, export, tmp_path, exclude=("step_0",))
    last = ask(ANALYSIS, export, tmp_path, include=("step_[12]",), exclude=("step_1",))

    totals = [rows(each, "kernels", "total_ns") for each in (everything, warm, last)]
    assert totals == [[(60,)], [(50,)], [(30,)]]


def test_the_summary_says_what_is_attributed_and_what_of_it_is_inferred(tmp_path):
    export = (
        Export()
        .range("backward", 0, 100)
        .launch((10, 11), (20, 30), thread=4)
        .launch((12, 13), (30, 50))
        .launch((200, 201), (210, 250))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert result.summary == {
        "kernel_calls": 3,
        "kernel_total_ns": 70,
        "attributed_ns": 30,
        "inferred_ns": 10,
    }
