"""The rules for causes, on arrays: one gap from 100 to 200 ns, or 1,000 times that."""

import numpy as np
import pytest

from tests.facts.arrays import api_calls, gaps_of, ints, operations
from traceview.facts.idle.causes import CpuTime, classify, ended_behind_copy, staging_time
from traceview.facts.idle.stream_order import EventWaits, find_predecessors
from traceview.facts.operations.operations import Kind
from traceview.vocabulary.causes import CAUSE_NAMES

NONE = EventWaits(ints([]), ints([]))


def one_gap(call, scale=1):
    """A kernel until 100, and one from 200 that `call` launched."""
    ops = operations([(0, 100 * scale), (200 * scale, 300 * scale)])
    return ops, *gaps_of(ops, api_calls([(0, 1), call]))


def cpu(**times):
    names = ("staging_ns", "graph_ns", "jit_ns", "loading_ns", "allocating_ns", "pinning_ns")
    names = (*names, "profiler_ns")
    return CpuTime(**{name: ints([times.get(name, 0)]) for name in names})


def cause_of(call, *, scale=1, behind_copy=False, drain=-1, **times):
    _, gaps, launches = one_gap(call, scale)
    [cause] = classify(gaps, launches, np.array([behind_copy]), ints([drain]), cpu(**times))
    return CAUSE_NAMES[cause]


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("launch-late", {}),
        ("sync-drain", {"drain": 0}),
        ("profiler", {"profiler_ns": 51, "drain": 0}),
        ("allocation", {"allocating_ns": 51, "profiler_ns": 51}),
        ("module-load", {"loading_ns": 51, "allocating_ns": 51}),
        ("jit-compile", {"jit_ns": 51, "loading_ns": 80}),
        ("module-load", {"jit_ns": 50, "loading_ns": 80}),
        ("graph-launch", {"graph_ns": 51, "loading_ns": 51}),
        ("copy-wait", {"staging_ns": 51, "graph_ns": 51}),
        # Half of the gap is not most of it.
        ("launch-late", {"profiler_ns": 50, "allocating_ns": 50, "loading_ns": 50}),
        # Behind a copy, but launched too late for that to matter.
        ("launch-late", {"behind_copy": True}),
    ],
)
def test_causes_of_a_late_launch(expected, given):
    assert cause_of((150, 160), **given) == expected


@pytest.mark.parametrize(("behind_copy", "expected"), [(False, "dependency"), (True, "copy-wait")])
def test_work_that_was_queued_in_time_waited_for_the_gpu(behind_copy, expected):
    assert cause_of((50, 60), behind_copy=behind_copy, allocating_ns=99) == expected


def test_a_launch_takes_up_to_50_us_to_start():
    assert cause_of((101_000, 150_001), scale=1_000) == "launch-late"
    assert cause_of((101_000, 149_000), scale=1_000) == "dependency"


def test_work_without_a_launch_call_is_unknown():
    ops = operations([(0, 100), (200, 300)], call=[0, -1])
    gaps, launches = gaps_of(ops, api_calls([(0, 1)]))
    cause = classify(gaps, launches, np.array([True]), ints([0]), cpu(loading_ns=99))

    assert [CAUSE_NAMES[each] for each in cause] == ["unknown"]


def test_time_of_the_call_of_a_pageable_upload_before_the_copy_ran():
    _, gaps, launches = one_gap((120, 400))

    assert staging_time(gaps, launches, np.array([True])).tolist() == [80]
    assert staging_time(gaps, launches, np.array([False])).tolist() == [0]


@pytest.mark.parametrize(("queued", "expected"), [(50, True), (101, False)])
def test_a_copy_that_had_ended_before_the_work_was_queued_held_nothing_up(queued, expected):
    ops = operations([(0, 100), (200, 300)], kind=[Kind.COPY, Kind.KERNEL])
    calls = api_calls([(0, 1), (40, queued)])
    gaps, launches = gaps_of(ops, calls)
    behind = find_predecessors(gaps, launches, ops, calls, NONE, ints([-1, 0]))

    assert behind.operation.tolist() == [0]
    assert ended_behind_copy(gaps, launches, behind, ops).tolist() == [expected]
