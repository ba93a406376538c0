"""What the recording alone shows against a program's own kernel, on GPUs of several kinds."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from tests.inspect.rules.written_ptx import need
from tests.ptx.compiled_kernels import ptx_kernel
from traceview.kernels.toolchain.listings import assemble
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS

GPUS = {
    "GeForce RTX 2080": {"name": "NVIDIA GeForce RTX 2080", "computeMajor": 7, "computeMinor": 5},
    "GeForce RTX 3080": {"name": "NVIDIA GeForce RTX 3080", "computeMajor": 8, "computeMinor": 6},
    "A100": {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0},
    "H200": {},
}
SLOW_AT_FP64 = {"GeForce RTX 2080": 32, "GeForce RTX 3080": 64}


def only_finding(tmp_path, name, gpu, **columns):
    """The finding on a kernel launched forty times, in blocks enough for any GPU."""
    export = Export().gpu(0, **GPUS[gpu])
    for number in range(40):
        at = number * 2_000_000
        launch = (at, at + 5_000), (at + 10_000, at + 1_900_000)
        export.launch(*launch, name=name, **({"gridX": 4096, "blockX": 256} | columns))
    findings = ask(ANALYSIS, export, tmp_path).findings
    (found,) = (each for each in findings if " of kernel time" in each.message)
    return found


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize(
    ("threads", "registers", "blocks"), [(192, 188, 1), (256, 168, 1), (128, 255, 2)]
)
def test_registers_that_leave_an_sm_few_warps(tmp_path, gpu, threads, registers, blocks):
    columns = {"blockX": threads, "registersPerThread": registers}
    found = only_finding(tmp_path, "fit_lines(float*)", gpu, **columns)
    expected = f"{registers} registers per thread leave an SM {blocks} block"
    few = blocks * threads / 32 <= 0.25 * (32 if gpu == "GeForce RTX 2080" else 48)
    assert (expected in found.message) is few
    assert ("__launch_bounds__" in found.action) is few


@pytest.mark.parametrize("gpu", GPUS)
def test_few_blocks_need_no_more_registers(tmp_path, gpu):
    columns = {"blockX": 192, "registersPerThread": 188, "gridX": 8}
    assert "registers" not in only_finding(tmp_path, "fit_lines(float*)", gpu, **columns).message


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize(
    ("names", "in_fp64"),
    [
        (["three_body(double*, int)"], 1),
        (["step(Array<float64, 2>)"], 1),
        (["a(double const*)", "b<double>(int)", "volta_dgemm_64x64_nn", "void k<float>(int)"], 3),
        (["gpu_broadcast_kernel(CuDeviceArray<Float64, 2>)", "other(float*)"], 1),
        (["scale(float*, double)", "k(float*)"], 0),
    ],
)
def test_fp64_where_the_gpu_has_few_lanes_for_it(tmp_path, gpu, names, in_fp64):
    """Many kernels of a small share each are as much: together they come first."""
    export = Export().gpu(0, **GPUS[gpu])
    for number in range(40):
        at, call = 500_000 + number * 1_890_000, 10_000 * number
        launch = (call, call + 5_000), (at, at + 1_890_000)
        export.launch(*launch, name=names[number % len(names)], gridX=4096, blockX=256)
    findings = ask(ANALYSIS, export, tmp_path).findings
    said = [each for each in findings if " of its fp32 rate" in each.message]
    factor = SLOW_AT_FP64.get(gpu)
    assert len(said) == bool(factor and in_fp64)
    for each in said:
        share = in_fp64 / len(names)
        assert f"fp64 at 1/{factor} of its fp32 rate" in each.message
        assert each.action.startswith("Use fp32")
        assert (each.severity, each.saving) == ("high", "at-most")
        assert each.time_at_stake_ns == pytest.approx(
            40 * 1_890_000 * share * (1 - 1 / factor), rel=0.01
        )
        assert [each] == [one for one in findings if one.severity != "info"]


@pytest.mark.parametrize("shared", [0, 8192])
@pytest.mark.parametrize(
    "name",
    [
        *("matmul(float*)", "matMulKernel(float*)", "naive_gemm(int)", "matrixMulKernel(float *)"),
        *("MatrixMultiply(int)", "matrix_mul<float>(float*)", "matMatProduct(float*)"),
    ],
)
def test_a_matrix_product_without_shared_memory(tmp_path, name, shared):
    found = only_finding(tmp_path, name, "H200", staticSharedMemory=shared)
    assert ("without shared memory" in found.message) is (shared == 0)
    assert found.action.startswith("Use a library's" if shared == 0 else "Compare with a library's")
    assert found.severity == ("medium" if shared == 0 else "info")
    assert found.time_at_stake_ns <= found.evidence.values["kernel_ns"]


@pytest.mark.parametrize(
    "name", ["MatrixVectorProduct(double *)", "matVecMul(float*)", "MatrixVectorMultiply(int)"]
)
def test_a_product_with_a_vector_reads_its_matrix_once(tmp_path, name):
    assert "shared memory" not in only_finding(tmp_path, name, "H200").message


@pytest.mark.parametrize("shared", [0, 4224])
@pytest.mark.parametrize("name", ["transposeNaive(float*)", "matrix_transpose<float>(float*)"])
def test_a_transposition_without_shared_memory(tmp_path, name, shared):
    found = only_finding(tmp_path, name, "A100", staticSharedMemory=shared)
    assert ("with a stride" in found.message) is (shared == 0)
    assert found.action.startswith("Use a tile in shared") is (shared == 0)


@pytest.mark.parametrize("name", ["advance(float*)", "collide(Cell*, int)"])
def test_of_other_kernels_counters_tell(tmp_path, name):
    found = only_finding(tmp_path, name, "A100")
    assert f"-k regex:{name.partition('(')[0]}" in found.action


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("matmul_wmma_kernel(half*)", "matrix product (cuBLAS)"),
        ("conv1d_kernel(float*)", "convolution (cuDNN)"),
        ("conv2d_tiled<8>(float*)", "convolution (cuDNN)"),
        ("compact_scan(int*)", "CUB, whose scan"),
        ("prefixSum(int*)", "CUB, whose scan"),
        ("bitonicSortStep(int*)", "CUB, whose sort"),
        ("calcHistogramKernel(int*)", "CUB, whose histogram"),
        ("reduce_shared<int>(int*)", "CUB, whose reduction"),
        ("max_pool_forward(float*)", ""),
        ("advance(float*)", ""),
    ],
)
def test_a_library_that_does_the_same_is_the_measure(tmp_path, name, measure):
    found = only_finding(tmp_path, name, "A100", staticSharedMemory=4096)
    assert found.action.startswith("Compare with" if measure else "Record its counters")
    assert measure in found.action
    assert found.severity == "info"


@pytest.mark.parametrize(("m", "n", "k"), [(1024, 1024, 1024), (2048, 512, 4096), (96, 4096, 64)])
@pytest.mark.parametrize(("kind", "size"), [("float", 4), ("double", 8)])
@pytest.mark.parametrize("each", [1, 4, 1024])  # elements of C per thread
@pytest.mark.parametrize("percent", [2, 20, 60])
def test_the_rate_of_a_matrix_product_follows_from_its_copies(
    tmp_path, m, n, k, kind, size, each, percent
):
    """A and B are copied to the GPU and C back: whatever the shapes, 2 m n k is known."""
    peak = {"float": 66.9e12, "double": 33.5e12}[kind]
    took = max(int(2 * m * n * k / (peak * percent / 100) * 1e9), 1)
    export, ends = Export().gpu(0), 1_000_000 + took
    for place, elements in enumerate((m * k, k * n)):
        at = 1000 * place
        export.copy((at, at + 10), (at + 10, at + 900), bytes=elements * size)
    name = f"matmul({kind} const*, {kind} const*, {kind}*, int)"
    columns = {"gridX": m * n // each // 32, "blockX": 32, "staticSharedMemory": 4096}
    export.launch((3000, 3010), (1_000_000, ends), name=name, **columns)
    back = {"kind": "D2H", "source": "device", "destination": "pageable", "bytes": m * n * size}
    export.copy((3020, ends + 900), (ends + 10, ends + 800), **back)
    findings = ask(ANALYSIS, export, tmp_path).findings
    found = [each for each in findings if "It multiplies matrices at" in each.message]

    assert len(found) == (percent < 35)
    for finding in found:
        assert finding.evidence.values["peak_pct"] == pytest.approx(percent, rel=0.02)
        assert "cuBLAS" in finding.action


@pytest.mark.parametrize("uploads", [1, 3])
@pytest.mark.parametrize(
    ("grid", "name"), [(4096, "matmul(float*)"), (4000, "matmul(float*)"), (4096, "matmul(int)")]
)
def test_a_rate_is_not_guessed(tmp_path, uploads, grid, name):
    """Other uploads than those of A and B, a grid that does not fit C, elements of unknown type."""
    export = Export().gpu(0)
    for place in range(2 if grid == 4000 or "int" in name else uploads):
        at = 1000 * place
        export.copy((at, at + 10), (at + 10, at + 900), bytes=1 << 22)
    columns = {"gridX": grid, "blockX": 256, "staticSharedMemory": 4096}
    export.launch((4000, 4010), (1_000_000, 30_000_000), name=name, **columns)
    back = {"kind": "D2H", "source": "device", "destination": "pageable", "bytes": 1 << 22}
    export.copy((4020, 31_000_000), (30_100_000, 30_900_000), **back)
    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert not any("It multiplies matrices at" in message for message in messages)


@pytest.mark.parametrize("registers", [32, 64, 65, 117])
@pytest.mark.parametrize("name", ["bucket_reduce(int*)", "block_sum(float*)", "compact_scan(int*)"])
def test_cub_moves_memory_and_computes_nothing(tmp_path, name, registers):
    found = only_finding(tmp_path, name, "A100", registersPerThread=registers)
    assert ("CUB" in found.action) is (registers <= 64)


@pytest.mark.parametrize("name", ["conv2d_direct(float*)", "ConvTranspose2dBias(float*)"])
@pytest.mark.parametrize("registers", [32, 188])
def test_what_a_library_does_comes_before_what_to_change(tmp_path, name, registers):
    found = only_finding(tmp_path, name, "A100", blockX=192, registersPerThread=registers)
    assert found.action.startswith("Compare with a library's convolution (cuDNN). ")
    assert ("__launch_bounds__" in found.action) is (registers == 188)


@pytest.mark.parametrize("times", [1.5, 2.5, 8.0])
@pytest.mark.parametrize("grid", [4096, 2048])
@pytest.mark.parametrize(
    ("name", "other"),
    [
        *(("transposeNaive(float*)", "transposeNoBankConflicts(float*)"),),
        *(("transpose_naive(int*)", "copy(int*)"), ("transpose_naive(int*)", "scale(int*)")),
        *(("reduce0(int*)", "reduce6(int*)"), ("sumStrided(int*)", "sum_coalesced<256>(int*)")),
        *(("update_velocity(float*)", "update_position(float*)"), ("kernel1(int)", "kernel2(int)")),
    ],
)
def test_a_variant_of_the_same_grid_that_is_far_faster(tmp_path, times, grid, name, other):
    """The slower one is told with the faster; kernels of other work or another grid are none."""
    export, at = Export().gpu(0), 0
    for _ in range(20):
        for each, took, blocks in ((name, 1_000_000, 4096), (other, int(1e6 / times), grid)):
            launch = (at, at + 5_000), (at + 6_000, at + 6_000 + took)
            export.launch(*launch, name=each, gridX=blocks, blockX=256)
            at += took + 8_000
    findings = ask(ANALYSIS, export, tmp_path).findings
    (found,) = (each for each in findings if " of kernel time" in each.message)
    are_variants = not other.startswith(("update", "kernel", "scale"))
    told = are_variants and times > 2 and grid == 4096
    assert ("(median), and" in found.message) is told
    like = "little longer than a copy" if other.startswith("copy") else "If both compute the same"
    assert (like in found.action) is told
    if told:
        assert found.evidence.values["each_ns"] == 1_000_000
        assert found.evidence.values["variant_ns"] == int(1e6 / times)


@pytest.mark.parametrize("took_us", [2, 4, 6, 40])
@pytest.mark.parametrize(("calls", "between"), [(300, 0), (300, 3), (300, 50), (60, 0)])
@pytest.mark.parametrize("stream", [7, 8])
def test_short_calls_in_a_row_are_told_to_be_one(tmp_path, took_us, calls, between, stream):
    """Every `between` calls a copy comes in between, also on another stream."""
    export, at = Export(), 0
    for number in range(calls):
        call = (at, at + 1_000)
        export.launch(call, (at + 2_000, at + 2_000 + took_us * 1_000), name="relax(float*)")
        at += 2_100 + took_us * 1_000
        if between and number % between == 0:
            export.copy((at, at + 1_000), (at + 1_500, at + 2_500), kind="D2H", stream=stream)
            at += 3_000
    findings = ask(ANALYSIS, export, tmp_path).findings
    told = [each for each in findings if "with the loop in the kernel" in each.action]

    assert len(told) == (took_us < 5 and calls == 300 and between != 3)
    assert all(f"take {took_us}.00 µs each" in each.message for each in told)


@pytest.mark.parametrize("gpu", ["GeForce RTX 2080", "H200"])
@pytest.mark.parametrize(("base_us", "per_block_us"), [(60, 0.0), (60, 0.05), (5, 2.0)])
@pytest.mark.parametrize("grids", [(1, 3, 40, 108), (100, 108)])
def test_calls_that_take_as_long_in_any_grid(tmp_path, gpu, base_us, per_block_us, grids):
    """Then a block takes the time, whatever the GPU's rate of fp64."""
    export, at = Export().gpu(0, **GPUS[gpu]), 0
    for number in range(240):
        blocks = grids[number % len(grids)]
        took = round((base_us + per_block_us * blocks) * 1_000)
        launch = (at, at + 3_000), (at + 5_000, at + 5_000 + took)
        export.launch(*launch, name="level(double*, int*)", gridX=blocks, blockX=32)
        at += 8_000 + took
    findings = ask(ANALYSIS, export, tmp_path).findings
    text = " ".join(f"{each.message} {each.action}" for each in findings)
    alike = per_block_us < 2 and len(grids) == 4
    assert ("of 1 block as of 108 blocks" in text) is alike
    assert ("Shorten what a block does" in text) is alike
    assert ("Use fp32" in text) is (not alike and gpu in SLOW_AT_FP64)


WORKING = """
    mul.wide.s32 %rd5, %r1, {apart}; add.s64 %rd5, %rd1, %rd5;
    mov.u32 %r4, 0; mov.f32 %f2, 0f00000000;
$L__loop:
    .loc 1 40 0
    ld.global.f32 %f1, [%rd5];
    {work}
    add.s64 %rd5, %rd5, {next};
    add.s32 %r4, %r4, 1;
    setp.lt.s32 %p1, %r4, %r2;
    @%p1 bra $L__loop;
    st.global.f32 [%rd4], %f2;
"""
FP64 = "cvt.f64.f32 %fd1, %f1; " + "fma.rn.f64 %fd1, %fd1, %fd1, %fd1; " * 60
WORK = {
    "fp64 operations": FP64 + "cvt.rn.f32.f64 %f1, %fd1; add.f32 %f2, %f2, %f1;",
    "": "add.f32 %f2, %f2, %f1;",
}


@pytest.mark.parametrize("name", ["k", "gather_rows", "_Z6gatherPfS_i"])
@pytest.mark.parametrize("said", WORK)
def test_what_the_code_shows_is_said_of_the_kernel(tmp_path, name, said):
    """A finding of `traceview ptx` that the launches do not show is that of the report."""
    need("ptxas")
    ptx = ptx_kernel(WORKING.format(apart=4, next=4_096, work=WORK[said]))
    ptx = ptx.replace(".reg .pred", ".reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .pred")
    ptx = ptx.replace(" k(", f" {name}(")
    found = {}
    for code in (None, assemble(ptx).cubin):
        export = Export()
        for number in range(40):
            at = number * 2_000_000
            launch = (at, at + 5_000), (at + 10_000, at + 1_900_000)
            names = {"name": name, "mangledName": export.string(name)}
            export.launch(*launch, **names, gridX=4096, blockX=256, registersPerThread=16)
        if code:
            export.code(name, ptx, code)
        findings = ask(ANALYSIS, export, tmp_path).findings
        (found[bool(code)],) = (each for each in findings if " of kernel time" in each.message)
    assert ("fp64" in found[True].message) is bool(said), found[True].message
    assert found[True].severity == ("medium" if said else "info")
    assert found[False].severity == "info"
    for each, counts in ((found[True], not said), (found[False], True)):
        assert each.action.startswith("Record its counters") is counts


def test_code_that_cannot_be_read_changes_nothing(tmp_path):
    export = Export()
    for number in range(40):
        at = number * 2_000_000
        export.launch((at, at + 5_000), (at + 10_000, at + 1_900_000), gridX=4096, blockX=256)
    export.code("k", "no PTX at all")
    findings = ask(ANALYSIS, export, tmp_path).findings
    assert any(each.action.startswith("Record its counters") for each in findings)
