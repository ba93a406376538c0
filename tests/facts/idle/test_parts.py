"""The cause of each part of an idle gap: one small recording per rule, with exact times."""

import numpy as np
import pytest

from tests.build import Export
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.gap_bounds import gap_bounds
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.trace import Trace

SYNC = "cudaStreamSynchronize_v3020"
US = 1_000


def first(export: Export | None = None) -> Export:
    """A kernel from 10 to 100 µs, launched at once: the gap after it begins at 100 µs."""
    return (export or Export()).launch((0, 5 * US), (10 * US, 100 * US))


def parts_of(trace: Trace) -> list[tuple[str, int]]:
    """Cause and length of each part, in order of time; those of each gap sum to it."""
    every, bounds = gaps(trace), gap_bounds(trace)
    sums = np.bincount(every.gap, every.idle_ns, minlength=len(bounds))
    assert sums.tolist() == bounds.idle_ns.tolist()
    assert (every.idle_ns > 0).all()
    names = [CAUSE_NAMES[cause] for cause in every.cause.tolist()]
    return list(zip(names, every.idle_ns.tolist(), strict=True))


def parts(export: Export, folder) -> list[tuple[str, int]]:
    return parts_of(export.load(folder))


ONE_CAUSE = {
    "launch-late": first().launch((300 * US, 305 * US), (310 * US, 400 * US)),
    "allocation": first()
    .call("cudaMalloc_v3020", 100 * US, 300 * US)
    .launch((300 * US, 305 * US), (310 * US, 400 * US)),
    "module-load": first()
    .call("cuModuleLoadData", 100 * US, 300 * US)
    .launch((300 * US, 305 * US), (310 * US, 400 * US)),
    "graph-launch": first()
    .call("cudaGraphInstantiate", 100 * US, 300 * US)
    .graph_whole((300 * US, 305 * US), (310 * US, 400 * US)),
    "profiler": first()
    .overhead(100 * US, 300 * US, name="flush")
    .launch((300 * US, 305 * US), (310 * US, 400 * US)),
}


@pytest.mark.parametrize("cause", ONE_CAUSE)
def test_what_the_thread_did_until_the_launch_is_the_cause(cause, tmp_path):
    """200 µs of it, and 10 µs of the launch, which is no part of it."""
    found = parts(ONE_CAUSE[cause], tmp_path)

    assert sum(length for name, length in found if name == cause) >= 200 * US
    assert sum(length for _, length in found) == 210 * US


LAST = 20


@pytest.mark.parametrize("load", ["cuModuleLoadData", "cuModuleLoadDataEx", "cuLibraryLoadData"])
@pytest.mark.parametrize(
    ("unload", "at_us", "once"),
    [
        (None, 0, True),
        # The end of the program, or a program that loads code again and again.
        ("cuModuleUnload", 400 * LAST + 900, True),
        ("cuModuleUnload", 700, False),
        ("cuLibraryUnload", 700, False),
    ],
)
def test_the_first_run_of_a_variant_is_a_first_use(load, unload, at_us, once, tmp_path):
    """A compiler of kernels works on each of them, loads it, and launches all by one name."""
    export = first()
    for number in range(1, LAST):
        at = 400 * number * US
        export.call(load, at, at + 10 * US)
        times = (at + 12 * US, at + 15 * US), (at + 20 * US, at + 100 * US)
        export.launch(*times, api="cuLaunchKernelEx" if number % 2 else "cuLaunchKernel")
    if unload:
        export.call(unload, at_us * US, at_us * US + US)
    trace = export.load(tmp_path)

    every = gaps(trace)
    late = np.array(CAUSE_NAMES)[every.cause] == "launch-late"
    # What a kernel of a new name needs is a first use in any case.
    assert set(every.one_time[late].tolist()) == {once}


def test_each_nanosecond_of_a_pass_through_two_calls_counts_once(tmp_path):
    export = (
        first()
        .call("cudaMalloc_v3020", 110 * US, 200 * US)
        .call("cuModuleLoadData", 230 * US, 280 * US)
        .launch((300 * US, 305 * US), (310 * US, 400 * US))
    )

    trace = export.load(tmp_path)

    assert parts_of(trace) == [
        ("launch-late", 10 * US),
        ("allocation", 90 * US),
        ("launch-late", 30 * US),
        ("module-load", 50 * US),
        ("launch-late", 30 * US),
    ]
    every = gaps(trace)
    names = trace.api_calls.texts("name")
    within = [names[call] if call >= 0 else None for call in every.within.tolist()]
    assert within == [None, "cudaMalloc", None, "cuModuleLoadData", None]
    assert every.count(every.cause == every.cause[0]) == 1


def test_work_that_waits_behind_other_work_is_a_dependency_from_its_launch_on(tmp_path):
    """Launched 100 µs after the GPU ran dry, it starts 500 µs later, and the first after 10 µs."""
    export = first().launch((200 * US, 205 * US), (700 * US, 800 * US))

    assert parts(export, tmp_path) == [("launch-late", 110 * US), ("dependency", 490 * US)]


def test_a_wait_drains_the_gpu_for_no_longer_than_it_lasted(tmp_path):
    """The thread waited for 30 µs. Without that, the launch would have come 30 µs earlier."""
    export = (
        first().sync(SYNC, 80 * US, 110 * US).launch((190 * US, 195 * US), (200 * US, 300 * US))
    )

    assert parts(export, tmp_path) == [("sync-drain", 30 * US), ("launch-late", 70 * US)]


def test_ordinary_work_of_launching_after_a_long_wait_is_due_to_it(tmp_path):
    export = (
        first().sync(SYNC, 10 * US, 105 * US).launch((140 * US, 145 * US), (150 * US, 300 * US))
    )

    assert parts(export, tmp_path) == [("sync-drain", 50 * US)]


def test_a_long_pause_after_a_wait_is_late_for_its_own_reason(tmp_path):
    """Longer than OWN_WORK_NS: the thread does something other than launch."""
    export = (
        Export()
        .launch((0, 5 * US), (10 * US, 5_000 * US))
        .sync(SYNC, 10 * US, 5_005 * US)
        .launch((6_505 * US, 6_510 * US), (6_515 * US, 6_600 * US))
    )

    assert parts(export, tmp_path) == [
        ("sync-drain", 5 * US),
        ("launch-late", 1_500 * US),
        ("sync-drain", 10 * US),
    ]


def test_a_call_after_a_wait_keeps_its_own_cause(tmp_path):
    """What a wait began need not be what held the next launch up."""
    export = (
        first()
        .sync(SYNC, 10 * US, 105 * US)
        .call("cudaMallocAsync_v11020", 110 * US, 400 * US)
        .launch((405 * US, 410 * US), (415 * US, 500 * US))
    )

    found = parts(export, tmp_path)

    assert found[1] == ("allocation", 290 * US)
    assert [name for name, _ in found] == ["sync-drain", "allocation", "sync-drain"]


def test_nested_calls_count_once_as_the_outer_one(tmp_path):
    """cudaMalloc calls the driver, whose call lies inside of it."""
    export = (
        first()
        .call("cudaMalloc_v3020", 100 * US, 300 * US)
        .call("cuMemAlloc_v2", 120 * US, 280 * US)
        .launch((300 * US, 305 * US), (310 * US, 400 * US))
    )

    trace = export.load(tmp_path)

    assert parts_of(trace) == [("allocation", 200 * US), ("launch-late", 10 * US)]
    assert trace.api_calls.texts("name")[int(gaps(trace).within[0])] == "cudaMalloc"


def in_turns(apart: bool) -> Export:
    """Thread 0 launches ten kernels and allocates for 100 µs, then thread 1 launches ten.

    As in PyTorch, whose autograd works while the main thread waits for it; unless `apart`, where
    thread 1 makes a call in the allocation, too.
    """
    export, now = Export(), 0
    for _ in range(4):
        for thread in (0, 1):
            for _ in range(10):
                export.launch((now, now + 5 * US), (now + 10 * US, now + 12 * US), thread=thread)
                now += 20 * US
            if thread == 0:
                export.call("cudaMalloc_v3020", now, now + 100 * US, thread=0)
                if apart:
                    export.call("cudaEventQuery", now + 50 * US, now + 51 * US, thread=1)
                now += 110 * US
    return export


@pytest.mark.parametrize("apart", [False, True])
def test_threads_that_take_turns_answer_for_each_other(apart, tmp_path):
    trace = in_turns(apart).load(tmp_path)

    every = gaps(trace)
    allocating = np.flatnonzero(every.cause == CAUSE_NAMES.index("allocation"))

    if apart:
        assert not len(allocating)
        return
    assert every.idle_ns[allocating].tolist() == 4 * [100 * US]
    by, ended_by = every.thread[allocating], every.thread[allocating + 1]
    assert (by != ended_by).all()
    names = [CAUSE_NAMES[cause] for cause in every.cause[every.gap == every.gap[allocating[0]]]]
    assert names == ["launch-late", "allocation", "launch-late"]
    parts_of(trace)


def test_what_other_threads_do_is_no_cause_where_they_take_no_turns(tmp_path):
    export = (
        first()
        .call("cudaMalloc_v3020", 100 * US, 300 * US, thread=1)
        .launch((300 * US, 305 * US), (310 * US, 400 * US))
    )

    assert parts(export, tmp_path) == [("launch-late", 210 * US)]


def test_work_without_a_recorded_launch_is_unknown(tmp_path):
    export = first().kernel_without_launch((300 * US, 400 * US))

    assert parts(export, tmp_path) == [("unknown", 200 * US)]


def test_kernels_that_start_before_their_launch_by_the_clocks(tmp_path):
    """The clocks of CPU and GPU are 3 µs apart: no part is negative, and the sums hold."""
    export = Export()
    for number in range(20):
        now = 60 * US * number
        export.launch((now, now + 5 * US), (now - 3 * US, now + 1 * US))

    found = parts(export, tmp_path)

    assert {name for name, _ in found} == {"launch-late"}
    assert sum(length for _, length in found) == 19 * 56 * US


def test_calls_and_work_of_no_length(tmp_path):
    export = (
        first()
        .call("cudaMalloc_v3020", 150 * US, 150 * US)
        .launch((200 * US, 200 * US), (250 * US, 250 * US))
        .launch((300 * US, 300 * US), (310 * US, 400 * US))
    )

    assert parts(export, tmp_path) == [("launch-late", 210 * US)]


def test_compilation_takes_the_place_of_late_launches(tmp_path):
    export = first().range("CompileFxGraph", 100 * US, 101 * US)
    export.launch((300 * US, 305 * US), (310 * US, 400 * US))

    assert sum(length for _, length in parts(export, tmp_path)) == 210 * US
