"""Time on a device's critical path, against programs that run again with faster kernels."""

from fractions import Fraction
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import Export
from traceview import intervals
from traceview.facts.idle.cpu_activity import CPU_CAUSES
from traceview.facts.idle.gaps import every_gap, steady_spans_ns
from traceview.facts.idle.gpu_limited import (
    claimable_ns,
    critical,
    gain_of_device_ns,
    gpu_limited,
    kernels_named,
)

ACTION = st.tuples(st.sampled_from(["cpu", "launch", "launch", "sync"]), st.integers(1, 20))


def run(actions, durations):
    """Times of kernels and waits of a program on one stream, and when it ends."""
    now, free, kernels, waits = 0, 0, [], []
    for (what, length), took in zip(actions, durations, strict=True):
        if what == "cpu":
            now += length
        elif what == "launch":
            now += 1
            start = max(now, free)
            free = start + took
            kernels.append((start, free))
        else:
            waits.append((now, max(now + 1, free)))
            now = waits[-1][1]
    return kernels, waits, max(now, free)


def on_path(kernels, waits):
    """The kernels' time on the critical path, and its intervals."""
    start, end = (np.array(each, np.int64) for each in zip(*kernels, strict=True))
    work = intervals.union(start, end)
    late = intervals.gaps(work).end
    begun, ended = np.array(waits, np.int64).reshape(-1, 2).T
    for_work = intervals.overlap(work, begun, ended) > 0
    path = critical(work, late, ended[for_work])
    return intervals.overlap(path, start, end)


@settings(max_examples=300)
@given(st.lists(ACTION, min_size=1, max_size=25), st.data())
def test_faster_kernels_save_no_more_than_their_time_on_the_path(actions, data):
    actions = [("launch", 5), *actions]
    took = [length for _, length in actions]
    kernels, waits, end = run(actions, took)
    path_ns = on_path(kernels, waits)

    faster = [data.draw(st.integers(0, length)) for length in took]
    _, _, sooner = run(actions, faster)

    launched = np.array([what == "launch" for what, _ in actions])
    saved = (np.array(took) - np.array(faster))[launched]
    assert end - sooner <= np.minimum(saved, path_ns).sum()


def test_work_before_a_late_launch_is_not_on_the_path(tmp_path):
    export = Export().launch((0, 2), (10, 50)).launch((100, 102), (110, 150))
    trace = export.load(tmp_path)
    assert [each.tolist() for each in gpu_limited(trace)[0]] == [[110], [150]]
    assert [claimable_ns(trace, 0, np.array([row])) for row in (0, 1)] == [0, 40]
    assert [gain_of_device_ns(trace, np.array([row])) for row in (0, 1)] == [40, 40]
    assert gain_of_device_ns(trace, np.arange(2), np.array([5, 50])) == 45


def test_work_that_the_cpu_waited_for_is_on_the_path(tmp_path):
    export = Export().launch((0, 2), (10, 50)).sync("cudaStreamSynchronize_v3020", 5, 52)
    trace = export.launch((100, 102), (110, 150)).load(tmp_path)
    assert [claimable_ns(trace, 0, np.array([row])) for row in (0, 1)] == [40, 40]


def test_devices_have_paths_of_their_own(tmp_path):
    export = Export().launch((0, 2), (10, 50), device=0).launch((100, 102), (110, 150), device=0)
    trace = export.launch((3, 5), (20, 60), device=1).load(tmp_path)
    assert {device: each.total() for device, each in gpu_limited(trace).items()} == {0: 40, 1: 40}


def test_kernels_that_run_at_once_save_their_time_once(tmp_path):
    export = Export().launch((0, 2), (10, 50)).launch((2, 4), (10, 50), stream=9)
    trace = export.launch((4, 6), (30, 60), stream=11).load(tmp_path)
    every = np.arange(3)
    assert claimable_ns(trace, 0, every) == 50
    assert claimable_ns(trace, 0, every, np.array([40, 40, 0])) == 50
    # 7 of the last kernel's 30, and in the 20 before it an eighth of the first.
    assert claimable_ns(trace, 0, every, np.array([5, 0, 7])) == 10


def test_of_kernels_that_run_at_once_the_fraction_that_each_saves_is_saved(tmp_path):
    """Found on a program with two threads: twice the time, each kernel up to 4 times as fast, was
    said to save all of the step."""
    export = Export().launch((0, 2), (10, 50)).launch((2, 4), (10, 50), stream=9)
    trace = export.load(tmp_path)
    every = np.arange(2)
    assert claimable_ns(trace, 0, every, np.array([30, 30])) == 30
    assert claimable_ns(trace, 0, every, np.array([30, 10])) == 30
    assert claimable_ns(trace, 0, every, np.array([10, 10])) == 10


def test_warm_up_and_what_is_not_selected_save_nothing(tmp_path):
    export = Export().range("warm_up", 0, 3).launch((0, 2), (10, 50), name="early")
    trace = export.launch((4, 6), (50, 80), name="late").load(tmp_path)
    rows = {name: kernels_named(trace, 0, [name]) for name in ("early", "late", "absent")}
    assert {name: each.tolist() for name, each in rows.items()} == {
        "early": [0],
        "late": [1],
        "absent": [],
    }
    claims = {name: claimable_ns(trace, 0, each) for name, each in rows.items()}
    assert claims == {"early": 0, "late": 30, "absent": 0}


def recorded(actions, took, devices):
    """A program whose kernels take turns on these devices and on two streams, and its waits."""
    now, export, waits = 0, Export(), []
    free = dict.fromkeys(((device, stream) for device in range(devices) for stream in (7, 9)), 0)
    for number, ((what, length), busy) in enumerate(zip(actions, took, strict=True)):
        device, stream = number % devices, (7, 9)[number // 2 % 2]
        if what == "cpu":
            now += length
        elif what == "launch":
            start = max(now + 1, free[device, stream])
            free[device, stream] = start + busy
            export.launch((now, now + 1), (start, start + busy), device=device, stream=stream)
            now += 1
        else:
            end = max(now + 1, max(free[device, each] for each in (7, 9)))
            export.sync("cudaDeviceSynchronize_v3020", now, end, device=device)
            waits.append((device, now, end))
            now = end
    return export, waits


def nanoseconds_on_path(trace, waits, device):
    """The nanoseconds of the critical path, walked backwards one at a time."""
    kernels, every = trace.kernels, every_gap(trace)
    here = kernels["device"] == device
    start, end = kernels["start_ns"][here], kernels["end_ns"][here]
    gaps = (every.device == device) & np.isin(every.cause, CPU_CAUSES)
    late = set(every.end_ns[gaps].tolist())
    busy = {time for one, other in zip(start, end, strict=True) for time in range(one, other)}
    ended = [two for at, one, two in waits if at == device and busy.intersection(range(one, two))]
    waited, on_device, path = set(ended), True, set()
    for time in range(int(max(end)), int(min(start)) - 1, -1):
        on_device = time in waited or (on_device and time not in late)
        if on_device and time - 1 in busy:
            path.add(time - 1)
    return path


@settings(max_examples=40)
@given(st.lists(ACTION, min_size=1, max_size=20), st.integers(1, 2), st.data())
def test_no_claim_exceeds_a_walk_along_the_critical_path(actions, devices, data):
    actions = [("launch", 5)] * devices + actions
    took = [length for _, length in actions]
    with TemporaryDirectory() as folder:
        export, waits = recorded(actions, took, devices)
        trace = export.load(Path(folder))
    kernels = trace.kernels
    for device in range(devices):
        rows = np.flatnonzero(kernels["device"] == device)
        rows = rows[[data.draw(st.booleans()) for _ in rows]]
        less = np.array([data.draw(st.integers(0, 25)) for _ in rows], np.int64)
        path = nanoseconds_on_path(trace, waits, device)
        run = [set(range(kernels["start_ns"][row], kernels["end_ns"][row])) & path for row in rows]
        together = set().union(*run)
        rates = (
            [Fraction(min(len(one), most), len(one))] * len(one)
            for one, most in zip(run, less.tolist(), strict=True)
            if one
        )
        in_turn = sorted(chain(*rates), reverse=True)[: len(together)]
        assert claimable_ns(trace, device, rows) == len(together)
        assert 0 <= claimable_ns(trace, device, rows, less) - sum(in_turn) <= 1
        assert len(together) <= steady_spans_ns(trace)[device]
