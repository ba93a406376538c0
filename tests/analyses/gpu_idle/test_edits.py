"""Remedies as edits: what a replay says they save, for programs whose answer is known."""

import numpy as np
import pytest

import traceview
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.base.vocabulary.causes import (
    ALLOCATION,
    DEPENDENCY,
    LAUNCH_LATE,
    MODULE_LOAD,
    SYNC_DRAIN,
)
from traceview.render.report.document import claim
from traceview.traces.analyses.gpu_idle import line_sites, remedies
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.facts.dependencies.replay import replay
from traceview.traces.facts.forecast import model
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.idle.lines import IdleSamples
from traceview.traces.facts.operations import CallKind, api_calls
from traceview.traces.trace import Trace

US = 1_000
STEPS = 20
SYNC = "cudaStreamSynchronize_v3020"


def program(step) -> Export:
    """Steps in ranges of their own; `step(export, number, now)` returns when it ends."""
    export, now = Export(), 0
    for number in range(STEPS):
        end = step(export, number, now)
        export.range(f"step_{number}", now, end)
        now = end
    return export


def kernel(export: Export, now: int, length: int, took: int = 5 * US) -> int:
    """A kernel launched now, which starts 10 µs after the begin of a call of 5 µs."""
    start = now + max(10 * US, took)
    export.launch((now, now + took), (start, start + length))
    return now + took


def rows_of(trace: Trace, cause: int):
    every = gaps(trace)
    return np.flatnonzero((every.cause == cause) & ~every.one_time)


def saved_us(trace: Trace, edit) -> float:
    """What an edit saves per step, in µs, which is about 18 of 19 steps: the other has first uses.

    Where these are most of it, it does not count.
    """
    steps = model(trace)
    return steps.saved_ns(edit) / US * (1 if steps.set_aside else 19 / 18)


def short_kernels(export: Export, number: int, now: int) -> int:
    for place in range(10):
        kernel(export, now + 20 * US * place, 5 * US)
    return now + 200 * US


def test_launches_of_a_step_become_one(tmp_path):
    """Ten kernels of 5 µs take 200 µs; in a graph, 0.3 µs apart, and 1 µs behind another, 53.7."""
    trace = program(short_kernels).load(tmp_path)

    edit = remedies.of_cause(trace, LAUNCH_LATE, rows_of(trace, LAUNCH_LATE))

    # All work of the step goes with the first kernel of it, that of the first step too.
    assert saved_us(trace, edit) * 18 / 19 == pytest.approx(146.3, abs=1)


@pytest.mark.parametrize("between", [1, 2, 5])
@pytest.mark.parametrize("inside", [1, 4])
def test_launches_between_steps_become_one_in_each_pass(tmp_path, between, inside):
    """An optimizer behind each step: no call launches those of all steps."""
    export, now, kernels = Export(), 0, inside + between
    for number in range(STEPS):
        export.range(f"step_{number}", now, now + 20 * US * inside)
        for place in range(kernels):
            kernel(export, now + 20 * US * place, US)
        now += 20 * US * kernels
    trace = export.load(tmp_path)

    edit = remedies.of_cause(trace, LAUNCH_LATE, rows_of(trace, LAUNCH_LATE))

    # What is left of a pass: the two launches, with the pause behind each.
    assert (edit is None) == (kernels == 2)
    assert edit is None or saved_us(trace, edit) * 18 / 19 == pytest.approx(
        20 * (kernels - 2), abs=2 * kernels
    )


@pytest.mark.parametrize("number_bytes", [1, 4, 8, 4096])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["loop_add_fusion", "at::native::add"])
def test_numbers_that_threads_of_jax_copy_are_constants_within_jit(
    tmp_path, number_bytes, threads, name
):
    """Each operation outside jax.jit has its number copied by another thread, and waits for it."""

    def step(export, _, now):
        for place in range(10):
            at = now + 100 * US * place
            copied = (at + 15 * US, at + 16 * US)
            export.copy((at, at + 5 * US), copied, bytes=number_bytes, thread=5 + place % threads)
            start = at + 50 * US
            export.launch((start, start + 5 * US), (start + 10 * US, start + 11 * US), name=name)
        return now + 1_000 * US

    trace = program(step).load(tmp_path)
    edit = remedies.of_cause(trace, LAUNCH_LATE, rows_of(trace, LAUNCH_LATE))

    is_constant = name.startswith("loop") and number_bytes <= 8
    # All but the pause behind the last operation.
    assert (saved_us(trace, edit) > 800) == is_constant


def test_what_follows_a_wait_is_not_launched_before_it(tmp_path):
    """Five kernels, a wait, and five more: two launches, and the wait between them."""

    def step(export: Export, number: int, now: int) -> int:
        for place in range(5):
            kernel(export, now + 20 * US * place, 5 * US)
        export.sync(SYNC, now + 90 * US, now + 98 * US)
        for place in range(5):
            kernel(export, now + 100 * US + 20 * US * place, 5 * US)
        export.sync(SYNC, now + 190 * US, now + 198 * US)
        return now + 200 * US

    trace = program(step).load(tmp_path)

    edit = remedies.of_cause(trace, LAUNCH_LATE, rows_of(trace, LAUNCH_LATE))

    # Each half of 100 µs: the launch (10), five kernels and pauses (26), the way back from the wait
    # (3) and to the next launch (2): 41 µs.
    assert saved_us(trace, edit) == pytest.approx(2 * (100 - 41), abs=12)


@pytest.mark.parametrize("together", [1, 3, 5])
def test_what_follows_an_allocation_is_not_launched_before_it(tmp_path, together):
    """An allocation per few kernels: these are launched at once, behind it, and no lone kernel."""

    def step(export: Export, number: int, now: int) -> int:
        for _ in range(4):
            export.call("cudaMalloc_v3020", now, now + 50 * US)
            for place in range(together):
                kernel(export, now + 55 * US + 20 * US * place, 15 * US)
            now += 55 * US + 20 * US * together
        return now

    trace = program(step).load(tmp_path)

    edit = remedies.of_cause(trace, LAUNCH_LATE, rows_of(trace, LAUNCH_LATE))

    assert (edit is None) == (together == 1)
    of, times = model(trace), replay(model(trace).graph, [edit] if edit else [])
    assert len(of.item_of_operation) == STEPS * 4 * together
    allocated = of.calls(np.flatnonzero(api_calls(trace).does == CallKind.ALLOCATE))
    behind = np.repeat(times.end_ns[allocated], together)
    assert (times.start_ns[of.item_of_operation] >= behind).all()


@pytest.mark.parametrize("blocked", [(), (9,), (9, 17)])
def test_what_every_step_wins_does_not_hide_an_accident(tmp_path, blocked):
    """A launch call of 20 ms blocks the GPU; the CPU gets to it early where steps are shorter."""

    def step(export: Export, number: int, now: int) -> int:
        for place in range(30):
            long = 20_000 * US if number in blocked and place == 10 else 5 * US
            now = kernel(export, now, 40 * US, long) + 40 * US
        return now

    report = traceview.analyze(program(step).load(tmp_path))

    late = [row for row in report.findings if row.finding.cause == "launch-late" and row.forecast]
    each = [row.forecast.saved_per_step_ns for row in late if row.finding.general]
    assert len(each) == 1
    # Of the 45 µs from launch to launch the kernel takes 40: 30 times 5 µs in a step.
    assert each[0] == pytest.approx(150 * US, rel=0.1)


def test_calls_in_the_loop_are_not_made(tmp_path):
    def step(export: Export, number: int, now: int) -> int:
        export.call("cudaMalloc_v3020", now, now + 100 * US)
        return kernel(export, now + 100 * US, 5 * US) + 15 * US

    trace = program(step).load(tmp_path)

    assert saved_us(trace, remedies.of_cause(trace, ALLOCATION, rows_of(trace, ALLOCATION))) == (
        pytest.approx(100, abs=0.1)
    )
    assert remedies.of_cause(trace, MODULE_LOAD, rows_of(trace, MODULE_LOAD)) is None


def test_a_wait_is_not_waited_for(tmp_path):
    """A kernel of 100 µs, the way back from its wait (5), 25 µs of Python and a launch (10)."""

    def step(export: Export, number: int, now: int) -> int:
        kernel(export, now, 100 * US)
        export.sync(SYNC, now + 10 * US, now + 115 * US)
        return now + 140 * US

    trace = program(step).load(tmp_path)

    edit = remedies.of_cause(trace, SYNC_DRAIN, rows_of(trace, SYNC_DRAIN))

    # The next kernel then follows 1 µs behind.
    assert saved_us(trace, edit) == pytest.approx(140 - 101, abs=1)


def long_pauses(export: Export, number: int, now: int) -> int:
    return kernel(export, now + 300 * US, 5 * US) + 15 * US


def test_cpu_work_between_launches_goes(tmp_path):
    """300 µs of CPU work, and 20 µs for the launch and the rest of the pause."""
    trace = program(long_pauses).load(tmp_path)
    rows = rows_of(trace, LAUNCH_LATE)

    # All of the thread's time outside of calls: what is left are calls of 5 µs, and the kernels,
    # of 5 µs and 1 µs apart.
    assert saved_us(trace, remedies.remove_pauses(trace, rows)) == pytest.approx(320 - 6, abs=1)
    finding, _ = ask(ANALYSIS, program(long_pauses), tmp_path).findings
    assert finding.edit is not None
    assert saved_us(trace, finding.edit) == pytest.approx(320 - 6, abs=1)


def test_of_samples_only_their_share_goes(tmp_path):
    trace = program(long_pauses).load(tmp_path)
    rows = rows_of(trace, LAUNCH_LATE)
    half = IdleSamples(
        rows,
        np.zeros(len(rows), np.int64),
        gaps(trace).idle_ns[rows] // 2,
        np.zeros(len(rows), np.uint8),
        np.ones(len(rows), bool),
        gaps(trace).start_ns[rows],
    )

    edit = remedies.remove_pauses(trace, rows, half)

    assert saved_us(trace, edit) == pytest.approx(315 / 2, abs=1)


def test_a_call_that_blocked_takes_the_usual_time(tmp_path):
    """One call of 20 ms in 20 steps, of which 19 follow another one."""

    def step(export: Export, number: int, now: int) -> int:
        for place in range(5):
            took = 20_000 * US if (number, place) == (12, 3) else 5 * US
            now = kernel(export, now, 5 * US, took) + 15 * US
        return now

    trace = program(step).load(tmp_path)
    [accident] = line_sites.of_cause(trace, 0, LAUNCH_LATE)
    assert accident.usual_ns == 5 * US

    edit = remedies.usual_calls(trace, accident.calls, accident.usual_ns)

    assert saved_us(trace, edit) == pytest.approx(19_995 / 18, abs=1)
    once, often = ask(ANALYSIS, program(step), tmp_path).findings
    assert ", in one cudaLaunchKernel. It took 20.0 ms for k; 5.00 µs is usual." in once.message
    assert saved_us(trace, once.edit) == saved_us(trace, edit)
    assert often.message.startswith("The GPU sat idle for 1.40 ms (93 gaps)")


def test_a_dependency_has_no_edit(tmp_path):
    trace = program(short_kernels).load(tmp_path)

    assert remedies.of_cause(trace, DEPENDENCY, rows_of(trace, LAUNCH_LATE)) is None


@pytest.mark.parametrize("kernel_us", [2, 20])
@pytest.mark.parametrize("pause_us", [80, 300])
@pytest.mark.parametrize("waits", [False, True])
def test_a_loop_of_one_launch_per_step_that_the_cpu_limits_says_so(
    tmp_path, kernel_us, pause_us, waits
):
    """Fewer launches are fewer steps there, which nothing replays, and yet most of the time."""
    export, at = Export(), 0
    for step in range(200):
        begin = at
        export.launch((at, at + 5 * US), (at + 8 * US, at + (8 + kernel_us) * US), name="fused")
        at += 6 * US
        if waits:
            export.sync(SYNC, at, at + (5 + kernel_us) * US)
            at += (5 + kernel_us) * US
        at += pause_us * US
        export.range(f"step_{step}", begin, at - US)
    report = traceview.analyze(export.load(tmp_path))
    late = [
        each
        for each in report.findings
        if each.analysis == "gpu-idle" and "waiting for the CPU to launch" in each.message
    ]
    assert [each.severity for each in late] == ["high"]
    shown = claim(late[0].finding, late[0].forecast)
    assert shown is not None
    assert late[0].finding.edit or (shown.qualifier, shown.speedup) == ("up to", "")


@pytest.mark.parametrize(("allocated_at", "blamed"), [(0, False), (150, True)])
def test_allocations_of_warm_up_keep_no_launches_apart(tmp_path, allocated_at, blamed):
    export, at = Export(), 0
    for step in range(200):
        begin = at
        if step == allocated_at:
            export.call("cudaMalloc_v3020", at, at + 5 * US)
            at += 6 * US
        export.launch((at, at + 5 * US), (at + 8 * US, at + 10 * US), name="fused")
        at += 90 * US
        export.range(f"step_{step}", begin, at - US)
    report = traceview.analyze(export.load(tmp_path))
    told = [each for each in report.findings if "allocations keep launches" in each.finding.action]
    assert bool(told) is blamed


@pytest.mark.parametrize("pause_us", [10_000, 40_000])
@pytest.mark.parametrize("steps", [12, 16])
def test_one_pause_saves_no_more_than_it_took(tmp_path, pause_us, steps):
    """Of 15 frames of 642 ms one waited 284 ms: 25 ± 58 ms of each are at most those 284 ms."""
    export, at = Export(), 0
    for step in range(steps):
        begin = at
        for _ in range(20):
            kernel(export, at, 500 * US)
            export.sync(SYNC, at + 6 * US, at + 512 * US)
            at += (513 + 2 * (step % 3)) * US
        at += pause_us * US * (step == steps // 2)
        export.range(f"frame_{step}", begin, at - US)

    report = traceview.analyze(export.load(tmp_path))

    late = next(each for each in report.findings if each.message.startswith("The GPU sat idle for"))
    assert "waiting for the CPU to launch work" in late.message
    told = late.forecast
    assert told is not None
    assert told.saved_per_step_ns is not None
    most_ns = told.saved_per_step_ns + (told.error_ns or 0)
    assert most_ns <= 1.2 * pause_us * US / (steps - 2)
