"""Idle time before the first kernel of a GPU, which a longer run does not repeat."""

import pytest

from tests.build import Export
from traceview.traces.analyses.gpu_idle.findings import one_time
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.idle.launching import verdict


def loading(export: Export, arrays: int) -> Export:
    """Arrays copied one after the other, with 90 µs of CPU work before each."""
    for each in range(arrays):
        at = 100_000 * each
        export.copy((at, at + 9_000), (at + 1_000, at + 10_000), source="pageable")
    return export


@pytest.mark.parametrize("kernels", [0, 1, 3])
def test_a_gpu_that_only_loads_data_waits_for_no_launches(kernels, tmp_path):
    export = loading(Export(), 10)
    for each in range(kernels):
        at = 1_000_000 + 50_000 * each
        export.launch((at, at + 2_000), (at + 3_000, at + 20_000), name="k")
    trace = export.load(tmp_path)

    every = gaps(trace)

    loads = every.gap < 9 + (kernels > 0)
    assert every.one_time[loads].all()
    assert not every.one_time[~loads].any()
    assert (verdict(trace, 0) == "unknown") == (kernels < 2)


@pytest.mark.parametrize("uploads", [2, 5])
@pytest.mark.parametrize(("copy_us", "kernels", "once"), [(80, 1, False), (80, 9, True)])
def test_uploads_that_take_most_time_are_the_program(uploads, copy_us, kernels, once, tmp_path):
    """Files of 500 MB copied while threads read the next: 149 ms, 48 of waits, 9 of kernels."""
    export, at = Export(), 0
    for _ in range(uploads):
        end = at + copy_us * 1_000
        export.copy((at, end + 1_000), (at + 1_000, end), source="pageable")
        at += 100_000
    for _ in range(kernels):
        export.launch((at, at + 2_000), (at + 3_000, at + 60_000), name="k")
        at += 60_000

    every = gaps(export.load(tmp_path))

    assert every.one_time[every.gap < uploads - 1].all() == once


@pytest.mark.parametrize(
    ("steps", "long", "once"),
    [
        (30, [25], True),
        (30, [], False),
        (30, [14, 25], False),
        (9, [7], False),
    ],
)
@pytest.mark.parametrize("step_us", [200, 3_000])
def test_one_pause_of_many_steps_is_no_habit(steps, long, once, step_us, tmp_path):
    """433 ms before results were read were spread over 29 steps of 1 ms."""
    export, at = Export(), 0
    for number in range(steps):
        at += step_us * 1_000
        work = (at + 10_000, at + step_us * 500)
        export.launch((at, at + 5_000), work, name="k")
        export.call("cudaStreamSynchronize", at + 6_000, work[1])
        export.range(f"step {number}", at - 1_000, work[1] + 1_000)
        if number in long:
            at += 40 * step_us * 1_000
            export.launch((at, at + 5_000), (at + 10_000, at + 20_000), name="checkpoint")
    for number in range(3):
        at += step_us * 1_000
        export.launch((at, at + 5_000), (at + 10_000, at + 20_000), name=f"first use {number}")
    trace = export.load(tmp_path)
    every = gaps(trace)
    assert every.count(every.lone_pause) == once
    told = sum(claim.values.get("paused_ns", 0) for claim in one_time(trace))
    assert told == every.idle_ns[every.lone_pause].sum()
