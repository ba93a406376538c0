"""What faster or fewer kernels save: all where the GPU limits the step, else next to nothing."""

import numpy as np
import pytest

from tests.build import Export
from traceview.base import groups
from traceview.traces.facts import forecast as forecasts
from traceview.traces.facts import savings
from traceview.traces.facts.copies import downloads, uploads
from traceview.traces.facts.dependencies.replay import Changed
from traceview.traces.facts.forecast import model
from traceview.traces.facts.launches import waits
from traceview.traces.facts.operations import CallKind, api_calls, operations
from traceview.traces.facts.steps.steps import steady_operations
from traceview.traces.trace import Selection

US = 1_000
STEPS, KERNELS = 12, 10


def program(call_us: int, kernel_us: int, *, devices: int = 1, waits: bool = True) -> Export:
    """Steps of ten kernels, launched every `call_us`; at the end the CPU waits for the GPU."""
    export, at, free = Export(), 0, 0
    for number in range(STEPS):
        begin = at
        for _ in range(KERNELS):
            start = max(at + 6 * US, free + US)
            free = start + kernel_us * US
            for device in range(devices):
                call = (at + device * US, at + device * US + US // 2)
                export.launch(call, (start, free), name="gelu", device=device, stream=7 + device)
            at += call_us * US
        if waits:
            returned = max(at, free) + 5 * US
            export.sync("cudaDeviceSynchronize_v3020", at, returned, sync_type="context")
            at = returned + US
        export.range(f"step_{number}", begin, at)
    return export


def steady(trace):
    return np.flatnonzero(steady_operations(trace))


def halved(trace):
    return operations(trace).duration_ns[steady(trace)] // 2


def test_faster_kernels_of_a_gpu_that_limits_the_step_save_all_of_it(tmp_path):
    trace = program(call_us=2, kernel_us=50).load(tmp_path)
    gain = savings.of_operations(trace, steady(trace), savings.faster(halved(trace)))
    assert gain.saved_ns == pytest.approx(gain.own_ns, rel=0.02)
    assert gain.error_ns is not None
    assert gain.error_ns <= 0.02 * gain.own_ns


def test_faster_kernels_of_a_program_that_launches_late_save_nothing(tmp_path):
    trace = program(call_us=50, kernel_us=10, waits=False).load(tmp_path)
    gain = savings.of_operations(trace, steady(trace), savings.faster(halved(trace)))
    assert gain.own_ns > 200 * US
    # Only the last kernel of the recording is not followed by a late launch.
    assert 0 <= gain.saved_ns <= 5 * US


def test_without_their_launches_they_save_the_time_of_the_cpu(tmp_path):
    trace = program(call_us=50, kernel_us=10, waits=False).load(tmp_path)
    of_every_step = steady(trace).reshape(-1, KERNELS)[:, 1:6].ravel()
    gain = savings.of_operations(trace, of_every_step)
    # Five launches and the four pauses between them.
    assert gain.saved_ns / (len(of_every_step) / 5) == pytest.approx(4 * 50 * US, rel=0.05)


def test_two_edits_of_the_same_kernels_do_not_add_up(tmp_path):
    trace = program(call_us=2, kernel_us=50).load(tmp_path)
    rows = steady(trace)
    one = savings.of_operations(trace, rows, savings.faster(halved(trace))).edit
    other = savings.of_operations(trace, rows).edit
    replayed = model(trace)
    assert one
    assert other
    assert replayed.saved_ns(one, other) == pytest.approx(replayed.saved_ns(other), rel=0.01)


def test_kernels_of_the_same_name_on_other_gpus_are_faster_too(tmp_path):
    trace = program(call_us=4, kernel_us=50, devices=2).load(tmp_path)
    rows = steady(trace)
    rows = rows[operations(trace).device[rows] == 0]
    half = savings.faster(operations(trace).duration_ns[rows] // 2)
    gain = savings.of_operations(trace, rows, half)
    assert gain.saved_ns == pytest.approx(gain.own_ns, rel=0.02)


def test_what_no_recorded_call_launched_saves_its_own_time_at_most(tmp_path):
    export = Export()
    for number in range(10):
        export.kernel_without_launch((20 * number, 20 * number + 10))
    trace = export.load(tmp_path)
    gain = savings.of_operations(trace, np.arange(10))
    assert (gain.own_ns, gain.saved_ns, gain.error_ns, gain.edit) == (100, 100, None, None)


@pytest.mark.parametrize(("call_us", "kernel_us"), [(2, 50), (50, 10), (20, 20)])
def test_no_edit_saves_more_than_the_step(tmp_path, call_us, kernel_us):
    trace = program(call_us=call_us, kernel_us=kernel_us).load(tmp_path)

    def nothing_takes_time(changed: Changed) -> None:
        changed.scale(np.arange(len(changed.graph)), 0.0)
        changed.scale_pause(np.arange(changed.graph.calls), 0.0)

    forecast = model(trace).forecast(nothing_takes_time)
    assert 0 < forecast.saved_ns <= forecast.recorded_ns
    gone = savings.of_operations(trace, steady(trace))
    assert 0 < gone.saved_ns <= forecast.recorded_ns * STEPS


@pytest.mark.parametrize(("call_us", "kernel_us", "saved_us"), [(60, 10, 4 * 60), (2, 50, 4)])
def test_what_becomes_one_saves_launches_where_these_limit(tmp_path, call_us, kernel_us, saved_us):
    """Of five kernels one stays, of all their time: four launches and pauses or pitches go."""
    trace = program(call_us=call_us, kernel_us=kernel_us, waits=False).load(tmp_path)
    rows = steady(trace)
    rows = rows[rows >= KERNELS]
    duration_ns = operations(trace).duration_ns[rows]
    gain = savings.of_operations(
        trace, rows, savings.become_one(rows // 5, duration_ns, duration_ns)
    )
    assert gain.own_ns == 0
    assert gain.saved_ns / (len(rows) / 5) == pytest.approx(saved_us * US, rel=0.05)


@pytest.mark.parametrize(("longer_us", "saved_us"), [(1, 43), (80, 361), (500, 725)])
def test_what_the_thread_does_around_work_that_goes_may_go_with_it(tmp_path, longer_us, saved_us):
    """Beyond the usual pause of 19 µs, and up to ten times that, on either side of a run.

    As much again goes elsewhere: three calls and the two pauses between them take 41 µs.
    """
    export, at = Export(), 0
    for number in range(STEPS):
        begin = at
        for place in range(20):
            export.launch((at, at + US), (at + 5 * US, at + 6 * US), name="gelu")
            at += 20 * US + (longer_us * US if place in (9, 12) else 0)
        export.range(f"step_{number}", begin, at)
    trace = export.load(tmp_path)
    rows = np.arange(len(operations(trace))).reshape(STEPS, 20)[:, 10:13].ravel()

    plain = savings.of_operations(trace, rows)
    around = savings.of_operations(trace, rows, savings.Effect("gone", around=True))

    steps = len(model(trace).recorded)
    more_us = (around.saved_ns - plain.saved_ns) / US / steps
    assert more_us == pytest.approx(saved_us, rel=0.15, abs=3)


@pytest.mark.parametrize("share", [0.9, 0.6, 0.4, 0.25])
def test_a_replay_without_the_recorder_takes_what_steps_took_without_it(tmp_path, share):
    """Also where they took less than half: nanoGPT's took 7.8 of 15.2 ms (docs/accuracy.md)."""
    export = program(call_us=50, kernel_us=2, waits=False)
    step_ns = KERNELS * 50 * US
    trace = export.run(unrecorded_step_ns=str(round(share * step_ns))).load(tmp_path)
    assert model(trace).recorded.mean() == pytest.approx(step_ns, rel=0.02)
    assert model(trace).before_cheaper.mean() == pytest.approx(share * step_ns, rel=0.02)
    # Of a step that is selected, which may be the slow one, the timed ones say nothing.
    selected = model(trace.but(selection=Selection(("step_3",))))
    assert selected.call_ns == forecasts.RECORDER_CALL_NS


@pytest.mark.parametrize("share", [1.1, 0.99, 0.8])
def test_steps_that_no_cost_of_calls_explains_tell_nothing_of_it(tmp_path, share):
    """Where the GPU is the limit, steps take as long with any cost."""
    export = program(call_us=2, kernel_us=50, waits=False)
    step_ns = KERNELS * 51 * US
    trace = export.run(unrecorded_step_ns=str(round(share * step_ns))).load(tmp_path)
    assert model(trace).call_ns == forecasts.RECORDER_CALL_NS


@pytest.mark.parametrize(
    ("order", "launches"), [("aaaa", 1), ("abba", 1), ("abab", 2), ("abca", 1)]
)
def test_a_group_takes_up_all_calls_of_its_thread(tmp_path, order, launches):
    """Also those behind a group of another thread, and that, as forward and optimizer backward."""
    export = Export()
    for number in range(STEPS):
        for place, thread in enumerate(order * 3):
            at = (number * 20 + place) * 50 * US
            export.launch(
                (at, at + 5 * US), (at + 6 * US, at + 8 * US), name="gelu", thread=ord(thread)
            )
        export.range(f"step_{number}", number * 1000 * US, at + 10 * US, thread=ord("a"))
    trace = export.load(tmp_path)
    ops, calls, of = operations(trace), api_calls(trace), model(trace)
    group = groups.group(np.arange(len(ops)) // (3 * len(order)), calls.thread[ops.call])
    changed = Changed(of.graph)

    changed.launch_at_once(of.item_of_operation, group.ids)

    assert np.count_nonzero(changed.own_ns[: of.graph.calls]) == launches * STEPS


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [4, 1 << 20])
def test_calls_that_wait_win_no_more_than_they_and_those_for_the_same_take(tmp_path, seed, size):
    """What an upload moves is needed, and a large result takes its time in any case."""
    random = np.random.default_rng(seed)
    export, at, order = Export(), 0, random.permutation(["sync", "read", "sync", "upload", "read"])
    order = order[: random.integers(3, 6)]
    for number in range(STEPS):
        begin, free = at, at + 40 * US
        export.launch((at, at + 4 * US), (at + 6 * US, free))
        at += 5 * US
        for kind in order:
            done = max(at, free) + (2 if kind == "sync" else 9) * US
            if kind == "sync":
                export.sync("cudaDeviceSynchronize_v3020", at, done, sync_type="context")
            else:
                where = {"kind": "H2D", "source": "pageable"}
                if kind == "read":
                    where = {"kind": "D2H", "source": "device", "destination": "pageable"}
                free = done - 3 * US
                copied = (free - 2 * US, free)
                export.copy((at, done), copied, api="cudaMemcpy_v3020", bytes=size, **where)
            at = done + 2 * US
        export.range(f"step_{number}", begin, at)
    trace = export.load(tmp_path)
    ops, calls, every = operations(trace), api_calls(trace), waits(trace)
    kinds = {"sync": every.call[every.does == CallKind.SYNCHRONIZE]}
    for kind, moved in (("upload", uploads(trace)), ("read", downloads(trace))):
        kinds[kind] = ops.call[moved & ops.launched]
    small = ["read"] * (size < 1 << 16)
    gone = {"sync": ["sync", *small], "upload": ["upload"], "read": ["sync", "read"]}
    for kind in set(order.tolist()):
        gain = savings.of_waits(trace, kinds[kind])
        took_ns = sum(int(calls.duration_ns[kinds[each]].sum()) for each in gone[kind])
        assert gain.saved_ns <= took_ns
