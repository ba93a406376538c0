"""Findings of `gpu-idle`: what they name, what they count, and what they advise."""

import numpy as np
import pytest

import traceview
from tests.analyses.gpu_idle.test_causes import CAUSE
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from tests.places import REPOSITORY
from traceview.traces.analyses.base import Result
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS
from traceview.traces.analyses.gpu_idle.idle_claim import IdleClaim
from traceview.traces.facts.steps.inferred import with_steps


def test_the_first_pinned_memory_of_a_process_is_allocated_once(tmp_path):
    export = Export().launch((0, 2), (10, 1000))
    for number, process in enumerate((1, 1, 2, 2)):
        now = 1000 * (number + 1)
        export.call("cudaHostAlloc_v3020", now + 10, now + 700, process=process)
        export.launch((now + 710, now + 712), (now + 720, now + 1000), process=process)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE, "steady_idle_ns") == [
        ("allocation", 4, 4 * 690, 2 * 690),
        ("launch-late", 4, 4 * 30, 4 * 30),
    ]


@pytest.mark.parametrize(
    ("following", "steady_ns"),
    [("cudaDeviceGetAttribute_v5000", 0), ("cudaMalloc_v3020", 900)],
)
def test_a_library_that_sets_itself_up_frees_nothing(tmp_path, following, steady_ns):
    export = (
        Export()
        .launch((0, 2), (10, 1000))
        .call("cudaFree_v3020", 1000, 1400)
        .call("cudaFree_v3020", 1400, 1900)
        .call(following, 1901, 1902)
        .call("cudaGetSymbolAddress_v3020", 1903, 1904)
        .launch((1910, 1912), (1920, 2000))
    )

    found = rows(ask(ANALYSIS, export, tmp_path), "causes", "cause", "steady_idle_ns")
    assert dict(found)["allocation"] in (steady_ns, steady_ns + 1)


def test_device_memory_is_not_pinned_memory(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1000))
        .call("cudaMalloc_v3020", 1010, 1900)
        .launch((1910, 1912), (1920, 2000))
    )

    assert rows(ask(ANALYSIS, export, tmp_path), "causes", "steady_idle_ns") == [(890,), (30,)]


def late(*gaps: int, device: int = 0, export: Export | None = None) -> Export:
    """Kernels of 100 ns with these gaps before them, each launched in a range of its own.

    Those of each device are of a process of its own.
    """
    export, end = export or Export(), 100
    where = {"process": device + 1, "device": device}
    export.launch((0, 2), (10, 100), **where)
    for number, gap in enumerate(gaps):
        call = end + gap - 5
        export.range(f"part_{'abcdefghijklmnop'[number]}", end, call + 4, process=device + 1)
        export.launch((call, call + 2), (end + gap, end + gap + 100), **where)
        end += gap + 100
    return export


def test_one_long_gap_is_not_reported_as_that_of_each_step(tmp_path):
    [finding] = ask(ANALYSIS, late(1_000, 900_000, 2_000), tmp_path).findings

    assert "A single gap before work launched in part_b took 900 µs." in finding.message
    assert finding.action.startswith(
        "If a longer run repeats this, take this CPU work out of the way"
    )


def test_a_part_of_a_gap_is_told_with_the_whole_gap(tmp_path):
    export = late(1_000, 2_000).call("cudaMalloc_v3020", 4_000, 304_000)
    export.launch((904_000, 904_002), (904_005, 904_100))
    found = {each.cause: each.message for each in ask(ANALYSIS, export, tmp_path).findings}
    assert "A single gap" not in found["launch-late"]
    assert "600 µs of the idle time was in a single gap of 901 µs" in found["launch-late"]


def test_a_long_gap_among_others_is_named_and_the_others_count(tmp_path):
    others = [40_000] * 15
    once, often = ask(ANALYSIS, late(900_000, *others), tmp_path).findings

    assert once.message == (
        "The GPU sat idle for 900 µs (1 gap) in long pauses of the CPU outside CUDA (of 1.50 ms "
        "waiting for launches). The longest took 900 µs; 40.0 µs is usual."
    )
    assert once.action.startswith("If a longer run repeats this")
    assert once.share_of_step_pct is None
    assert often.message.startswith("The GPU sat idle for 600 µs (15 gaps)")
    assert not often.action.startswith("If ")


@pytest.mark.parametrize("pause_ns", [400_000, 900_000])
@pytest.mark.parametrize("usual_ns", [10_000, 20_000])
def test_pauses_that_may_not_come_again_are_never_high(pause_ns, usual_ns, tmp_path):
    """Also where the program is launch-bound, of which they are a part."""
    export, end = Export(), 100
    export.launch((0, 2), (10, 100))
    for number in range(100):
        gap = pause_ns if number in (20, 50) else usual_ns
        export.launch((end + gap - 5, end + gap - 3), (end + gap, end + gap + 100))
        end += gap + 100
    report = traceview.analyze(with_steps(export.load(tmp_path)))
    pauses = [each for each in report.findings if "in long pauses" in each.finding.message]
    assert [each.severity for each in pauses] == ["medium"]


def test_two_gaps_alike_are_no_single_one(tmp_path):
    [finding] = ask(ANALYSIS, late(900_000, 600_000), tmp_path).findings

    assert "single gap" not in finding.message
    assert finding.action.startswith("Take this CPU work out of the way")


def test_a_gap_of_a_selection_is_no_single_one_where_others_are_like_it(tmp_path):
    [alike] = ask(ANALYSIS, late(900_000, 600_000), tmp_path, include=("part_a",)).findings
    [lone] = ask(ANALYSIS, late(900_000, 6_000), tmp_path, include=("part_a",)).findings

    assert "single gap" not in alike.message
    assert "The gap came before work launched in part_a." in lone.message


def test_gpus_that_idle_at_the_same_time_lose_it_once(tmp_path):
    export = late(600_000, 900_000, device=0)
    export = late(700_000, 900_000, device=1, export=export)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message.startswith("GPU 1 sat idle for 1.60 ms (2 gaps)")
    assert finding.message.endswith(" 1 other GPU sat idle for 1.50 ms for the same reason.")
    assert finding.time_at_stake_ns == 1_600_000


@pytest.mark.parametrize("by_nodes", [True, False])
def test_node_by_node_recording_is_reported_to_make_graph_launches_long(tmp_path, by_nodes):
    ms = 1_000_000
    export = Export().launch((0, 2), (10, ms))
    if by_nodes:
        export.graph_launch((ms + 10, 3 * ms), [(3 * ms + 50, 4 * ms), (4 * ms, 5 * ms)])
    else:
        export.graph_whole((ms + 10, 3 * ms), (3 * ms + 50, 5 * ms))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # A single gap shows no loop that repeats it.
    assert finding.severity == ("info" if by_nodes else "medium")
    assert ("node by node" in finding.message) is by_nodes
    assert ("--graph-trace graph" in finding.action) is by_nodes


def test_a_finding_carries_its_figures_and_the_row_and_time_that_show_it(tmp_path):
    result = ask(ANALYSIS, late(1_000, 900_000, 2_000), tmp_path)

    [finding] = result.findings
    evidence = finding.evidence
    assert evidence.values["idle_ns"] == finding.time_at_stake_ns == 903_000
    assert evidence.values["longest_gap_ns"] == evidence.end_ns - evidence.start_ns == 900_000
    assert evidence.table == "causes"
    assert evidence.row == {"device_id": 0, "host_id": None, "cause": "launch-late"}
    [row] = [row for row in result.tables["causes"].rows() if row["cause"] == "launch-late"]
    assert row["steady_idle_ns"] == 903_000
    # 90 ns of work first, and 100 after each gap.
    assert finding.share_of_step_pct == pytest.approx(100 * 903_000 / (903_000 + 390))
    assert (finding.subject.kind, finding.subject.name) == ("device", "GPU 0")


@pytest.mark.parametrize(
    ("path", "general"),
    [
        ("examples/training.sqlite.xz", False),
        ("tests/data/foreign/nanogpt.sqlite.xz", True),
    ],
)
def test_only_late_launches_behind_other_work_in_one_place_name_a_single_thing(path, general):
    result = ANALYSIS.run(with_steps(traceview.load(REPOSITORY / path)))
    assert isinstance(result, Result)
    late = next(each for each in result.findings if "for the CPU to launch" in each.message)
    assert late.general == general


@pytest.mark.parametrize("in_graph", [False, True])
def test_gaps_between_kernels_of_one_stream_ask_for_fewer_kernels(in_graph, tmp_path):
    """Kernels of 10 µs with 2 µs between them, all launched before the first begins."""
    kernels = [(100_000 + 12_000 * place, 110_000 + 12_000 * place) for place in range(50)]
    export = Export()
    if in_graph:
        export.graph_launch((0, 5_000), kernels)
    else:
        for place, kernel in enumerate(kernels):
            export.launch((1_000 * place, 1_000 * place + 500), kernel)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert "2.00 µs per gap (median)" in finding.message
    if in_graph:
        assert finding.action.startswith("Time replays without a profiler first")
    else:
        assert finding.action.startswith("Fuse small kernels")
        assert "A CUDA graph shortens" in finding.action


def test_gaps_in_a_loop_of_xla_ask_for_fewer_iterations(tmp_path):
    export = Export().range("Thunk:#name=jit(step)/while,hlo_op=while.4#", 0, 60_000)
    for place in range(50):
        start = 100_000 + 12_000 * place
        name = "loop_add_fusion"
        export.launch((1_000 * place, 1_000 * place + 500), (start, start + 10_000), name=name)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.action.startswith("Let XLA fuse several iterations of the loop")


@pytest.mark.parametrize(
    ("api", "action"),
    [
        ("", "Look for other processes on this GPU"),
        ("cudaGraphicsMapResources_v3020", "The program draws on this GPU, too"),
        ("cuGraphicsMapResources", "The program draws on this GPU, too"),
    ],
)
def test_launched_work_that_nothing_recorded_holds_back(tmp_path, api, action):
    """Every kernel is launched 10 µs after the one before ends, and starts 4 ms later."""
    export, end = Export(), 0
    for _ in range(6):
        start = end + 4_000_000
        if api and end:
            export.call(api, end + 1_000, end + 3_000)
        export.launch((end + 5_000, end + 10_000), (start, start + 10_000_000))
        end = start + 10_000_000

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message == (
        "The GPU sat idle for 19.9 ms (5 gaps) with work already queued. In all of them the stream "
        "was free, and the GPU began the work only 3.99 ms after its launch (median)."
    )
    assert finding.action.startswith(action)
    assert finding.severity == "medium"  # a quarter of the time, for a reason that is not recorded


@pytest.mark.parametrize("place", ["aten::coalesce/aten::_coalesce", "aten::item", ""])
@pytest.mark.parametrize(("waits", "told"), [(6, True), (4, True), (2, False)])
def test_late_starts_behind_waits_of_the_cpu_ask_for_fewer_of_them(tmp_path, place, waits, told):
    """A kernel starts 4 ms after its launch, behind a synchronization or 5 µs of the CPU's own."""
    export, end = Export(), 0
    for number in range(7):
        start = end + 4_000_000
        if 0 < number <= waits:
            begin = end - 1_000_000
            for depth, name in enumerate(filter(None, place.split("/"))):
                export.range(name, begin - 100 + depth, end + 20_000 - depth)
            export.sync("cudaStreamSynchronize", begin, end + 3_000)
        export.launch((end + 5_000, end + 10_000), (start, start + 10_000_000))
        end = start + 10_000_000

    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    assert (f"Before {waits} of them the CPU waited" in finding.message) == told
    expected = "Coalesce the sparse matrix" if "_coalesce" in place else "Let the CPU wait less"
    assert finding.action.startswith(expected if told else "Look for other processes")


def test_long_gaps_of_queued_work_name_the_call_before_them(tmp_path):
    """Two of three gaps are long; the third is what any stream takes to go on."""
    export = Export().range("step", 0, 40).launch((0, 10), (20, 100_000))
    export.range("step", 100, 300_000)
    export.launch((110, 120), (400_000, 1_000_000))
    export.launch((130, 140), (1_300_000, 2_000_000))
    export.launch((150, 160), (2_002_000, 3_000_000))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert (
        "600 µs of that was in 2 gaps of 100 µs and more, in which nothing recorded held the work "
        "back. 600 µs of that came before work launched by cudaLaunchKernel in step."
    ) in finding.message


def test_two_gaps_without_steps_may_be_there_once(tmp_path):
    """The two first allocations take most of the idle time of a program that does not repeat."""
    export, end = Export(), 0
    for number, wait in enumerate((0, 8_000_000, 6_000_000, 200_000, 100_000, 100_000)):
        start = end + wait
        if wait:
            export.call("cudaMalloc", end, start - 10)
        export.launch((start - 5, start), (start, start + 1_000_000), name=f"k{number}")
        end = start + 1_000_000

    found = ask(ANALYSIS, export, tmp_path).findings

    [finding] = [each for each in found if "allocated or freed" in each.message]
    assert "14.0 ms of that was in 2 gaps." in finding.message
    assert finding.action.startswith("If a longer run repeats this, allocate")


def test_a_place_is_named_for_a_part_that_counts(tmp_path):
    idle = IdleClaim(Export().load(tmp_path), 0, np.zeros(0, bool), 100_000, "", "")
    idle.say_part("cpu_ns", 1_000, "was Python code outside any range.")
    assert not idle.said
    idle.say_part("cpu_ns", 10_000, "was Python code outside any range.")
    assert idle.said == [" {cpu_ns/idle_ns} was Python code outside any range."]
    assert idle.values == {"cpu_ns": 10_000}


@pytest.mark.parametrize(
    ("steps", "begins_ms", "found"),
    [(1, 60, True), (1, 3, False), (2, 60, False)],
    ids=["late", "soon", "several steps"],
)
def test_the_only_step_of_a_profiler_begins_long_before_its_work(tmp_path, steps, begins_ms, found):
    export = Export()
    for step in range(steps):
        begin = step * 100_000_000
        export.range(f"ProfilerStep#{step}", begin, begin + 100_000_000)
        call = begin + begins_ms * 1_000_000
        export.launch((call, call + 5_000), (call + 10_000, call + 30_000_000))
    findings = [
        each.message
        for each in ask(ANALYSIS, export, tmp_path).findings
        if "first GPU work" in each.message
    ]
    assert findings == found * [
        "The first GPU work of ProfilerStep#0 began after 60.0 ms of its 100 ms (60.0 %). The CPU "
        "did other work until then, and no other figure counts that time."
    ]


def allocating(*names: str, kernel: str = "k", free_ns: int = 0) -> Export:
    """Twenty kernels, with these calls of 300 µs between them, and one cudaFree."""
    export, now = Export(), 0
    for number in range(20):
        if free_ns and number == 10:
            export.call("cudaFree_v3020", now, now + free_ns)
            now += free_ns
        for name in names:
            export.call(name, now, now + 300_000)
            now += 305_000
        export.launch((now, now + 5_000), (now + 10_000, now + 1_000_000), name=kernel)
        now += 1_000_000
    return export


TORCH_KERNEL = "void at::native::vectorized_elementwise_kernel<4>(int)"


@pytest.mark.parametrize(
    ("export", "call", "action"),
    [
        (allocating("cudaMallocAsync_v11020"), "cudaMallocAsync", "cudaMemPoolAttrReleaseThresh"),
        (allocating("cudaMalloc_v3020"), "cudaMalloc", "or through a pool (cudaMallocAsync)"),
        (
            allocating("cudaFree_v3020", "cudaMalloc_v3020", kernel=TORCH_KERNEL),
            "cudaFree",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: PyTorch's allocator found no room",
        ),
        (
            allocating("cudaMalloc_v3020", kernel=TORCH_KERNEL),
            "cudaMalloc",
            "Warm up with the largest shapes: PyTorch's allocator keeps what they used",
        ),
        (
            # One free of twenty allocations is that of a library that starts.
            allocating("cudaMalloc_v3020", kernel=TORCH_KERNEL, free_ns=3_000_000),
            "cudaMalloc",
            "Warm up with the largest shapes",
        ),
    ],
)
def test_the_remedy_for_allocation_is_that_of_its_calls(export, call, action, tmp_path):
    found = ask(ANALYSIS, export, tmp_path).findings
    [finding] = [each for each in found if "allocated or freed" in each.message]

    assert f"was in {call}." in finding.message
    assert action in finding.action
    assert finding.edit is not None


K = "void at::native::vectorized_elementwise_kernel<4>(int)"


@pytest.mark.parametrize(
    ("operators", "call"),
    [
        (("aten::randn", "aten::normal_"), "torch.randn"),
        (("aten::rand", "aten::uniform_"), "torch.rand"),
        (("aten::normal_",), "torch.normal_"),
        (("aten::zeros", "aten::zero_"), "torch.zeros"),
        (("aten::sort",), None),
        ((), None),
    ],
)
def test_what_the_cpu_fills_is_to_be_made_on_the_gpu(tmp_path, operators, call):
    """Steps that make their input on the CPU, and copy it."""
    export = Export()
    for step in range(8):
        at = step * 40_000_000
        export.range(f"step_{step}", at, at + 39_000_000)
        for depth, name in enumerate(operators):
            export.range(name, at + 1_000 + depth, at + 30_000_000 - depth)
        export.launch(
            (at + 30_000_100, at + 30_000_200), (at + 30_001_000, at + 31_000_000), name=K
        )
    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    assert ("torch's CPU code in" in finding.message) == bool(operators)
    assert (f"pass device='cuda' to {call}, which" in finding.action) == bool(call)


@pytest.mark.parametrize(("small", "works"), [(5, True), (200, False)])
def test_other_work_is_the_remedy_where_it_takes_most_of_the_time(tmp_path, small, works):
    """A millisecond of other work per step, then small kernels every 20 µs."""
    export = Export()
    for step in range(8):
        took = 1_000_000 + small * 20_000
        at = step * took
        export.range(f"step_{step}", at, at + took - 10_000)
        export.range("load", at, at + 1_000_000)
        for kernel in range(small):
            begin = at + 1_000_000 + kernel * 20_000
            export.range(f"layer {kernel % 7}a", begin - 15_000 * (kernel > 0), begin + 4_900)
            export.launch((begin, begin + 4_000), (begin + 4_500, begin + 5_000), name=K)
    finding = ask(ANALYSIS, export, tmp_path).findings[0]

    start = "Take this CPU work out of the loop" if works else "Launch less"
    assert finding.action.startswith(start)
