"""Recordings of first passes are called cold, and promise nothing per step."""

import numpy as np
import pytest

import traceview
from tests.build import Export
from tests.places import DATA
from traceview.traces.analyses.verdict import verdict
from traceview.traces.facts.idle.first_calls import cold_passes, is_start_up_alone
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import steps
from traceview.traces.ranking import as_notes

MS = 1_000_000

COLD = {
    # Four passes that compile (7 s more come after them), two of which the first imports, and
    # kernels whose variants are loaded one by one.
    "foreign/cupy_gmm": "Cold: first uses and compilation take 3.54 s of the 3.54 s of 4 passes",
    "first_checkpoint": "Cold: 2 passes of 3.38 s, 74.3 ms",
    "launches": "Cold: first uses and compilation take 2.23 s of 2.24 s · no steps found in",
}
WARM = (
    # Two passes after a warm-up; four of which the first loads code; a loop whose first step does.
    *("workloads/recomputation", "foreign/tensorboard_resnet"),
    *("workloads/transformer", "foreign/nanogpt", "host_loop"),
)


def loaded(name):
    return with_steps(traceview.load(DATA / f"{name}.sqlite.xz"))


@pytest.mark.parametrize("name", COLD)
def test_a_cold_recording_says_so_and_promises_nothing_per_step(name):
    report = traceview.analyze(loaded(name))
    assert report.verdict.text.startswith(COLD[name])
    assert (report.verdict.steps, report.verdict.step_median_ns) == (0, None)
    forecasts = [each.forecast for each in report.findings if each.forecast]
    assert all(forecast.saved_per_step_ns is None for forecast in forecasts)
    first = report.findings[0]
    assert first.analysis == "trace-health"
    assert first.finding.action.startswith("Record more passes")
    assert not any("the steps" in each.finding.message for each in report.findings)


@pytest.mark.parametrize("name", WARM)
def test_a_recording_with_usual_passes_is_not_cold(name):
    trace = loaded(name)
    assert cold_passes(trace) is None
    assert not is_start_up_alone(trace)


def passes(tmp_path, *lengths):
    export, at = Export(), 1_000
    for number, length in enumerate(lengths):
        export.range(f"step_{number}", at, at + length)
        export.launch((at + 10, at + 20), (at + 30, at + length))
        at += length
    return export.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "may_compile"),
    [("triton_poi_fused_add_0", True), ("triton__0d1d2", True), ("my_kernel", False)],
)
def test_a_start_with_kernels_of_a_compiler_may_be_its_compilation(tmp_path, name, may_compile):
    export = Export().launch((0, 1_000), (2_000, 4_000), name="fill")
    for number in range(3):
        at = 2_000 * MS + number * MS
        export.launch((at, at + 1_000), (at + 2_000, at + 4_000), name=name)
    text = verdict(export.load(tmp_path)).text
    assert text.startswith("Next to no GPU work was recorded: ")
    assert ("it may have compiled meanwhile" in text) == may_compile


@pytest.mark.parametrize(
    ("lengths", "is_cold"),
    [
        ((10_000, 4_000), True),
        ((10_000, 6_000), False),
        # Of three the first is warm-up, which needs no word.
        ((10_000, 4_000, 4_000), False),
    ],
)
def test_of_two_passes_the_first_is_cold_if_it_is_much_longer(tmp_path, lengths, is_cold):
    assert bool(cold_passes(passes(tmp_path, *lengths))) is is_cold


@pytest.mark.parametrize("lengths", [(4, 28, 10), (28, 4, 28, 150), (10, 11, 10), (90, 10, 10)])
@pytest.mark.parametrize("start_ms", [100, 20_000])
def test_few_uneven_passes_beside_a_long_start_are_cold(tmp_path, lengths, start_ms):
    """One after the other, each on its own, so that no usual one can be told."""
    export, at = Export().call("cudaMalloc", 0, start_ms * MS), start_ms * MS
    for number, length in enumerate(lengths):
        export.range(f"step_{number}", at, at + length * MS)
        for part in range(10):
            begins, each = at + part * length * MS // 10, length * MS // 10
            export.launch((begins + 10, begins + 20), (begins + 30, begins + each - 9))
        at += length * MS
    report = traceview.analyze(with_steps(export.load(tmp_path)))
    cold = start_ms > 100 and lengths[0] in (4, 28)
    assert report.verdict.text.startswith(f"Cold: {len(lengths)} passes of ") == cold
    if cold:
        assert says_once_to_record_more(report)
        shortest, longest = (
            f"{least:.{3 - len(str(least))}f} ms" for least in (min(lengths), max(lengths))
        )
        assert f"passes take {shortest} to {longest}" in report.findings[0].finding.message


def start_up(tmp_path, kernels):
    export = Export()
    for number in range(kernels):
        at = number * MS
        export.launch((at, at + 1_000), (at + 2_000, at + 4_000), name=f"fill_{number % 2}")
    return export.load(tmp_path)


def test_a_few_operations_are_the_start_of_a_program(tmp_path):
    trace = with_steps(start_up(tmp_path, 12))
    report = traceview.analyze(trace)
    assert report.verdict.text.startswith("Next to no GPU work was recorded: ")
    assert report.verdict.steps == 0
    assert says_once_to_record_more(report)
    assert not any(each.finding.time_at_stake_ns for each in report.findings)
    assert not any("launch-bound" in each.finding.message for each in report.findings)


def says_once_to_record_more(report):
    """First, and in no other finding: the rest are notes."""
    first, *others = report.findings
    ours = first.analysis == "trace-health" and first.action.startswith("Record more passes")
    again = any("Record" in each.action and "passes" in each.action for each in others)
    return ours and not again and {each.finding.severity for each in others} <= {"info"}


@pytest.mark.parametrize(
    ("work_ms", "start_ms", "alone"),
    [
        (1, 900, True),
        (3, 900, True),
        (9, 900, True),
        (3, 100, False),
        (18, 900, False),
        (9, 4_000, True),
    ],
)
def test_one_pass_in_a_long_start(tmp_path, work_ms, start_ms, alone):
    """Vectors are copied, added and copied back, once."""
    export = Export().call("cudaMalloc", 0, start_ms * MS)
    at = start_ms * MS
    for _ in range(2):
        export.copy((at, at + work_ms * MS // 3), (at + 1_000, at + work_ms * MS // 3 - 1_000))
        at += work_ms * MS // 3
    export.launch((at, at + 5_000), (at + 6_000, at + 40_000), name="add")
    trace = export.load(tmp_path)
    assert is_start_up_alone(trace) is alone


def test_as_many_more_are_a_program(tmp_path):
    assert not is_start_up_alone(start_up(tmp_path, 24))


def set_up(tmp_path, count, gap_ns, repeats):
    """Operations of 5 µs each, far apart: all different, or a loop of one kernel."""
    draw, export, at = np.random.default_rng(count), Export(), 0
    for number in range(count):
        at += gap_ns if repeats else int(draw.integers(gap_ns // 4, 2 * gap_ns))
        name = "step" if repeats else f"set_{number}"
        if number % 3 or repeats:
            export.launch((at, at + 4_000), (at + 5_000, at + 10_000), name=name)
        else:
            export.copy((at, at + 4_000), (at + 5_000, at + 10_000), bytes=4096 + number)
    return with_steps(export.load(tmp_path))


@pytest.mark.parametrize("count", [30, 62, 100])
@pytest.mark.parametrize("gap_ms", [20, 60])
def test_little_work_that_no_loop_repeats_is_the_start_of_a_program(tmp_path, count, gap_ms):
    trace = set_up(tmp_path, count, gap_ms * MS, repeats=False)
    assert is_start_up_alone(trace)
    report = traceview.analyze(trace)
    assert report.verdict.text.startswith(f"Next to no GPU work was recorded: {count} operations")
    assert says_once_to_record_more(report)


@pytest.mark.parametrize("uploads", [7, 40])
@pytest.mark.parametrize(("start_ms", "alone"), [(4_000, True), (100, False)])
@pytest.mark.parametrize("computes", [False, True])
def test_weights_that_nothing_works_on_are_the_start_of_a_program(
    tmp_path, uploads, start_ms, alone, computes
):
    """A training that ends before its first kernel; a program that measures copies does not."""
    export, at = Export().call("cudaHostAlloc", 0, start_ms * MS), start_ms * MS
    for _ in range(uploads):
        export.copy((at, at + 8_000), (at + 10_000, at + 3 * MS), bytes=33_554_432)
        at += 3 * MS
    if computes:
        export.launch((at, at + 5_000), (at + 8_000, at + 20 * MS), name="gemm")

    report = traceview.analyze(export.load(tmp_path))

    alone = alone and not computes
    assert report.verdict.text.startswith("No kernel ran, nothing but a start") is alone
    said = [each.finding for each in report.findings if each.finding.severity != "info"]
    assert any("while kernels run" in each.action for each in said) is (not alone)
    if alone:
        assert [each.message.split(":")[0] for each in said] == ["No kernel was launched"]


@pytest.mark.parametrize("first_ms", [3, 9])
@pytest.mark.parametrize("passes", [8, 9])
def test_passes_that_wait_for_a_connection_first_are_start_up(tmp_path, first_ms, passes):
    """Ranks exchange small messages a few times; the first exchanges connect them."""
    export, at = Export(), 900 * MS
    export.os_call("connect", 0, 1_000)
    export.launch((at, at + 4_000), (at + 5_000, at + 8_000), name="init")
    for number in range(passes):
        at += first_ms * MS if number < 2 else 60_000
        for name in ("pack", "fill", "unpack"):
            export.launch((at, at + 4_000), (at + 5_000, at + 8_000), name=name)
            at += 40_000
    export.os_call("finalize", at + 400 * MS, at + 401 * MS)
    assert is_start_up_alone(with_steps(export.load(tmp_path)))


@pytest.mark.parametrize(("gap_ms", "repeats"), [(1, False), (20, True)])
def test_a_loop_of_little_work_is_a_program(tmp_path, gap_ms, repeats):
    trace = set_up(tmp_path, 100, gap_ms * MS, repeats)
    assert not is_start_up_alone(trace)


@pytest.mark.parametrize(("before_ms", "after_ms", "alone"), [(0, 9_000, True), (9_000, 40, False)])
@pytest.mark.parametrize("passes", [20, 80])
def test_a_loop_of_a_programs_start_is_start_up(tmp_path, before_ms, after_ms, alone, passes):
    """A simulator copies 130 times in its first tenth of a second, and works at last, after 26."""
    export, at = Export(), before_ms * MS
    export.os_call("read", 0, 1_000)
    for _ in range(passes):
        for name in ("fill", "scale"):
            export.launch((at, at + 4_000), (at + 5_000, at + 25_000), name=name)
            at += 60_000
    at += after_ms * MS
    export.launch((at, at + 4_000), (at + 5_000, at + 25_000), name="last")

    assert is_start_up_alone(with_steps(export.load(tmp_path))) is alone


def test_what_is_missing_in_a_recording_stays_a_finding():
    report = traceview.analyze(loaded("first_checkpoint"))
    kept = [each for each in as_notes(report.findings, 0) if each.finding.severity != "info"]
    assert [each.analysis for each in kept] == ["trace-health"]


@pytest.mark.parametrize("blocks", [1, 16])
@pytest.mark.parametrize(("late_us", "told"), [(2, True), (300, True), (950, False)])
def test_a_little_of_a_start_is_not_worth_a_word(tmp_path, blocks, late_us, told):
    """One small kernel waits for its first page, and has idle SMs for the rest of its 1 ms."""
    export, at = Export().call("cudaMalloc", 0, 400 * MS), 400 * MS
    export.launch((at - 9_000, at - 5_000), (at, at + MS), gridX=blocks, blockX=256)
    export.migration((at + late_us * 1_000, at + late_us * 1_000 + 7_000))
    export.call("cudaFree", 401 * MS, 402 * MS)
    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.text.startswith("Next to no GPU work")
    assert any("stay idle" in each.finding.message for each in report.findings) is told


def late_kernel(tmp_path, uploads, pause_ms, kernels):
    """A program that uploads its data, works on the CPU, and computes once at last."""
    export, at = Export(), 0
    for _ in range(uploads):
        export.copy((at, at + 4 * MS), (at + 20_000, at + 4 * MS), bytes=33_554_432)
        at += 5 * MS
    at += pause_ms * MS
    for number in range(kernels):
        took = (8 + number) * MS
        export.launch((at, at + 5_000), (at + 8_000, at + took), name=f"solve_{number}")
        at += took + 50_000
    export.copy((at, at + 7 * MS), (at + 20_000, at + 7 * MS), kind="D2H", bytes=33_554_432)
    return export.load(tmp_path)


@pytest.mark.parametrize("arrays", [40, 90])
def test_a_recording_of_loading_is_said_to_be_one(tmp_path, arrays):
    """Weights copied one by one, 1 ms of CPU work before each, and one kernel that clears."""
    export, at = Export(), 0
    for _ in range(arrays):
        export.copy((at, at + 90_000), (at + 10_000, at + 90_000), bytes=33_554_432)
        at += MS
    export.launch((at, at + 5_000), (at + 8_000, at + 28_000), name="fill")

    text = traceview.analyze(export.load(tmp_path)).verdict.text

    assert text.startswith("Little but loading was recorded: ")
    assert "GPU busy" not in text


@pytest.mark.parametrize("uploads", [1, 3])
@pytest.mark.parametrize("kernels", [1, 4])
@pytest.mark.parametrize(("pause_ms", "mostly"), [(5, False), (400, True), (15_000, True)])
def test_cpu_work_before_the_first_kernel_is_no_first_use(
    tmp_path, uploads, kernels, pause_ms, mostly
):
    report = traceview.analyze(late_kernel(tmp_path, uploads, pause_ms, kernels))
    assert "Cold" not in report.verdict.text
    assert ("idle before the first kernel" in report.verdict.text) is mostly
    late = [each for each in report.findings if "before its first kernel" in each.finding.message]
    assert len(late) == mostly
    assert all("one pause" not in each.finding.message for each in report.findings)
    assert all(each.finding.severity == "high" for each in late)
    assert late == [*report.findings[: len(late)]]
    assert all("first uses" not in each.finding.message for each in report.findings)


@pytest.mark.parametrize("name", ["matmul", "solve/set_up", None])
@pytest.mark.parametrize("pause_ms", [150, 2_000])
def test_a_long_start_is_told_with_the_range_that_it_is_in(tmp_path, name, pause_ms):
    """As of code that a library compiles on the CPU in a range of the program."""
    export = Export()
    export.copy((0, 5_000), (8_000, 9_000), bytes=400)
    if name:
        export.range(name, 5_000, pause_ms * MS + 20_000)
    at = pause_ms * MS
    export.launch((at, at + 5_000), (at + 8_000, at + 13_000), name="matmul_kernel")
    export.copy((at + 50_000, at + 90_000), (at + 60_000, at + 61_000), kind="D2H", bytes=400)

    report = traceview.analyze(export.load(tmp_path))

    told = (each.finding.message for each in report.findings if each.analysis == "gpu-idle")
    assert "before its first kernel" in (first := next(told))
    assert (f" was in {name}." in first) is bool(name)
    assert all("ncu" not in each.finding.action for each in report.findings)


@pytest.mark.parametrize(
    "call", ["cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cudaMemcpyPeer"]
)
@pytest.mark.parametrize("load_ms", [2, 9])
def test_a_question_on_a_kernel_loads_its_code(tmp_path, call, load_ms):
    """A program that multiplies once: cuBLAS asks for the occupancy of its kernel first."""
    export, at = Export(), 0
    export.copy((at, at + 400_000), (at + 20_000, at + 400_000), bytes=4_194_304)
    at += 450_000
    export.call(call, at, at + load_ms * MS)
    at += load_ms * MS + 5_000
    export.launch((at, at + 5_000), (at + 8_000, at + 300_000), name="gemm")
    at += 310_000
    export.copy((at, at + 500_000), (at + 20_000, at + 500_000), kind="D2H", bytes=4_194_304)

    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.text.startswith("Cold: first uses") is call.startswith("cudaOccupancy")


@pytest.mark.parametrize("prints", [5, 9])
@pytest.mark.parametrize(("kernel_us", "alone"), [(9, True), (400, False)])
def test_a_few_passes_after_a_long_compilation_are_no_program(tmp_path, prints, kernel_us, alone):
    """A first kernel is compiled for a second; then a tensor is printed, value by value."""
    export, at = Export(), 0
    export.os_call("read", 0, 1_000)
    for number in range(6):
        export.launch((at, at + 4_000), (at + 5_000, at + 9_000), name=f"init_{number}")
        at += 20_000
    at += 1_200 * MS
    for _ in range(prints):
        for name in ("compare", "any", "copy"):
            end = at + kernel_us * 1_000
            export.launch((at, at + 4_000), (at + 5_000, end), name=name)
            at = end + 10_000
    assert is_start_up_alone(with_steps(export.load(tmp_path))) is alone


@pytest.mark.parametrize(
    ("program", "compiled"),
    [("rt", True), ("a.out", True), ("/opt/noderunner", False), ("python3.12", False)],
)
@pytest.mark.parametrize("between_ms", [100, 300])
@pytest.mark.parametrize("kernels", [2, 4, 7])
def test_what_a_compiled_program_does_before_a_new_kernel_is_no_first_use(
    tmp_path, program, compiled, between_ms, kernels
):
    """Found on a ray tracer that writes its image before it frees the scene: no import, and no
    compiler of kernels, comes before the first use of one."""
    export, at = Export(), 0
    export.program = program
    for number in range(kernels):
        export.call("cuLibraryGetKernel", at, at + 2_000)
        at += 4_000
        export.launch((at, at + 90_000), (at + 92_000, at + 40 * MS), name=f"stage_{number}")
        export.sync("cudaDeviceSynchronize_v3020", at + 95_000, at + 40 * MS + 5_000)
        at += (40 + between_ms) * MS
    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.text.startswith("Cold") is not compiled
    [idle] = [each for each in report.findings if "sat idle" in each.finding.message][:1]
    assert (idle.severity != "info") is compiled


@pytest.mark.parametrize("load_ms", [60, 900])
@pytest.mark.parametrize("products", [1, 4])
def test_little_beside_first_uses_promises_nothing(tmp_path, load_ms, products):
    """Matrices are copied and multiplied once: its code and buffers take most of the time."""
    export, at = Export(), 0
    export.copy((at, at + 4 * MS), (at + 20_000, at + 4 * MS), bytes=100_000_000)
    at += 4 * MS
    export.call("cuModuleLoadData", at, at + load_ms * MS)
    at += load_ms * MS + 5_000
    for _ in range(products):
        export.launch((at, at + 5_000), (at + 8_000, at + 5 * MS), name="ampere_sgemm_128x64_nn")
        at += 5 * MS + 10_000

    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.text.startswith("Cold: first uses")
    first = report.findings[0]
    assert (first.severity, first.action.split(",")[0]) == ("high", "Record more passes")
    assert {each.finding.severity for each in report.findings[1:]} == {"info"}


@pytest.mark.parametrize(
    ("load_ms", "again"), [(30, 0.2), (60, 0.4), (30, 0.8), (60, 1.0), (5, 0.2)]
)
@pytest.mark.parametrize("kernels", [20, 45])
def test_a_first_use_in_the_only_pass(tmp_path, load_ms, again, kernels):
    """A launch of 7 ms in the backward pass, behind which the forward pass does not run again."""
    export, at = Export(), 0
    whole = 100 * MS
    for number in range(2 * kernels):
        name = f"forward_{number}" if number < again * kernels else f"kernel_{number}"
        name = f"forward_{number - kernels}" if 0 <= number - kernels < again * kernels else name
        if number == kernels:
            export.call("cuLibraryLoadData", at, at + load_ms * MS)
            at += load_ms * MS
        export.launch((at, at + 4_000), (at + 9_000, at + 20_000), name=name)
        at += (whole - load_ms * MS) // (2 * kernels)
    trace = with_steps(export.load(tmp_path))
    assert not len(steps(trace))
    assert bool(cold_passes(trace)) is (load_ms > 50 or (load_ms > 25 and again < 0.5))


@pytest.mark.parametrize("load_ms", [400, 3_000])
@pytest.mark.parametrize(("even", "cold"), [(True, False), (False, True)])
def test_layers_of_a_first_pass_are_no_steps(tmp_path, load_ms, even, cold):
    """Blocks of a network in its first pass: each loads code now and then, and so is uneven."""
    names = ("norm", "qkv", "attention", "proj", "mlp", "gelu")
    export, at = Export(), 0
    for block in range(14):
        for number, name in enumerate(names):
            load = load_ms * MS if block < 3 and number % 2 == 0 else 0
            export.launch(
                (at, at + load + 6_000), (at + load + 8_000, at + load + 50_000), name=name
            )
            at += load + 60_000
            at += 0 if even or number or block % 4 else 4 * MS
    trace = with_steps(export.load(tmp_path))

    assert bool(cold_passes(trace)) is cold
    findings = traceview.analyze(trace).findings
    assert cold is (findings[0].analysis == "trace-health")
    assert not cold or {each.finding.severity for each in findings[1:]} <= {"info"}


XLA_NAMES = {
    "new": ("loop_add_fusion", "input_reduce_fusion_1", "wrapped_transpose", "gemm_fusion_dot_2"),
    "old": ("fusion", "broadcast_1", "fusion_7", "convert_3", "reduce_12"),
    "library": ("loop_multiply_fusion_3", "ampere_sgemm_64x32_sliced1x4_nn", "fusion_2"),
}


@pytest.mark.parametrize("names", XLA_NAMES)
@pytest.mark.parametrize(("programs", "alike"), [(3, False), (12, False), (12, True)])
@pytest.mark.parametrize("load", ["cuModuleLoadDataEx", "cuLibraryLoadData"])
def test_first_calls_of_programs_of_xla_are_compilation(tmp_path, names, programs, alike, load):
    """Each jitted program is compiled at its first call, without ranges or samples that say so."""
    draw, export, at = np.random.default_rng(programs), Export(), 900 * MS
    export.call("cuInit", 0, at)
    for number in range(programs):
        at += 300 * MS
        for asks in ("cuCtxSetCurrent", "cuMemGetInfo"):
            export.call(asks, at, at + 50_000)
            at += 60_000
        export.call(load, at, at + 400_000)
        at += 410_000
        for kernel in range(3):
            every = XLA_NAMES[names]
            name = every[kernel % len(every)] if alike else str(draw.choice(every))
            # The first names say that these are programs of XLA.
            name = name if number else every[kernel]
            export.launch((at, at + 5_000), (at + 8_000, at + 16_000), name=name)
            at += 20_000
    report = traceview.analyze(with_steps(export.load(tmp_path)))

    text, board = report.verdict.text, report.scoreboard
    assert text.startswith("Next to no GPU work was recorded: ")
    assert "of compilation" in text
    assert "waiting for launches" not in text
    assert (report.verdict.limit, report.verdict.steps) == ("compilation", 0)
    assert (board.gpu_busy_pct, board.launch) == (None, None)
    first = report.findings[0]
    assert first.analysis == "phases"
    assert first.finding.message.startswith("Compilation by XLA took ")
    assert "JAX_COMPILATION_CACHE_DIR" in first.finding.action
    assert ("one jax.jit" in first.finding.action) is (programs > 6)


@pytest.mark.parametrize("passes", [2, 3, 4])
@pytest.mark.parametrize("tensor_cores", [False, True])
@pytest.mark.parametrize("load_ms", [40, 400])
def test_cold_passes_prove_no_remedy(tmp_path, passes, tensor_cores, load_ms):
    """Passes of matrix products, each of which loads code: nothing but that is told as high."""
    gemm = "ampere_s16816gemm_bf16_128x64" if tensor_cores else "ampere_sgemm_128x64_nn"
    export, at = Export(), 0
    for number in range(passes):
        export.range(f"step_{number}", at, at + 2 * load_ms * MS + 20 * MS)
        for layer in range(20):
            if layer < 2:
                export.call("cuModuleLoadData", at, at + load_ms * MS)
                at += load_ms * MS + 5_000
            export.launch((at, at + 5_000), (at + 8_000, at + 600_000), name=gemm)
            at += 620_000
        at = (number + 1) * (2 * load_ms * MS + 20 * MS)
    report = traceview.analyze(export.load(tmp_path))

    assert report.verdict.text.startswith("Cold: first uses")
    assert (report.scoreboard.gpu_busy_pct, report.scoreboard.launch) == (None, None)
    assert told(report) == {"trace-health"}


def told(report):
    """The analyses whose findings are more than notes."""
    return {each.analysis for each in report.findings if each.finding.severity != "info"}


@pytest.mark.parametrize("kernels", [150, 400])
@pytest.mark.parametrize("late_ms", [0.02, 0.3])
@pytest.mark.parametrize("pause_ms", [0, 200])
@pytest.mark.parametrize("gemm", ["ampere_sgemm_128x64_nn", "ampere_s16816gemm_bf16_128x64"])
def test_what_is_left_of_a_first_pass_is_notes(tmp_path, kernels, late_ms, pause_ms, gemm):
    """A network's first pass loads code for most of the time, and launches late for the rest."""
    draw, export, at = np.random.default_rng(kernels), Export(), 0
    names = (gemm, "softmax_warp_forward", *(f"layer_{number}_kernel" for number in range(20)))
    loading = set(draw.choice(np.arange(1, kernels), 12, replace=False).tolist())
    rest_ms = kernels * (late_ms + 0.03) + pause_ms
    for number in range(kernels):
        if number in loading:
            load = int(3 * rest_ms / len(loading) * MS)
            export.call("cuModuleLoadData", at, at + load)
            at += load + 2_000
        at += int(draw.uniform(0.5, 1.5) * late_ms * MS) + (number == 20) * pause_ms * MS
        name = names[int(draw.integers(len(names)))]
        export.launch((at, at + 5_000), (at + 8_000, at + 25_000), name=name)
        at += 30_000
    report = traceview.analyze(with_steps(export.load(tmp_path)))

    assert report.verdict.text.startswith("Cold: first uses and compilation take ")
    assert "waiting for launches" not in report.verdict.text
    assert (report.scoreboard.gpu_busy_pct, report.scoreboard.launch) == (None, None)
    assert told(report) == {"trace-health"}
    assert report.findings[0].action.startswith("Record more passes")


@pytest.mark.parametrize("passes", [4, 13, 19])
@pytest.mark.parametrize("kernels", [1, 3])
@pytest.mark.parametrize("pass_us", [32, 3_000, 31_600])
@pytest.mark.parametrize("uploads", [0, 2])
def test_a_handful_of_equal_work_at_the_end_of_a_start_is_no_loop(
    tmp_path, passes, kernels, pass_us, uploads
):
    report = traceview.analyze(with_steps(brief_loop(tmp_path, passes, kernels, pass_us, uploads)))

    assert (report.verdict.steps, report.verdict.steps_from) == (0, "none")
    text = "in the step", "per step", "every step"
    assert not any(
        each in f"{found.finding.message} {found.finding.action}"
        for found in report.findings
        for each in text
    )
    assert is_start_up_alone(report.recording) is (pass_us == 32)
    if pass_us == 32:
        assert report.verdict.text.startswith("Next to no GPU work was recorded: ")
        assert says_once_to_record_more(report)


@pytest.mark.parametrize(("passes", "kernels", "start"), [(40, 1, 30), (12, 20, 30), (13, 1, 3)])
def test_more_or_longer_work_after_a_start_is_a_loop(tmp_path, passes, kernels, start):
    """Many passes, passes of many kernels, or passes that are more than a moment of the run."""
    trace = with_steps(brief_loop(tmp_path, passes, kernels, 3_000, 0, start))
    assert traceview.analyze(trace).verdict.steps


def brief_loop(tmp_path, passes, kernels, pass_us, uploads, start=30):
    """Passes that wait at their end, after a start that takes `start` times as long."""
    export, at = Export(), start * passes * pass_us * 1_000
    export.call("cudaMalloc", 0, at - 50_000)
    for _ in range(uploads):
        export.copy((at, at + 9_000), (at + 6_000, at + 8_000))
        at += 10_000
    for _ in range(passes):
        for number in range(kernels):
            took = pass_us * 1_000 // kernels
            times = (at, at + min(4_000, took // 3)), (at + took // 2, at + took)
            export.launch(*times, name=f"k{number}")
            at += took
        export.sync("cudaDeviceSynchronize", at - 100, at + 2_000, sync_type="context")
        at += 12_000
    return export.load(tmp_path)
