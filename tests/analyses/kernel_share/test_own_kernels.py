"""What the recording alone shows against a program's own kernel, on GPUs of several kinds."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
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
@pytest.mark.parametrize("name", ["three_body(double*, int)", "step(Array<float64, 2>)"])
def test_fp64_where_the_gpu_has_few_lanes_for_it(tmp_path, gpu, name):
    found = only_finding(tmp_path, name, gpu)
    factor = SLOW_AT_FP64.get(gpu)
    assert (f"fp64 at 1/{factor} of its fp32 rate" in found.message) is bool(factor)
    assert ("Use fp32" in found.action) is bool(factor)


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
