"""The range that a launch belongs to, whichever thread made it and however the range was opened."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Export
from traceview.traces.facts.ranges.ranges import (
    attributed_operations,
    pattern_of,
    patterns_of,
    range_tree,
)
from traceview.traces.trace import Trace

MAIN, AUTOGRAD, WORKER = 0, 4, 5


def found(trace: Trace) -> list[tuple[str, bool]]:
    """Path of each operation in order of start, and whether it was inferred."""
    tree, place = range_tree(trace), attributed_operations(trace)
    texts = [tree.paths[path] if path >= 0 else "" for path in place.path(tree)]
    return list(zip(texts, place.inferred.tolist(), strict=True))


def both(export: Export, folder: Path) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """What is found as usual, and strictly."""
    trace = export.load(folder)
    return found(trace), found(trace.but(strict=True))


def test_autograds_launches_are_in_the_range_open_on_the_main_thread(tmp_path):
    export = (
        Export()
        .range("step_0", 0, 100)
        .range("backward", 10, 50)
        .launch((20, 21), (200, 210), thread=AUTOGRAD)
        .launch((60, 61), (210, 220), thread=AUTOGRAD)
        .launch((30, 31), (220, 230))
        .launch((150, 151), (230, 240), thread=AUTOGRAD)
    )

    usual, strict = both(export, tmp_path)

    assert usual == [
        ("step_0/backward", True),
        ("step_0", True),
        ("step_0/backward", False),
        ("", False),
    ]
    assert strict == [("", False), ("", False), ("step_0/backward", False), ("", False)]


def test_ranges_of_an_autograd_thread_continue_those_of_the_main_thread(tmp_path):
    export = (
        Export()
        .named_thread(AUTOGRAD, "pt_autograd_0")
        .range("step_0", 0, 100)
        .range("backward", 10, 50)
        .range("AddmmBackward0", 20, 30, thread=AUTOGRAD)
        .range("inner", 22, 26, thread=AUTOGRAD)
        .launch((23, 24), (200, 210), thread=AUTOGRAD)
        .launch((27, 28), (210, 220), thread=AUTOGRAD)
        .launch((35, 36), (220, 230), thread=AUTOGRAD)
    )

    usual, strict = both(export, tmp_path)

    assert usual == [
        ("step_0/backward/AddmmBackward0/inner", True),
        ("step_0/backward/AddmmBackward0", True),
        ("step_0/backward", True),
    ]
    assert strict == [("AddmmBackward0/inner", False), ("AddmmBackward0", False), ("", False)]


def test_a_range_that_outlasts_the_main_threads_hangs_under_one_that_does_not(tmp_path):
    export = (
        Export()
        .named_thread(AUTOGRAD, "pt_autograd_0")
        .range("step_0", 0, 100)
        .range("backward", 10, 50)
        .range("late", 20, 60, thread=AUTOGRAD)
        .range("later", 70, 120, thread=AUTOGRAD)
        .launch((40, 41), (200, 210), thread=AUTOGRAD)
        .launch((80, 81), (210, 220), thread=AUTOGRAD)
    )

    assert found(export.load(tmp_path)) == [("step_0/late", True), ("later", False)]


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("cuBLAS", ("step_0/gemm", True)),
        ("NCCL", ("step_0/gemm", True)),
        ("mine", ("gemm", False)),
        (None, ("gemm", False)),
    ],
)
def test_a_librarys_range_does_not_make_a_worker_thread_its_own_program(tmp_path, domain, expected):
    export = (
        Export()
        .range("step_0", 0, 100)
        .range("gemm", 20, 30, thread=WORKER, domain=domain)
        .launch((25, 26), (200, 210), thread=WORKER)
    )

    usual, strict = both(export, tmp_path)

    assert usual == [expected]
    assert strict == [("gemm", False)]


def test_a_worker_with_ranges_of_its_own_keeps_them(tmp_path):
    export = (
        Export()
        .range("step_0", 0, 100)
        .range("prefetch", 20, 30, thread=WORKER)
        .launch((25, 26), (200, 210), thread=WORKER)
    )

    assert found(export.load(tmp_path)) == [("prefetch", False)]


def test_two_workers_with_ranges_leave_a_third_threads_launch_out(tmp_path):
    export = (
        Export()
        .range("one", 0, 60, thread=1)
        .range("two", 40, 100, thread=2)
        .launch((10, 11), (200, 210), thread=3)
        .launch((50, 51), (210, 220), thread=3)
        .launch((70, 71), (220, 230), thread=3)
    )

    assert found(export.load(tmp_path)) == [("one", True), ("", False), ("two", True)]


def test_the_main_thread_of_another_process_lends_nothing(tmp_path):
    export = (
        Export()
        .range("theirs", 0, 100, process=2)
        .launch((10, 11), (200, 210), thread=AUTOGRAD, process=1)
    )

    assert found(export.load(tmp_path)) == [("", False)]


def test_a_start_end_range_that_overlaps_without_nesting(tmp_path):
    # outer 0───────────────60        what started last and is open counts
    #        request 40──────────80
    export = (
        Export()
        .range("outer", 0, 60)
        .range("request", 40, 80, kind="start-end")
        .launch((10, 11), (200, 210))
        .launch((50, 51), (210, 220))
        .launch((70, 71), (220, 230))
    )

    paths = [path for path, _ in found(export.load(tmp_path))]
    assert paths == ["outer", "request", "request"]


def test_a_range_that_ends_on_another_thread_is_open_on_the_one_that_began_it(tmp_path):
    export = (
        Export()
        .range("handed over", 0, 60, thread=WORKER, kind="start-end", end_thread=WORKER + 1)
        .launch((10, 11), (200, 210), thread=WORKER)
        .launch((30, 31), (210, 220), thread=WORKER + 1)
        .launch((70, 71), (220, 230), thread=WORKER + 1)
    )

    usual, strict = both(export, tmp_path)

    assert usual == [("handed over", False), ("handed over", True), ("", False)]
    assert strict == [("handed over", False), ("", False), ("", False)]


@pytest.mark.parametrize("registered", [False, True], ids=["text", "registered"])
def test_domains_of_one_thread_nest_in_each_other(tmp_path, registered):
    export = (
        Export(registered_names=registered)
        .range("step", 0, 100)
        .range("layer", 10, 60, domain="model")
        .range("gemm", 20, 50, domain="cuBLAS")
        .range("tail", 40, 80, domain="other")  # crosses layer and gemm
        .launch((30, 31), (200, 210))
        .launch((45, 46), (210, 220))
        .launch((55, 56), (220, 230))
        .launch((70, 71), (230, 240))
    )

    paths = [path for path, _ in found(export.load(tmp_path))]
    assert paths == ["step/layer/gemm", "step/tail", "step/tail", "step/tail"]


def test_notes_of_ours_are_no_ranges_of_the_program(tmp_path):
    export = (
        Export()
        .range("step", 0, 100)
        .range("train.py:31 in step: loss.item()", 10, 20, domain="traceview")
        .range("traceview:sync:train.py:32 in step: loss.item()", 30, 40)
        .launch((15, 16), (200, 210))
        .launch((35, 36), (210, 220))
    )
    trace = export.load(tmp_path)

    assert found(trace) == [("step", False), ("step", False)]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("step_12/layer 3", "step_#/layer #"),
        (
            "step_1/aten::mm, seq = 12, op_id = 34, sizes = [[4096, 2048], [2048, 1024]], "
            "input_op_ids = [(3,0), (4,0)]/aten::copy_, op_id = 35",
            "step_#/aten::mm/aten::copy_",
        ),
        ("read, seq = many", "read, seq = many"),
    ],
)
def test_a_pattern_has_no_numbers_and_operators_no_arguments(text, pattern):
    assert pattern_of(text) == pattern


@given(st.lists(st.text(alphabet="aZ09_:7#\0é٣ ", max_size=12), min_size=1))
def test_patterns_of_many_texts_are_those_of_each(texts):
    assert patterns_of(texts) == [pattern_of(text) for text in texts]
