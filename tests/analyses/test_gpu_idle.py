"""The analysis `gpu-idle`: busy and idle time, and the cause of each gap."""

import pytest

import traceview
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from tests.places import REPOSITORY
from traceview.analyses import steps, sync_stalls
from traceview.analyses.base import Result
from traceview.analyses.gpu_idle.analysis import ANALYSIS
from traceview.analyses.gpu_idle.findings.message import Wording
from traceview.facts.steps.inferred import with_steps

DEVICE = ("device_id", "span_ns", "busy_ns", "idle_ns")
CAUSE = ("cause", "gaps", "idle_ns")


def test_streams_that_overlap_are_not_added_up(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 30), stream=7)
        .launch((1, 2), (20, 40), stream=8)
        .launch((35, 36), (60, 70), stream=7)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", *DEVICE) == [(0, 60, 40, 20)]
    assert rows(result, "devices", "busy_pct") == [(100 * 40 / 60,)]


def test_copies_sets_and_whole_graphs_keep_the_gpu_busy(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20))
        .copy((1, 2), (20, 30))
        .set((2, 3), (30, 40))
        .graph_whole((3, 4), (40, 50))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", *DEVICE) == [(0, 40, 40, 0)]
    assert rows(result, "gaps", "duration_ns") == []


def test_two_gpus_are_apart_and_two_processes_on_one_gpu_together(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), process=1, device=0)
        .launch((0, 1), (15, 40), process=2, device=0)
        .launch((2, 3), (100, 110), process=1, device=1)
        .launch((4, 5), (150, 160), process=1, device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "devices", *DEVICE) == [(0, 30, 30, 0), (1, 60, 20, 40)]


def test_the_cause_is_why_the_next_work_did_not_start_earlier(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20))
        .launch((12, 14), (25, 30))  # queued at 14, before the GPU ran dry at 20
        .launch((40, 42), (45, 60))  # launched at 40: the GPU was idle from 30 on
        .sync("cudaStreamSynchronize_v3020", 43, 62)  # the GPU runs dry at 60, inside
        .launch((70, 72), (80, 90))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "causes", *CAUSE)) == [
        ("dependency", 1, 5),
        ("launch-late", 1, 15),
        ("sync-drain", 1, 20),
    ]
    assert rows(result, "gaps", "start_ns", "duration_ns", "cause") == [
        (60, 20, "sync-drain"),
        (30, 15, "launch-late"),
        (20, 5, "dependency"),
    ]
    assert sum(row[0] for row in rows(result, "causes", "idle_ns")) == 40


def test_a_wait_that_goes_on_after_the_launch_is_no_cause(tmp_path):
    export = (
        Export()
        .launch((0, 2), (5, 100))
        .sync("cudaEventSynchronize_v3020", 50, 5000, thread=3)
        .launch((500, 505), (510, 600))
        .launch((1000, 1005), (1010, 1100))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("launch-late", 2, 820)]


def test_a_wait_for_another_gpu_is_no_cause(tmp_path):
    export = (
        Export()
        .launch((0, 2), (5, 100), device=0)
        .launch((2, 4), (5, 200), device=1)
        .sync("cudaStreamSynchronize_v3020", 50, 201, thread=1, device=1)
        .launch((1000, 1005), (1010, 1100), device=0)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("launch-late", 1, 910)]


def test_a_blocking_copy_is_not_the_cause_of_the_gap_before_it(tmp_path):
    export = (
        Export()
        .launch((0, 2), (5, 1000))
        .copy((50, 1300), (1100, 1200), kind="D2H", source="device", destination="pageable")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("dependency", 1, 100)]


def test_a_wait_of_another_process_is_no_cause(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20), process=1)
        .sync("cudaDeviceSynchronize_v3020", 5, 25, process=2)
        .launch((30, 32), (40, 50), process=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("launch-late", 1, 20)]


def test_loading_code_for_a_first_launch_is_a_cause_of_its_own(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1000), name="a")
        .call("cuLibraryLoadData", 1100, 1700)
        .launch((1700, 1705), (2000, 3000), name="b")
        .launch((3200, 3205), (4000, 5000), name="b")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "causes", *CAUSE)) == [
        ("launch-late", 1, 1000),
        ("module-load", 1, 1000),
    ]
    assert rows(result, "devices", "one_time_idle_ns", "steady_busy_pct") == [
        (1000, 100 * 2990 / 3990)
    ]


def test_a_first_launch_behind_a_little_loading_is_late_and_counts_once(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1000), name="a")
        .call("cuLibraryLoadData", 1200, 1300)
        .launch((1700, 1705), (2000, 3000), name="b")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause", "steady_idle_ns") == [("launch-late", 0)]


def test_what_comes_before_the_first_step_is_warm_up(tmp_path):
    export = Export().launch((0, 2), (10, 20)).launch((50, 52), (60, 70))
    for step in range(2):
        now = 100 + 100 * step
        export.range(f"step_{step}", now, now + 50)
        export.launch((now + 20, now + 22), (now + 30, now + 40))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause", "idle_ns", "steady_idle_ns") == [
        ("launch-late", 40 + 60 + 90, 90)
    ]
    assert rows(result, "devices", "one_time_idle_ns", "steady_busy_pct") == [(100, 100 * 20 / 110)]


def test_a_long_first_launch_loads_its_kernel_lazily(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1_000), name="a")
        .launch((1_500, 901_500), (910_000, 920_000), name="b")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", "cause") == [("module-load",)]


def test_work_without_a_launch_call_has_no_known_cause(tmp_path):
    export = Export().launch((0, 2), (10, 20)).kernel_without_launch((50, 60))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("unknown", 1, 30)]


#  step_0: 10..20      step_1: 100..110, 130..140   step_2: 150..160
def three_steps() -> Export:
    return (
        Export()
        .range("step_0", 0, 50)
        .range("step_1", 50, 120)
        .range("load", 50, 58)
        .range("step_2", 120, 150)
        .launch((1, 2), (10, 20))
        .launch((60, 61), (100, 110))
        .launch((112, 113), (130, 140))
        .launch((145, 146), (150, 160))
    )


@pytest.mark.parametrize(
    ("selection", "busy", "idle"),
    [
        ({"include": ("step_0",)}, 10, 0),
        ({"include": ("step_1",)}, 20, 80 + 20),
        ({"exclude": ("step_1",)}, 20, 10),
        ({"include": ("step_0", "step_2")}, 20, 10),
        # Ranges that overlap hold their common work once.
        ({"include": ("step_*", "step_1")}, 40, 110),
        ({"include": ("step_*",), "exclude": ("step_2",)}, 30, 100),
    ],
)
def test_the_idle_time_of_a_selection_is_what_its_work_ended(tmp_path, selection, busy, idle):
    result = ask(ANALYSIS, three_steps(), tmp_path, **selection)

    assert rows(result, "devices", *DEVICE) == [(0, busy + idle, busy, idle)]
    assert sum(row[0] for row in rows(result, "causes", "idle_ns")) == idle
    assert sum(row[0] for row in rows(result, "gaps", "duration_ns")) == idle


def test_a_step_and_a_selection_of_it_have_the_same_idle_time(tmp_path):
    idle = rows(ask(steps.ANALYSIS, three_steps(), tmp_path), "steps", "step", "gpu_idle_ns")

    for name, expected in idle[1:]:
        one = ask(ANALYSIS, three_steps(), tmp_path, include=(name,))
        assert rows(one, "devices", "idle_ns") == [(expected,)]


def test_each_gpu_of_a_selection_has_the_gaps_that_its_own_work_ended(tmp_path):
    export = Export().range("step_1", 50, 100)
    for device in (0, 1):
        export.launch((1, 2), (10, 20), device=device)
    export.launch((60, 61), (70, 80), device=0).launch((110, 111), (120, 130), device=1)

    result = ask(ANALYSIS, export, tmp_path, include=("step_1",))

    assert rows(result, "devices", *DEVICE) == [(0, 60, 10, 50)]


def test_ranges_that_launched_nothing_tell_how_long_the_gpu_was_idle_meanwhile(tmp_path):
    [finding] = ask(ANALYSIS, three_steps(), tmp_path, include=("load",)).findings

    assert finding.message == (
        "No GPU work was launched in the selected ranges. GPU 0 sat idle for 8 ns of the 8 ns they "
        "were open."
    )
    assert finding.time_at_stake_ns == 8
    without = {"include": ("step_1",), "exclude": ("step_*",)}
    assert not ask(ANALYSIS, three_steps(), tmp_path, **without).findings


def test_a_synchronization_before_the_selection_is_reported_here(tmp_path):
    """sync-stalls tells of the waits made in the selection."""
    export = (
        Export()
        .range("step_0", 0, 1010)
        .range("step_1", 1010, 1100)
        .launch((0, 2), (10, 1000))
        .sync("cudaStreamSynchronize_v3020", 5, 1005)
        .launch((1050, 1052), (1060, 1100))
    )

    one = ask(ANALYSIS, export, tmp_path, include=("step_1",))
    before = ask(sync_stalls.ANALYSIS, export, tmp_path, include=("step_0",))

    assert rows(one, "causes", *CAUSE) == [("sync-drain", 1, 60)]
    assert one.findings[0].message.endswith(" All of it followed cudaStreamSynchronize in step_0.")
    assert rows(before, "sites", "idle_after_ns") == [(60,)]
    assert rows(ask(sync_stalls.ANALYSIS, export, tmp_path, include=("step_1",)), "sites") == []
    assert not ask(ANALYSIS, export, tmp_path).findings


def test_the_first_pinned_memory_of_a_process_is_allocated_once(tmp_path):
    export = Export().launch((0, 2), (10, 1000))
    for number, process in enumerate((1, 1, 2, 2)):
        now = 1000 * (number + 1)
        export.call("cudaHostAlloc_v3020", now + 10, now + 700, process=process)
        export.launch((now + 710, now + 712), (now + 720, now + 1000), process=process)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "causes", *CAUSE) == [("allocation", 4, 4 * 720)]
    assert rows(result, "causes", "steady_idle_ns") == [(2 * 720,)]


def test_device_memory_is_not_pinned_memory(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 1000))
        .call("cudaMalloc_v3020", 1010, 1900)
        .launch((1910, 1912), (1920, 2000))
    )

    assert rows(ask(ANALYSIS, export, tmp_path), "causes", "steady_idle_ns") == [(920,)]


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
        "Check whether a longer run repeats this. If so, take this CPU work out of the way"
    )


def test_a_long_gap_among_others_is_named_and_the_others_count(tmp_path):
    others = [40_000] * 15
    [finding] = ask(ANALYSIS, late(900_000, *others), tmp_path).findings

    assert "A single gap before work launched in part_a took 900 µs." in finding.message
    assert not finding.action.startswith("Check whether")


def test_two_gaps_alike_are_no_single_one(tmp_path):
    [finding] = ask(ANALYSIS, late(900_000, 600_000), tmp_path).findings

    assert "single gap" not in finding.message
    assert finding.action.startswith("Take this CPU work out of the way")


def test_a_gap_of_a_selection_is_no_single_one_where_others_are_like_it(tmp_path):
    [alike] = ask(ANALYSIS, late(900_000, 600_000), tmp_path, include=("part_a",)).findings
    [lone] = ask(ANALYSIS, late(900_000, 6_000), tmp_path, include=("part_a",)).findings

    assert "single gap" not in alike.message
    assert "It came before work launched in part_a." in lone.message


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
    assert finding.action.startswith("Fuse small kernels")
    assert ("A CUDA graph shortens" in finding.action) == (not in_graph)


def test_gaps_in_a_loop_of_xla_ask_for_fewer_iterations(tmp_path):
    export = Export().range("Thunk:#name=jit(step)/while,hlo_op=while.4#", 0, 60_000)
    for place in range(50):
        start = 100_000 + 12_000 * place
        name = "loop_add_fusion"
        export.launch((1_000 * place, 1_000 * place + 500), (start, start + 10_000), name=name)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.action.startswith("Let XLA fuse several iterations of the loop")


def test_launched_work_that_nothing_recorded_holds_back(tmp_path):
    """Every kernel is launched 10 µs after the one before ends, and starts 4 ms later."""
    export, end = Export(), 0
    for _ in range(6):
        start = end + 4_000_000
        export.launch((end + 5_000, end + 10_000), (start, start + 10_000_000))
        end = start + 10_000_000

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.message == (
        "The GPU sat idle for 20.0 ms (5 gaps) with work already queued. All of it was in gaps of "
        "100 µs and more, in which nothing recorded held the work back."
    )
    assert finding.action.startswith("See in the timeline what comes before this work. Page migr")
    assert finding.severity == "medium"  # a quarter of the time, for a reason that is not recorded


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
    assert finding.action.startswith("Check whether a longer run repeats this. If so, allocate")


def test_a_place_is_named_for_a_part_that_counts():
    wording = Wording("The GPU sat idle for {idle_ns}.", "", {"idle_ns": 100_000})
    wording.add_part("cpu_ns", 1_000, "was Python code outside any range.")
    assert wording.template == "The GPU sat idle for {idle_ns}."
    wording.add_part("cpu_ns", 10_000, "was Python code outside any range.")
    assert wording.template.endswith(" {cpu_ns} of that was Python code outside any range.")


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
