"""Kernels by time, the ranges that launched them, and fp32 GEMMs off the tensor cores."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview import units
from traceview.analyses.kernel_share.analysis import ANALYSIS
from traceview.analyses.kernel_share.fp32_gemms import GemmLaunches, estimate
from traceview.analyses.kernel_share.unaligned_gemms import aligned_elements
from traceview.facts.work.declarations import declaration
from traceview.facts.work.peaks import Peak
from traceview.findings import Finding, Subject
from traceview.tables import Texts
from traceview.trace.load import load

FIGURES = ("short_name", "calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")


def test_kernels_of_one_name_are_added_up(tmp_path):
    export = (
        Export()
        .launch((0, 2), (10, 20), name="gelu<float>(int)")
        .launch((2, 4), (20, 60), name="gelu<float>(int)")
        .launch((4, 6), (60, 85), name="gelu<float>(int)")
        .launch((6, 8), (90, 115), name="add")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", *FIGURES) == [
        ("gelu", 3, 75, 25, 25, 10, 40),
        ("add", 1, 25, 25, 25, 25, 25),
    ]
    assert rows(result, "kernels", "name", "share_pct") == [
        ("gelu<float>(int)", 75.0),
        ("add", 25.0),
    ]
    (finding,) = result.findings
    assert finding.message == "gelu takes 75 ns, 75.0 % of kernel time."
    assert finding.action.endswith("At most 75 ns can be saved.")
    assert finding.subject == Subject("kernel", "gelu<float>(int)")
    assert finding.evidence.row == {"name": "gelu<float>(int)"}
    # The GPU was busy for 95 ns, and idle for 5 and 0 between.
    assert finding.share_of_step_pct == pytest.approx(100 * 75 / 105)


def test_classes_of_each_gpu(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 40), name="matmul")
        .launch((1, 2), (40, 50), name="gelu")
        .launch((2, 3), (50, 60), name="add")
        .launch((0, 1), (10, 30), name="gelu", process=2, device=1)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "classes", "device_id", "class", "calls", "total_ns", "share_pct") == [
        (0, "gemm", 1, 30, 60.0),
        (0, "elementwise", 2, 20, 40.0),
        (1, "elementwise", 1, 20, 100.0),
    ]


def test_the_costliest_own_kernel_is_that_of_the_time_after_warm_up(tmp_path):
    """The trials of an autotuner are most of the time, and of a kernel that is fast in the end."""
    export = Export().range("warm_up", 0, 100)
    for trial in range(10):
        export.launch((5 * trial, 5 * trial + 2), (100 * trial, 100 * trial + 90), name="tuned")
    export.range("step_0", 100, 200)
    for place, (name, took) in enumerate((("tuned", 10), ("formula", 60), ("sum", 30))):
        start = 1000 + 100 * place
        export.launch((101 + place, 102 + place), (start, start + took), name=name)

    result = ask(ANALYSIS, export, tmp_path)

    (found,) = result.findings
    assert found.message == "formula takes 60 ns, 60.0 % of kernel time after warm-up."
    assert found.time_at_stake_ns == 60
    # The table still has all that ran.
    assert rows(result, "kernels", "short_name", "total_ns")[0] == ("tuned", 910)


def test_a_warm_up_step_is_left_out_with_all_its_kernels(tmp_path):
    """The CPU is ahead: most of the first step runs while the second is launched."""
    export = Export()
    for step in range(3):
        export.range(f"step_{step}", 100 * step, 100 * step + 90)
        for place, (name, took) in enumerate((("slow", 300), ("fast", 200))):
            call = 100 * step + 10 + 10 * place
            start = 20 + 500 * step + 300 * place
            export.launch((call, call + 2), (start, start + took), name=name)

    (found,) = ask(ANALYSIS, export, tmp_path).findings

    assert found.message == "slow takes 600 ns, 60.0 % of kernel time after warm-up."
    assert found.time_at_stake_ns == 600


def test_a_recording_of_warm_up_alone_has_its_largest_kernel(tmp_path):
    export = Export().range("warm_up", 0, 100).launch((1, 2), (10, 20), name="tuned")

    (found,) = ask(ANALYSIS, export, tmp_path).findings

    assert found.message == "tuned takes 10 ns, 100.0 % of kernel time."


def steps_of(*launches: tuple[str, int], steps: int = 4) -> Export:
    """Steps of these kernels and times, one after another without a gap."""
    export, start = Export(), 0
    for _ in range(steps):
        for name, took in launches:
            export.kernel_without_launch((start, start + took), name=name)
            start += took
    return export


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)"
NORM = "void at::native::unnamed::vectorized_layer_norm_kernel<float>(int)"
GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


def test_a_chain_of_eager_kernels_takes_as_long_fused_as_its_longest(tmp_path):
    export = steps_of((GEMM, 1000), (CAST, 50), (ADD, 100), (NORM, 70), (GEMM, 1000), (ADD, 90))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # The last add of a step stands alone: no chain.
    assert finding.time_at_stake_ns == 4 * (50 + 70)
    assert finding.message.startswith(
        "12 kernels of elementwise operations, casts, normalizations and reductions run in 4 "
        "chains and take 880 ns. Fused, a chain takes about as long as its longest kernel: up "
        "to 480 ns less."
    )
    assert finding.action.startswith("Use torch.compile")
    assert finding.share_of_step_pct == pytest.approx(100 * 480 / (4 * 2310))


@pytest.mark.parametrize("name", ["gelu_kernel", "triton_poi_fused_add_0", "loop_add_fusion"])
def test_kernels_that_a_compiler_or_the_program_wrote_are_no_chain(name, tmp_path):
    export = steps_of((GEMM, 1000), (name, 50), (name, 50), (name, 50))

    findings = ask(ANALYSIS, export, tmp_path).findings

    assert not [each for each in findings if "chain" in each.message]


def test_chains_do_not_span_streams(tmp_path):
    export = Export()
    for at in range(0, 400, 100):
        export.kernel_without_launch((at, at + 90), name=ADD, stream=7)
        export.kernel_without_launch((at, at + 90), name=GEMM, stream=7 + at)
        export.kernel_without_launch((at + 5, at + 95), name=ADD, stream=9)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert finding.evidence.values["runs"] == 2


def test_a_chain_ends_with_its_step(tmp_path):
    """The last kernel of a step and the first of the next one follow each other on the stream."""
    export = Export()
    for number in range(6):
        at = 1_000 * number
        export.range(f"step_{number}", at, at + 990)
        for row, (name, begin) in enumerate([(ADD, 100), (CAST, 300), (GEMM, 500), (NORM, 800)]):
            call = (at + 10 + 20 * row, at + 20 + 20 * row)
            export.launch(call, (at + begin, at + begin + 150), name=name)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # Of the five steps after warm-up: NORM alone, then ADD and CAST of the next step.
    assert (finding.evidence.values["runs"], finding.evidence.values["kernels"]) == (5, 10)


def test_an_optimizer_of_foreach_kernels(tmp_path):
    metadata = "at::native::TensorListMetadata<2>"
    lerp, sqrt = (
        f"void at::native::multi_tensor_apply_kernel<{metadata}, {each}>(T1)"
        for each in ("TernaryOpScalarFunctor", "UnaryOpFunctor")
    )
    export = steps_of((GEMM, 1000), (lerp, 100), (lerp, 80), (sqrt, 90))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # Two launches are one operation over all tensors: it is what a fused kernel takes at least.
    assert finding.time_at_stake_ns == 4 * 90
    assert "The optimizer is not fused: 12 foreach kernels in 4 runs take 1,080 ns" in (
        finding.message.replace("1.08 µs", "1,080 ns")
    )
    assert "fused=True" in finding.action


def test_a_fused_optimizer_is_no_finding(tmp_path):
    name = (
        "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata"
        "<4>, at::native::FusedAdamMathFunctor<float>>(T1)"
    )
    assert not ask(ANALYSIS, steps_of((GEMM, 1000), (name, 100), (name, 90)), tmp_path).findings


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", 8),
        ("cutlass_75_tensorop_s1688gemm_bf16_64x64_nt_align1", 8),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_64x64_64x6_nn_align2", 8),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nn_align2", 8),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_nt_align8", None),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4", None),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align1", 4),
        ("cutlass_80_simt_sgemm_128x256_8x4_nt_align1", None),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_aligna4_alignc4", None),
        ("fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80", None),
    ],
)
def test_names_of_unaligned_gemms(name, elements):
    assert aligned_elements(f"void cutlass::Kernel2<{name}>(T1::Params)") == elements


def test_unaligned_gemms_are_a_finding(tmp_path):
    name = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1)"

    [finding] = ask(ANALYSIS, steps_of((GEMM, 700), (name, 300)), tmp_path).findings

    assert finding.severity == "info"  # nanoseconds
    assert finding.time_at_stake_ns == 1200
    assert finding.message == (
        "4 GEMMs run on slow kernels for unaligned matrices (1 kernel) for 1.20 µs: a dimension is "
        "not a multiple of 8."
    )
    assert finding.subject == Subject("kernel", name)


def late_steps(*, waits: bool) -> Export:
    """Four steps that each begin with a late launch, in every second of which the CPU may wait."""
    export = Export()
    for number in range(4):
        start = 10_000_000 * number
        for place, name in enumerate((GEMM, ADD, CAST)):
            begin = start + 1_000_000 * place + 10
            call = (start + 10 * place, start + 10 * place + 5)
            export.launch(call, (begin, start + 1_000_000 * (place + 1)), name=name)
        if waits and number % 2:
            export.sync("cudaStreamSynchronize_v3020", start + 40, start + 3_000_010)
    return export


def test_kernels_save_nothing_before_a_late_launch(tmp_path):
    [finding] = ask(ANALYSIS, late_steps(waits=False), tmp_path).findings

    # No late launch follows the last step.
    assert (finding.severity, finding.time_at_stake_ns) == ("low", 999_990)
    assert finding.evidence.values["less_ns"] == 4 * 999_990
    assert finding.message.endswith(
        "The GPU waits for the CPU between launches, so the program gains 1.00 ms at most until "
        "the CPU launches sooner."
    )


def test_kernels_save_time_where_the_cpu_waits_for_them(tmp_path):
    [finding] = ask(ANALYSIS, late_steps(waits=True), tmp_path).findings

    assert (finding.severity, finding.time_at_stake_ns) == ("medium", 2 * 999_990)


def test_thousands_of_tiny_kernels_are_told_without_a_claim(tmp_path):
    export = steps_of(*[("gelu", 2_000), ("matmul", 9_000)] * 10, steps=120)

    findings = ask(ANALYSIS, export, tmp_path).findings

    [tiny] = [each for each in findings if "tiny_kernels" in each.evidence.values]
    assert tiny.message.startswith("1,200 of 2,400 kernels take 3.00 µs or less, 2.40 ms in all")
    assert (tiny.severity, tiny.time_at_stake_ns) == ("info", 0)
    window = tiny.evidence.end_ns - tiny.evidence.start_ns
    assert 20 * 2_000 <= window < 120 * 10 * 11_000


@pytest.mark.parametrize("name", [GEMM, ADD, "triton_per_fused_add_0", "cupy_add__float32"])
def test_nobody_is_asked_to_make_the_kernel_of_a_library_faster(name, tmp_path):
    assert not ask(ANALYSIS, Export().launch((0, 1), (10, 20), name=name), tmp_path).findings


def test_each_kernel_counts_once_under_its_innermost_range(tmp_path):
    #  step_0 0─────────────────────────────100
    #    forward 5──────────40
    #      layer 10──20  layer 25──35
    export = (
        Export()
        .range("step_0", 0, 100)
        .range("forward", 5, 40)
        .range("layer", 10, 20)
        .range("layer", 25, 35)
        .launch((12, 13), (200, 210))  # layer, first instance
        .launch((26, 27), (210, 240))  # layer, second instance
        .launch((36, 37), (240, 245))  # forward alone
        .launch((50, 51), (245, 246))  # step_0 alone
        .launch((110, 111), (300, 307))  # no range
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "calls", "total_ns") == [
        ("step_0/forward/layer", 2, 40),
        ("(unattributed)", 1, 7),
        ("step_0/forward", 1, 5),
        ("step_0", 1, 1),
    ]
    assert rows(result, "ranges_inclusive", "range_path", "calls", "total_ns") == [
        ("step_0", 4, 46),
        ("step_0/forward", 3, 45),
        ("step_0/forward/layer", 2, 40),
    ]
    assert rows(result, "range_patterns", "range_pattern", "instances", "calls", "total_ns") == [
        ("step_#", 1, 4, 46),
        ("step_#/forward", 1, 3, 45),
        ("step_#/forward/layer", 2, 2, 40),
        ("(unattributed)", None, 1, 7),
    ]
    shares = [row[0] for row in rows(result, "ranges", "share_pct")]
    assert sum(shares) == pytest.approx(100.0, abs=1e-9)


def test_a_range_ends_before_the_instant_of_its_end(tmp_path):
    export = Export().range("a", 0, 10).launch((10, 12), (20, 30)).launch((9, 10), (30, 40))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("(unattributed)", 10), ("a", 10)]


def test_two_processes_with_the_same_correlation_ids(tmp_path):
    export = (
        Export()
        .range("left", 0, 10, process=1)
        .range("right", 0, 10, process=2)
        .launch((1, 2), (20, 25), process=1)
        .launch((1, 2), (20, 50), process=2)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("right", 30), ("left", 5)]


def test_a_thread_without_ranges_launches_for_the_main_thread(tmp_path):
    export = (
        Export()
        .range("backward", 0, 100)
        .launch((10, 11), (20, 30), thread=4)
        .launch((200, 201), (210, 220), thread=4)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "calls", "inferred_calls") == [
        ("(unattributed)", 1, 0),
        ("backward", 1, 1),
    ]


def test_two_worker_ranges_open_at_once_leave_it_unattributed(tmp_path):
    export = (
        Export()
        .range("one", 0, 100, thread=1)
        .range("two", 0, 100, thread=2)
        .launch((10, 11), (20, 30), thread=3)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path") == [("(unattributed)",)]


def test_a_kernel_without_a_launch_call_is_unattributed(tmp_path):
    export = Export().range("a", 0, 100).kernel_without_launch((20, 30))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("(unattributed)", 10)]


def test_nodes_of_a_graph_belong_to_its_launch(tmp_path):
    export = Export().range("replay", 0, 9).graph_launch((1, 2), [(10, 20), (20, 35)])

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "calls", "total_ns") == [("replay", 2, 25)]


def test_a_registered_name_and_a_range_that_never_ends(tmp_path):
    export = Export(registered_names=True).range("open", 0, None).launch((50, 51), (60, 70))

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "ranges", "range_path", "total_ns") == [("open", 10)]


def test_warm_up_steps_can_be_left_out(tmp_path):
    export = Export()
    for step in range(3):
        start = 100 * step
        export.range(f"step_{step}", start, start + 50)
        export.launch((start + 1, start + 2), (start + 10, start + 20 + 10 * step))

    everything = ask(ANALYSIS, export, tmp_path)
    warm = ask(ANALYSIS, export, tmp_path, exclude=("step_0",))
    last = ask(ANALYSIS, export, tmp_path, include=("step_[12]",), exclude=("step_1",))

    totals = [rows(each, "kernels", "total_ns") for each in (everything, warm, last)]
    assert totals == [[(60,)], [(50,)], [(30,)]]


def test_kernels_of_one_base_name_are_told_apart(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), name="void at::elementwise<4, at::GeluCUDAKernelImpl(int)>")
        .launch((1, 2), (20, 25), name="void at::elementwise<4, at::FillFunctor<float>>")
        .launch((2, 3), (25, 27), name="gemm<float>")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert [row[0].partition(" ")[2] for row in rows(result, "kernels", "label")] == [
        "at::elementwise GeluCUDAKernelImpl",
        "at::elementwise FillFunctor",
        "",
    ]


def test_a_note_says_what_whole_graphs_hide(tmp_path):
    export = (
        Export()
        .range("replay", 0, 9)
        .graph_whole((1, 2), (10, 40))
        .graph_whole((3, 4), (50, 80), graph_id=2)
        .launch((5, 6), (90, 100))
    )

    result = ask(ANALYSIS, export, tmp_path)
    nodes = ask(ANALYSIS, Export().graph_launch((1, 2), [(10, 40)]), tmp_path)

    assert rows(result, "kernels", "calls", "share_pct") == [(1, 100.0)]
    [note] = result.notes
    assert note.startswith("2 CUDA graph launches (60 ns of GPU time) were recorded whole")
    assert "traceview record --graph-trace node" in note
    assert not nodes.notes


def test_the_summary_says_what_is_attributed_and_what_of_it_is_inferred(tmp_path):
    export = (
        Export()
        .range("backward", 0, 100)
        .launch((10, 11), (20, 30), thread=4)
        .launch((12, 13), (30, 50))
        .launch((200, 201), (210, 250))
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert result.summary == {
        "kernel_calls": 3,
        "kernel_total_ns": 70,
        "attributed_ns": 30,
        "inferred_ns": 10,
    }


def test_the_tile_of_a_gemm_is_read_off_its_name(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), name="nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_NNN")
        .launch((1, 2), (20, 25), name="gelu<128x64>")
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "kernels", "tile") == [("192x192 64x3 bf16",), (None,)]


SGEMM = "Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1)"
MS = 1_000_000
# Of the H200, in FLOP a second.
FP32, TF32 = 66.9e12, 494.7e12


def off_tensor_cores(found: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in found if "gemm_ns" in finding.evidence.values]


def multiplying(gpu: dict[str, object] | None = None, name: str = SGEMM, more: int = 0) -> Export:
    """A warm-up of 3 ms, 4 ms of products, and so much of another kernel."""
    export = Export()
    if gpu is not None:
        export.gpu(0, **gpu)
    export.range("warm_up", 0, 100).launch((10, 20), (50, 50 + 3 * MS), name=name)
    export.launch((200, 210), (5 * MS, 9 * MS), name=name)
    return export.launch((220, 230), (9 * MS, 9 * MS + more), name="add") if more else export


def test_fp32_gemms_off_the_tensor_cores_are_found(tmp_path):
    """Of the 4 ms after warm-up a seventh is left, were the CUDA cores at their peak until now."""
    [finding] = off_tensor_cores(ask(ANALYSIS, multiplying(more=MS), tmp_path).findings)

    assert finding.severity == "high"
    assert finding.time_at_stake_ns == pytest.approx(4 * MS * (1 - FP32 / TF32), abs=1)
    assert finding.message == (
        "fp32 GEMMs take 4.00 ms (80.0 % of kernel time after warm-up) and do not use the tensor "
        "cores; TF32 is up to 7.4× faster."
    )
    assert finding.action.startswith("Use TF32 where a 10-bit mantissa is accurate enough")
    assert finding.subject == Subject("kernel", SGEMM)
    assert finding.evidence.values["peak_flop_per_s"] == TF32
    assert finding.evidence.values["fp32_peak_flop_per_s"] == FP32


def test_what_tf32_can_save_follows_from_known_flop(tmp_path):
    """A GEMM at a tenth of the CUDA cores' peak can save more than one at their peak."""
    flop = round(0.1 * FP32 * 4e-3)
    export = multiplying().range(declaration("mm", flop=flop, kind="fp32"), 195, 215)

    [finding] = off_tensor_cores(ask(ANALYSIS, export, tmp_path).findings)

    assert finding.time_at_stake_ns == pytest.approx(4 * MS * (1 - 0.1 * FP32 / TF32), abs=1)


@pytest.mark.parametrize(
    ("gpu", "kind", "share"),
    [
        # A slice of an H200, or a product that no data sheet here is of: no rates.
        ({"smCount": 60}, None, 0),
        (
            {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "smCount": 108},
            "TF32",
            1 - 19.5 / 156,
        ),
        # GeForce does TF32 as fast as fp32: bf16 alone is faster.
        (
            {"name": "NVIDIA GeForce RTX 3090", "computeMajor": 8, "smCount": 82},
            "bf16",
            1 - 35.6 / 71,
        ),
    ],
)
def test_what_is_saved_follows_from_the_rates_of_the_gpu(tmp_path, gpu, kind, share):
    [finding] = off_tensor_cores(ask(ANALYSIS, multiplying(gpu), tmp_path).findings)

    assert finding.time_at_stake_ns == pytest.approx(4 * MS * share, abs=1)
    assert finding.severity == ("high" if kind else "info")
    assert (f"; {kind} is up to" in finding.message) == bool(kind)
    assert finding.action.startswith("Use bf16 inputs" if kind == "bf16" else "Use TF32")


def test_the_estimate_takes_launches_and_peak_rates_alone():
    """Two launches of one kernel at half the fp32 peak, one of another whose FLOP are unknown."""
    rates = {"capability": 8.0, "fp32": 10e12, "tf32": 80e12}
    peaks = {name: Peak(value, "given") for name, value in rates.items()}
    names = Texts.of(["a", "b", "a"])
    launches = GemmLaunches(names, names, np.array([100, 300, 100]), np.array([5e5, np.nan, 5e5]))

    found = estimate(0, launches, peaks)

    assert found is not None
    assert found.names == ("b", "a")
    assert (found.time_ns, found.kind) == (500, "tf32")
    # 1e6 FLOP are known, and 300 ns at the peak are 3e6 at most: 50 ns at 80 TFLOP/s.
    assert found.saved_ns == 450
    assert estimate(0, launches, {**peaks, "capability": Peak(7.5, "given")}) is None
    assert estimate(0, launches, {**peaks, "tf32": Peak(9e12, "given")}) is None


@pytest.mark.parametrize(
    ("gpu", "name", "more"),
    [
        ({"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "smCount": 80}, SGEMM, 0),
        (None, "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", 0),
        (None, "my_gemm", 0),
        # Under a tenth of the time.
        (None, SGEMM, 40 * MS),
    ],
)
def test_where_tensor_cores_would_not_help_there_is_no_finding(tmp_path, gpu, name, more):
    result = ask(ANALYSIS, multiplying(gpu, name, more), tmp_path)

    assert not off_tensor_cores(result.findings)


def test_fp32_gemms_of_warm_up_alone_are_no_finding(tmp_path):
    export = Export().range("warm_up", 0, 100).launch((10, 20), (50, 3 * MS), name=SGEMM)
    export.launch((200, 210), (5 * MS, 9 * MS), name="add")

    assert not off_tensor_cores(ask(ANALYSIS, export, tmp_path).findings)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        *((name, "96.4 %") for name in ("mlp_sync", "mlp_nosync", "mlp_print_loss")),
        ("cupy", "94.1 %"),
        ("queue_full", "88.8 %"),
        # fp32 as well, but tiny: waves, element-wise; or bf16 on tensor cores.
        *((name, None) for name in ("waves", "cuda_graphs", "graph_nodes", "shapes", "launches")),
    ],
)
def test_recordings_that_multiply_in_fp32(unpack, name, share):
    found = off_tensor_cores(ANALYSIS.run(load(unpack(name))).findings)

    shares = [units.percent(float(finding.evidence.values["gemm_pct"])) for finding in found]
    assert shares == [share] * len(found)
    assert bool(found) == bool(share)


@pytest.mark.parametrize("name", ["queue_full", "threads", "sync_sites", "two_gpus", "training"])
def test_a_wrapper_alone_in_its_trace_is_named_by_what_it_does(unpack, name):
    result = ANALYSIS.run(load(unpack(name)))

    wrapped = [
        row[1] for row in rows(result, "kernels", "short_name", "label") if row[0] == "Kernel2"
    ]
    assert wrapped
    assert all(label.startswith("CUTLASS fp32 GEMM ") for label in wrapped)
    assert not any("Kernel2 takes" in finding.message for finding in result.findings)
