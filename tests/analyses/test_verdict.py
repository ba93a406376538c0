"""The verdict: steps, busy share and limit, from exact small recordings and shipped ones."""

from dataclasses import replace

import pytest

import traceview
from tests.build import Export
from tests.places import REPOSITORY
from traceview.base.vocabulary.activities import ACTIVITIES, SLEEP
from traceview.traces.analyses.verdict import verdict
from traceview.traces.analyses.verdict.parts import SteadyParts, steady_parts
from traceview.traces.analyses.verdict.verdict import _loss_phrases, limit_of
from traceview.traces.trace import Selection

MS = 1_000_000
DATA = REPOSITORY / "tests" / "data"


@pytest.fixture(autouse=True)
def costless_recorder():
    """The verdict says what steps take without the recorder."""


def parts(limited: int, **ns: int) -> SteadyParts:
    named = {name.replace("_", "-"): time for name, time in ns.items()}
    busy = sum(named.get(each, 0) for each in ("gpu-compute", "gpu-memory", "communication"))
    return SteadyParts(0, sum(named.values()), busy, limited, named, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (parts(95, gpu_compute=60, gpu_memory=35, cpu_launch=5), "gpu-compute"),
        (parts(95, gpu_compute=40, gpu_memory=52, cpu_launch=8), "gpu-memory"),
        (parts(95, gpu_compute=30, communication=65, cpu_launch=5), "communication"),
        (parts(60, gpu_compute=60, cpu_launch=40), "gpu-compute"),
        # The GPU works 60 % of the time, but runs dry whatever it works on.
        (parts(0, gpu_compute=60, cpu_launch=40), "cpu-launch"),
        (parts(30, gpu_compute=30, synchronization=55, cpu_launch=15), "synchronization"),
        (parts(35, gpu_compute=35, synchronization=34, cpu_launch=31), "mixed"),
        (parts(20, gpu_compute=20, data_loading=70, cpu_launch=10), "data-loading"),
    ],
)
def test_the_limit_is_the_largest_part(given, expected):
    assert limit_of(given) == expected


def test_parts_add_up_to_the_steady_time(tmp_path):
    export = Export().launch((0, 2), (10, 50), name="ampere_sgemm_128x64_tn")
    export.copy((20, 25), (60, 70), source="pinned")
    export.launch((90, 92), (100, 120), name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    export.launch((93, 95), (110, 150), stream=8, name="vectorized_elementwise_kernel")
    found = steady_parts(export.load(tmp_path))
    assert found is not None
    assert found.span_ns == 140
    assert found.busy_ns == 100
    assert sum(found.parts_ns.values()) == 140
    assert found.parts_ns["communication"] == 10
    assert found.parts_ns["copies"] == 10
    # 40 ns of GEMMs and 40 of elementwise work share the 80 that are neither.
    assert (found.parts_ns["gpu-compute"], found.parts_ns["gpu-memory"]) == (40, 40)


def test_the_few_kernels_beside_graphs_recorded_whole_tell_no_class(tmp_path):
    export = Export()
    for start in range(0, 6_000, 1_000):
        export.launch((start, start + 1), (start + 1, start + 11), name="at::native::fill")
        export.graph_whole((start + 2, start + 4), (start + 11, start + 1_000))

    found = steady_parts(export.load(tmp_path))

    assert found is not None
    assert found.largest is None


@pytest.mark.parametrize(
    ("long", "expected"),
    [(10, "20 steps of 1.00 ms · "), (21, "20 steps of 1.00 ms (mean 2.05 ms) · ")],
)
def test_steps_of_very_different_length_have_a_mean_as_well(long, expected, tmp_path):
    """Savings are stated of it."""
    export, start = Export(), 0
    for number in range(20):
        end = start + (long if number % 19 == 9 else 1) * MS
        export.range(f"step_{number}", start, end)
        export.launch((start, start + 1_000), (start + 2_000, end))
        start = end
    assert verdict(export.load(tmp_path)).text.startswith(expected)


def test_without_gpu_work_nothing_is_judged(tmp_path):
    found = verdict(Export().range("step", 0, 10 * MS).load(tmp_path))
    assert found.text == "No GPU work was recorded. Of 10.0 ms on the CPU: 100.0 % in step (1 call)"
    assert found.limit == "unknown"
    assert found.gpu_busy_pct is None


@pytest.mark.parametrize(
    ("name", "limit", "steps", "text"),
    [
        (
            "cupy",
            "gpu-compute",
            6,
            "5 steps of 29.3 ms after 1 warm-up step · GPU busy 96.6 % · "
            "94.1 % of kernel time in fp32 GEMMs · "
            "the CPU waits in each step",
        ),
        (
            "cuda_graphs",
            "cpu-launch",
            8,
            "6 steps of 3.59 ms (about 2.80 ms without nsys) after 2 warm-up steps · "
            "GPU busy 17.6 % · "
            "80.5 % waiting for launches · "
            "the CPU waits in each step",
        ),
    ],
)
def test_verdicts_of_recordings(name, limit, steps, text):
    found = verdict(traceview.load(DATA / f"{name}.sqlite.xz"))
    assert (found.limit, found.steps, found.steps_from) == (limit, steps, "user-ranges")
    assert found.text == text


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        # The program sleeps 8 ms per step in time.sleep, of 26.8 ms.
        (
            "fault_sleep",
            "cpu-launch",
            "GPU busy 13.8 % · 55.9 % waiting for launches · 29.9 % waiting while the CPU sleeps",
        ),
        # It calls torch.cuda.empty_cache() in each step.
        (
            "fault_empty_cache",
            "cpu-launch",
            "GPU busy 12.8 % · 64.1 % waiting for launches · 22.8 % allocating or freeing memory",
        ),
        # It calls float(loss) in each step, which in JAX is no call of CUDA.
        (
            "cnn_flax",
            "mixed",
            "GPU busy 25.9 % · 38.6 % idle after waits for results · "
            "20.1 % idle with work already queued",
        ),
    ],
)
def test_a_cpu_that_does_something_else_is_told_from_one_that_launches_late(name, limit, text):
    found = traceview.analyze(traceview.load(DATA / f"foreign/{name}.sqlite.xz")).verdict
    assert found.limit == limit
    assert found.text.endswith(text)


@pytest.mark.parametrize(("slept", "said"), [(40, 1), (4, 0)])
def test_little_sleep_is_not_said_apart(slept, said):
    divided = replace(parts(20, gpu_compute=20, cpu_launch=80), named_ns={ACTIVITIES[SLEEP]: slept})
    phrases = list(_loss_phrases(divided, "cpu-launch"))
    assert sum("sleeps" in phrase for phrase in phrases) == said
    assert len(phrases) == 1 + said


def test_a_selection_without_work_has_no_verdict():
    trace = traceview.load(DATA / "cupy.sqlite.xz").but(selection=Selection(include=("nothing",)))
    assert verdict(trace).text == "No GPU work in the selection."


@pytest.mark.parametrize(
    ("operations", "end_ns", "judged"), [(1, 1_470, False), (1, 2_000_000, True), (4, 1_470, True)]
)
def test_a_memset_alone_is_no_program_to_judge(tmp_path, operations, end_ns, judged):
    """`GPU busy 100.0 % · 100.0 % of the time in copies` stood over a recording of one memset."""
    export = Export()
    for number in range(operations):
        start = 10 + number * end_ns
        export.launch((start, start + 5), (start + 8, start + end_ns), name="fill")
    found = verdict(export.load(tmp_path))
    assert found.text.startswith("Next to no GPU work was recorded: 1 operation") == (not judged)
    assert (found.limit == "unknown") == (not judged)


def test_a_program_that_ran_no_kernel(tmp_path):
    export = Export()
    for number in range(8):
        at = number * 1_000_000
        export.copy((at, at + 10), (at + 20, at + 500_000), source="pinned")
    text = verdict(export.load(tmp_path)).text
    assert text == "No kernel ran: 4.00 ms of copies and memsets alone"


@pytest.mark.parametrize(("moved_ns", "said"), [(30_000_000, True), (3_000_000, False)])
def test_pages_that_move_longer_than_the_gpu_works_are_said(tmp_path, moved_ns, said):
    export = Export().migration((0, moved_ns), cause="user prefetch")
    export.launch((moved_ns, moved_ns + 5), (moved_ns + 10, moved_ns + 5_000_010))

    text = verdict(export.load(tmp_path)).text

    assert text.endswith(" · 30.0 ms of page migrations before and after") == said
