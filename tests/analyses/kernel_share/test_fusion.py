"""Kernels that could be fewer or faster: chains, optimizers, unaligned GEMMs, tiny kernels."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.base.findings import Subject
from traceview.base.vocabulary.libraries import aligned_elements
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS


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
WINOGRAD = "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)"
GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


def test_a_chain_of_eager_kernels_takes_as_long_fused_as_its_longest(tmp_path):
    export = steps_of((GEMM, 1000), (CAST, 50), (ADD, 100), (NORM, 70), (GEMM, 1000), (ADD, 90))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # The last add of a step stands alone: no chain.
    assert finding.time_at_stake_ns == 4 * (50 + 70)
    assert finding.message.startswith(
        "12 elementwise, cast, norm and reduction kernels in 4 chains take 880 ns. Fused, a "
        "chain takes about as long as its longest kernel: 480 ns less."
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


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("kind", ["D2H", "H2D", "D2D"])
def test_a_chain_ends_where_the_cpu_reads_a_value(every, kind, tmp_path):
    """A loop reads a value that each pass computes: no compiler fuses what comes after a read."""
    export, at = Export(), 0
    for _ in range(20):
        for name in [ADD, CAST, NORM, ADD, CAST][:every]:
            export.kernel_without_launch((at, at + 90), name=name)
            at += 100
        export.copy(None, (at, at + 10), bytes=4, kind=kind)
        at += 100

    findings = [
        each for each in ask(ANALYSIS, export, tmp_path).findings if "chain" in each.message
    ]

    runs = 20 if kind == "D2H" else 1
    assert [each.evidence.values["runs"] for each in findings] == ([runs] if every > 1 else [])


@pytest.mark.parametrize("complex_too", [False, True])
def test_an_optimizer_of_foreach_kernels(complex_too, tmp_path):
    metadata = "at::native::TensorListMetadata<2>"
    lerp, sqrt = (
        f"void at::native::multi_tensor_apply_kernel<{metadata}, {each}>(T1)"
        for each in ("TernaryOpScalarFunctor", "UnaryOpFunctor")
    )
    gemm = "void gemm<c10::complex<float>>(T1)" if complex_too else GEMM
    export = steps_of((gemm, 1000), (lerp, 100), (lerp, 80), (sqrt, 90))

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # Two launches are one operation over all tensors: it is what a fused kernel takes at least.
    assert finding.time_at_stake_ns == 4 * 90
    assert "The optimizer is not fused: 12 foreach kernels in 4 runs take 1,080 ns" in (
        finding.message.replace("1.08 µs", "1,080 ns")
    )
    assert "fused=True" in finding.action
    assert ("does not take complex parameters" in finding.action) == complex_too


@pytest.mark.parametrize("pause", [1_000, 300_000, 3_000_000])
def test_what_the_cpu_does_between_foreach_kernels_goes_with_them(pause, tmp_path):
    """However long: with hundreds of tensors Python computes longer than a launch usually waits."""
    one = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, {}>(T1)"
    names = [GEMM] * 20 + [one.format(each) for each in ("Lerp", "Sqrt")]
    export, at = Export(), 0
    for number in range(6):
        begin = at
        for name in names:
            at += pause if "Sqrt" in name else 1_000
            export.launch((at, at + 500), (at + 600, at + 1_000), name=name)
            at += 1_000
        export.range(f"step_{number}", begin, at)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    # Either launch goes, with the time between; the kernel that stays takes 400 ns.
    assert finding.time_at_stake_ns / 5 == pytest.approx(pause + 500, abs=1_600)


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
        ("cutlass_80_tensorop_d884gemm_32x64_16x4_nt_align1", None),
        ("cutlass_80_tensorop_z884gemm_32x32_8x4_nt_align1", None),
        ("cutlass_80_tensorop_c1688gemm_64x64_16x4_nt_align1", None),
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
    assert finding.time_at_stake_ns == 4 * 250  # six times as fast
    assert finding.message == (
        "4 GEMMs take 1.20 µs on slow kernels for unaligned matrices (1 kernel): a dimension is "
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
    """No late launch follows the last step: there the kernel and what surrounds it are saved."""
    [finding] = ask(ANALYSIS, late_steps(waits=False), tmp_path).findings

    assert finding.severity == "low"
    assert finding.time_at_stake_ns == pytest.approx(999_990, abs=100)
    assert finding.evidence.values["less_ns"] == 4 * 999_990
    assert finding.message.endswith(
        "For now the program would gain little of that: the GPU would wait longer for the CPU, "
        "or for other work."
    )


def test_kernels_save_time_where_the_cpu_waits_for_them(tmp_path):
    [finding] = ask(ANALYSIS, late_steps(waits=True), tmp_path).findings

    assert finding.severity == "medium"
    assert finding.time_at_stake_ns == pytest.approx(2 * 999_990, abs=100)


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


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((7, 7, 7, 8), " Most are launched at train.py:7 in step."),
        (
            (7, 7, 8, 9, 10),
            " More are launched at train.py:7 in step than at any other line (43.8 %)",
        ),
        # Samples are too few.
        ((7, 8, 9, 6), ""),
        ((7, None, None, None), ""),
    ],
)
def test_the_line_that_launches_most_of_the_kernels_is_told(tmp_path, lines, told):
    """Before each launch the CPU works for 40 µs; without a line, no sample shows where."""
    export, now = Export(), 0
    for step in range(40):
        for name in (GEMM, ADD, ADD):
            now += 40_000
            line = lines[step % len(lines)] if name == ADD else 30
            if line is not None and step < 16:
                export.python_sample(now - 10_000, ("train.py", line, "step"))
            export.launch((now, now + 5_000), (now + 6_000, now + 60_000), name=name)

    chains = [each for each in ask(ANALYSIS, export, tmp_path).findings if "chain" in each.message]

    assert len(chains) == 1
    assert ("launched" in chains[0].message) == bool(told)
    assert told in chains[0].message


@pytest.mark.parametrize(
    ("took_ns", "told"),
    [
        (800_000, "By samples, about 63.4 % of that time is launched at train.py:8 in step."),
        (300_000, "By samples, about 40.7 % of that time is launched at train.py:8 in step."),
        # Line 7 takes more.
        (100_000, "Most are launched in the backward pass of train.py:7 in step."),
        # The CPU limits the program: launches count.
        (2_000, "Most are launched in the backward pass of train.py:7 in step."),
    ],
)
def test_a_long_kernel_in_few_samples_is_told_by_its_time(tmp_path, took_ns, told):
    """Of each step line 7 launches six kernels, line 8 two, and the backward pass ten."""
    backward = (
        ("/site-packages/torch/autograd/graph.py", 865, "_engine_run_backward"),
        ("train.py", 9, "step"),
    )
    each_ns = 30_000 if took_ns > 2_000 else 200
    gemm = ("gemm", GEMM, each_ns)
    forward = [*[("line 7", ADD, each_ns)] * 6, gemm, *[("line 8", NORM, each_ns)] * 2]
    passes = [*forward, gemm, *[("backward", CAST, each_ns)] * 10, gemm]
    passes[8] = ("line 8", NORM, took_ns)
    export, now, free = Export(), 0, 0
    for step in range(60):
        for place, (at, name, ns) in enumerate(passes):
            now += 20_000
            # One launch of a step is sampled.
            if step % len(passes) == place:
                line = {"line 7": 7, "line 8": 8, "gemm": 6}.get(at)
                stack = backward if line is None else (("train.py", line, "step"),)
                export.python_sample(now - 10_000, *stack)
            begin = max(free, now + 6_000)
            free = begin + ns
            export.launch((now, now + 5_000), (begin, free), name=name)

    [chain] = [each for each in ask(ANALYSIS, export, tmp_path).findings if "chain" in each.message]

    assert told in chain.message
    # The page shows that line's code.
    line = 8 if took_ns > 200_000 else 7
    assert (chain.subject.file, chain.subject.line) == ("train.py", line)


@pytest.mark.parametrize("called", [True, False])
def test_kernels_of_a_backward_pass_are_told_with_the_line_of_the_forward_pass(tmp_path, called):
    autograd = ("/site-packages/torch/autograd/graph.py", 865, "_engine_run_backward")
    backward = (autograd, ("train.py", 9, "step"))
    export, now = Export(), 0
    for step in range(40):
        for name in (GEMM, ADD, ADD, ADD):
            now += 40_000
            forward = step % 3 == 0
            line = 7 if called else (6, 7, 8)[step // 3 % 3]
            stack = (("train.py", line, "step"),) if forward else backward
            export.python_sample(now - 10_000, *stack)
            export.launch((now, now + 5_000), (now + 6_000, now + 60_000), name=name)

    [chain] = [each for each in ask(ANALYSIS, export, tmp_path).findings if "chain" in each.message]

    said = "in the backward pass of train.py:7 in step." if called else "at train.py:9 in step."
    assert f" Most are launched {said}" in chain.message


@pytest.mark.parametrize("launches", [19, 20, 1_000])
@pytest.mark.parametrize("name", [ADD, CAST])
def test_one_kernel_again_and_again_is_a_loop_and_no_chain(launches, name, tmp_path):
    findings = ask(ANALYSIS, steps_of(*[(name, 50)] * launches, steps=1), tmp_path).findings

    assert any("chain" in each.message for each in findings) is (launches < 20)


@pytest.mark.parametrize("batch", ["bn_fw_tr_1C11_kernel_NCHW", "batch_norm_collect_statistics"])
@pytest.mark.parametrize("backward", [None, "cudnn::bn_bw_1C11_kernel_new", "wgrad_alg0_engine"])
def test_batch_norm_in_training_mode_without_a_backward_pass(batch, backward, tmp_path):
    norm = f"void {batch}<float>(float)"
    later = [(f"void {backward}<float>(int)", 90)] if backward else []

    findings = ask(ANALYSIS, steps_of((WINOGRAD, 1000), (norm, 300), *later), tmp_path).findings

    found = [each for each in findings if "training mode" in each.message]
    assert bool(found) is (backward is None)
    assert all("model.eval()" in each.action for each in found)


@pytest.mark.parametrize("every", [1, 2, 10, 100])
@pytest.mark.parametrize("name", ["main_58_gpu__red", "jacobi_12_gpu__red", "main_58_gpu"])
def test_reductions_of_which_few_are_read(every, name, tmp_path):
    export, at = Export(), 0
    for number in range(200):
        for kernel, took in (("main_9_gpu", 4_000), (name, 3_000)):
            export.launch((at, at + 900), (at + 1_000, at + 1_000 + took), name=kernel)
            at += took + 1_500
        if number % every == 0:
            export.copy((at, at + 900), (at + 1_000, at + 2_000), kind="D2H", bytes=8)
            at += 2_500

    findings = ask(ANALYSIS, export, tmp_path).findings

    found = [each for each in findings if "reductions of directives" in each.message]
    assert bool(found) is (name.endswith("__red") and every > 1)
    assert all("without the reduction clause" in each.action for each in found)
