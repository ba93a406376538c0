"""Time on a device's critical path, against programs that run again with faster kernels."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import Export
from traceview import intervals
from traceview.facts.idle.gpu_limited import critical, gpu_limited, limited_ns

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


@settings(max_examples=300, deadline=None)
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
    assert limited_ns(trace).tolist() == [0, 40]


def test_work_that_the_cpu_waited_for_is_on_the_path(tmp_path):
    export = Export().launch((0, 2), (10, 50)).sync("cudaStreamSynchronize_v3020", 5, 52)
    trace = export.launch((100, 102), (110, 150)).load(tmp_path)
    assert limited_ns(trace).tolist() == [40, 40]


def test_devices_have_paths_of_their_own(tmp_path):
    export = Export().launch((0, 2), (10, 50), device=0).launch((100, 102), (110, 150), device=0)
    trace = export.launch((3, 5), (20, 60), device=1).load(tmp_path)
    assert {device: each.total() for device, each in gpu_limited(trace).items()} == {0: 40, 1: 40}
