"""Memory: the running sum of allocations, its peak, growth per step, allocation in the loop."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS as GPU_IDLE
from traceview.traces.analyses.memory import ANALYSIS
from traceview.traces.facts.idle.gaps import gaps
from traceview.traces.facts.memory import growth_of, levels, running_level

US, MS, MB = 1000, 1_000_000, 1_000_000


@pytest.mark.parametrize("seed", range(20))
def test_the_level_is_that_of_a_brute_force_sum(seed):
    """Random events, some at one time, some releases of memory from before the recording."""
    random = np.random.default_rng(seed)
    number = int(random.integers(1, 40))
    time = random.integers(0, 50, number)
    change = random.integers(-5, 6, number)

    level = running_level(np.arange(number), time, change)

    order = sorted(range(number), key=lambda event: time[event])
    sums = [sum(int(change[each]) for each in order[: place + 1]) for place in range(number)]
    before = max(0, -min(sums))
    assert level.before_bytes == before
    assert level.events.tolist() == order
    assert level.bytes.tolist() == [before + each for each in sums]
    for moment in range(-1, 52):
        so_far = sum(int(c) for c, at in zip(change, time, strict=True) if at <= moment)
        assert level.at(np.array([moment])).tolist() == [before + so_far]
    edges = np.unique(random.integers(-5, 60, 8))
    assert level.most_within(edges).tolist() == [
        max(
            [
                before + sum(int(c) for c, at in zip(change, time, strict=True) if at <= start),
                *(
                    before + sums[place]
                    for place in range(number)
                    if start <= time[order[place]] < end
                ),
            ]
        )
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def loop(steps: int = 10, *, torch: bool = False, **gpu: int) -> Export:
    """Steps of 100 µs: cudaMalloc 2 to 20, a kernel 22 to 60, cudaFree 40 to 90."""
    name = "void at::native::add<float>(int)" if torch else "add"
    export = Export().gpu(0, **gpu)
    for step in range(steps):
        at = step * 100 * US
        export.range(f"step_{step}", at, at + 100 * US)
        export.call("cudaMalloc_v3020", at + 2 * US, at + 20 * US, correlation=10 * step + 1)
        export.memory(at + 19 * US, bytes=8 * MB, correlation=10 * step + 1)
        export.launch(
            (at + 20 * US, at + 21 * US),
            (at + 22 * US, at + 60 * US),
            name=name,
            correlation=10 * step + 2,
        )
        export.call("cudaFree_v3020", at + 40 * US, at + 90 * US, correlation=10 * step + 3)
        export.memory(at + 89 * US, "release", bytes=8 * MB, correlation=10 * step + 3)
    return export


def test_allocation_in_the_loop(tmp_path):
    """Nine steady steps and eight gaps of 62 µs, 48 µs of each in cudaFree and cudaMalloc.

    The last step frees too late.
    """
    result = ask(ANALYSIS, loop(), tmp_path)

    [finding] = result.findings
    assert finding.severity == "medium"  # less than 1 ms
    # Without these calls the kernel of 38 µs limits the step of 100 µs; the step of first uses,
    # which has such a gap, too, does not count.
    assert finding.time_at_stake_ns == pytest.approx(8 * 59 * US * 13 / 12, rel=0.01)
    assert finding.saving == "about"
    assert finding.edit is not None
    assert finding.evidence.values["allocations"] == 1
    assert finding.evidence.values["idle_ns"] == 8 * 48 * US // 9
    assert finding.message.startswith(
        "The loop allocates GPU memory and frees it: 1 call of cudaMalloc and 1 of cudaFree per "
    )
    assert finding.action.startswith("Allocate before the loop and reuse the memory")
    assert finding.evidence.row == {"api": "cudaFree"}
    assert rows(result, "calls", "api", "calls", "steady_calls") == [
        ("cudaFree", 10, 8),
        ("cudaMalloc", 10, 9),
    ]
    assert rows(result, "peaks", "peak_bytes", "at_ns", "range_path", "end_bytes") == [
        (8 * MB, 19 * US, "step_0", 0)
    ]
    assert rows(result, "peaks", "growth_bytes_per_step", "allocations_per_step") == [(0.0, 1.0)]


@pytest.mark.parametrize(
    ("memory", "action"),
    [(1 << 37, "Remove torch.cuda.empty_cache()"), (8_500_000, "Use a smaller batch")],
)
def test_torch_frees_on_request_or_where_its_pool_is_full(tmp_path, memory, action):
    result = ask(ANALYSIS, loop(torch=True, totalMemory=memory), tmp_path)

    assert result.findings[0].action.startswith(action)


def test_the_line_that_frees_is_named(tmp_path):
    """Samples inside cudaFree count; one inside cudaMalloc does not."""
    export = loop(torch=True)
    empty = ("/env/lib/python3.12/site-packages/torch/cuda/memory.py", 220, "empty_cache")
    for step in range(2, 8):
        at = step * 100 * US
        export.python_sample(
            at + 60 * US, empty, ("train.py", 31, "step"), ("train.py", 90, "main")
        )
        export.python_sample(at + 10 * US, ("train.py", 40, "forward"), ("train.py", 90, "main"))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith(
        "The loop allocates GPU memory and frees it at train.py:31, calling "
        "torch.cuda.memory.empty_cache: 1 call of cudaMalloc"
    )
    assert finding.action.startswith("Remove torch.cuda.empty_cache()")
    assert (finding.subject.kind, finding.subject.file, finding.subject.line) == (
        *("line", "train.py", 31),
    )


def test_gpu_idle_leaves_allocation_in_the_loop_to_memory(tmp_path):
    result = ask(GPU_IDLE, loop(), tmp_path)

    assert ("allocation",) in rows(result, "causes", "cause")
    assert not [each for each in result.findings if "allocated" in each.message]


@pytest.mark.parametrize("frees", [True, False])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("resets", [True, False])
def test_a_loop_that_destroys_its_context_grows_no_memory(tmp_path, frees, every, resets):
    """What is lost with a context is no leak, and what is loaded into each no first use."""
    export, steps = Export(), 12
    for step in range(steps):
        at, number, new = step * 100 * MS, 10 * step, step % every == 0
        export.range(f"step_{step}", at, at + 100 * MS)
        export.call("cudaMalloc_v3020", at + 2 * MS, at + 30 * MS, correlation=number)
        if new:
            export.memory(at + 20 * MS, bytes=1 * MB, memory="device static")
        export.memory(at + 29 * MS, bytes=8 * MB, correlation=number)
        if new:
            export.call("cuLibraryLoadData", at + 30 * MS, at + 35 * MS, correlation=number + 1)
        call, work = (at + 35 * MS, at + 36 * MS), (at + 37 * MS, at + 60 * MS)
        export.launch(call, work, contextId=1 + step // every, correlation=number + 2)
        if frees:
            export.call("cudaFree_v3020", at + 60 * MS, at + 61 * MS, correlation=number + 3)
            export.memory(at + 61 * MS, "release", bytes=8 * MB, correlation=number + 3)
        if resets and step % every == every - 1:
            export.call("cudaDeviceReset_v3020", at + 62 * MS, at + 90 * MS)
    trace = export.load(tmp_path)
    findings = ask(ANALYSIS, export, tmp_path).findings

    assert any("grows" in each.message for each in findings) == (not resets)
    told = [each for each in findings if "cudaDeviceReset destroys the context" in each.message]
    assert len(told) == (resets and frees)
    assert all("call cudaDeviceReset once, after the loop" in each.action for each in told)
    peak_bytes = levels(trace)[0].bytes.max()
    assert peak_bytes == (1 + 8 * (1 if frees else every)) * MB or not resets
    in_reset = trace.recorded("api_calls").texts("name").isin(["cudaDeviceReset"])
    every_gap = gaps(trace)
    inside = (every_gap.within >= 0) & in_reset[every_gap.within]
    assert inside.any() == resets
    assert not every_gap.one_time[inside & (every_gap.start_ns > 300 * MS)].any()


def test_allocation_before_the_loop_is_no_finding(tmp_path):
    """An autotuner's trials allocate and free, then the loop runs without."""
    export = loop(3)
    for place in range(60):
        at = (1000 + 100 * place) * US
        export.launch((at, at + US), (at + 2 * US, at + 60 * US))

    assert not ask(ANALYSIS, export, tmp_path).findings


def test_a_pool_that_fills_is_no_finding(tmp_path):
    export = Export()
    for step in range(10):
        at = step * 100 * US
        export.range(f"step_{step}", at, at + 100 * US)
        export.call("cudaMalloc_v3020", at + 10 * US, at + 20 * US)
        if step < 6:
            export.memory(at + 19 * US, bytes=8 * MB)
        export.launch((at + 20 * US, at + 21 * US), (at + 22 * US, at + 60 * US))

    assert not ask(ANALYSIS, export, tmp_path).findings


def test_memory_that_grows_in_each_step(tmp_path):
    export = Export().gpu(0, totalMemory=400 * MB)
    for step in range(12):
        at = step * 100 * US
        export.range(f"step_{step}", at, at + 100 * US)
        export.memory(at + 19 * US, bytes=2 * MB)
        export.launch((at + 20 * US, at + 21 * US), (at + 22 * US, at + 60 * US))

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert (finding.severity, finding.time_at_stake_ns) == ("medium", 0)
    assert finding.message == (
        "Memory of GPU 0 grows by 2.00 MB per step, 20.0 MB over 11 steps. It is full after "
        "188 more steps."
    )
    assert rows(result, "peaks", "peak_bytes", "peak_pct", "growth_bytes_per_step") == [
        (24 * MB, 6.0, 2.0 * MB)
    ]


@pytest.mark.parametrize(("more_bytes", "severity"), [(1, "info"), (0, "medium")])
def test_growth_by_allocations_of_ever_other_sizes_is_for_information(
    tmp_path, more_bytes, severity
):
    """Variables of code that is loaded meanwhile are no allocations of the loop."""
    export = Export().gpu(0, totalMemory=400 * MB)
    for step in range(12):
        at = step * 100 * US
        export.range(f"step_{step}", at, at + 100 * US)
        export.memory(at + 19 * US, bytes=2 * MB + step * more_bytes)
        for variable in range(10):
            export.memory(at + variable, bytes=1 + variable, memory="device static")
        export.launch((at + 20 * US, at + 21 * US), (at + 22 * US, at + 60 * US))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.severity == severity
    assert finding.message.endswith("The allocations differ in size.") == bool(more_bytes)
    # A pool grows until it has a block for each size, so when memory is full is unknown.
    assert ("It is full after" in finding.message) == (not more_bytes)


@pytest.mark.parametrize(
    ("level", "leaks"),
    [
        ([1, 2, 3, 4, 5], True),
        ([1, 2, 3, 4], False),
        ([5, 5, 5, 5, 5, 5], False),
        # A pool that fills, noise, and a leak that a pool hands out in large pieces.
        ([1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5], False),
        ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], False),
        ([1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5], True),
    ],
)
def test_growth_is_a_leak_only_where_it_goes_on(level, leaks):
    found = growth_of(np.array(level) * 20 * MB)

    assert found.leaks == leaks
    assert found.bytes_per_step > 0 or not leaks


@pytest.mark.parametrize("steps", [20, 60, 500])
@pytest.mark.parametrize("block", [MB, 2 * MB, 20 * MB])
@pytest.mark.parametrize("seed", range(4))
def test_a_pool_that_fills_ever_more_slowly_is_no_leak(steps, block, seed):
    """Found on Glow: 8, 4 and 2 MB in the first steps, 2 MB in the last ten."""
    step, random = np.arange(steps), np.random.default_rng(seed)
    jitter, times = block * random.random(steps) / 4, random.uniform(15, 30)
    for grown, leaks in ((1 - np.exp(-5 * step / steps), False), (step / steps, True)):
        level = np.floor((times * block * grown + jitter) / block).astype(np.int64) * block
        assert growth_of(level).leaks == leaks


def test_growth_of_thousands_of_steps_is_that_of_a_sample():
    found = growth_of(np.arange(100_000) * 1000)

    assert (found.leaks, found.bytes_per_step, found.steps) == (True, 1000.0, 100_000)


def test_memory_from_before_the_recording(tmp_path):
    export = Export().memory(100, "release", bytes=3 * MB).memory(200, bytes=MB)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "peaks", "peak_bytes", "before_bytes", "end_bytes") == [(MB, 3 * MB, MB)]


def test_processes_on_one_gpu_add_up_and_gpus_do_not(tmp_path):
    export = Export().memory(100, bytes=MB).memory(200, bytes=MB, process=2)
    export.memory(300, bytes=5 * MB, device=1).memory(400, bytes=7 * MB, memory="pinned")

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "peaks", "device_id", "peak_bytes") == [(0, 2 * MB), (1, 5 * MB)]
    assert rows(result, "kinds", "device_id", "memory", "allocations", "peak_bytes") == [
        (0, "pinned", 1, 7 * MB),
        (1, "device", 1, 5 * MB),
        (0, "device", 2, 2 * MB),
    ]
    timeline = rows(result, "timeline", "device_id", "allocated_bytes")
    assert max(timeline) == (1, 5 * MB)
    assert max(number for device, number in timeline if device == 0) == 2 * MB


def test_what_was_allocated_before_a_selected_range_is_in_use_there(tmp_path):
    export = Export().memory(100, bytes=MB).range("a", 1000, 2000)
    export.launch((1100, 1110), (1200, 1300)).memory(5000, bytes=9 * MB)

    result = ask(ANALYSIS, export, tmp_path, include=("a",))

    assert rows(result, "peaks", "peak_bytes", "at_ns") == [(MB, 1100)]


def test_memory_mapped_by_the_driver_is_not_recorded(tmp_path):
    export = Export().call("cuMemCreate", 0, 10).memory(100, bytes=MB, memory="pinned")

    assert "Memory created by cuMemCreate" in ask(ANALYSIS, export, tmp_path).notes[-1]
