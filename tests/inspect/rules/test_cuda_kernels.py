"""Kernels in CUDA C++: loops that shared memory limits, and elements that a thread moves apart."""

import pytest

import traceview
from tests.inspect.rules.written_ptx import need, need_compiler

PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float left[32][32], right[32][32];
  const int T = EACH;
  int row = T * threadIdx.y, column = threadIdx.x, step = 32 / T;
  float sum[T][T] = {};
  for (int tile = 0; tile < n; tile += 32) {
    for (int i = 0; i < T; i++)
      for (int j = 0; j < T; j++) {
        left[row + i][column + j * step] = a[(row + i) * n + tile + column + j * step];
        right[row + i][column + j * step] = b[(tile + row + i) * n + column + j * step];
      }
    __syncthreads();
    for (int k = 0; k < 32; k++)
      for (int i = 0; i < T; i++)
        for (int j = 0; j < T; j++) sum[i][j] += left[row + i][k] * right[k][column + j * step];
    __syncthreads();
  }
  for (int i = 0; i < T; i++)
    for (int j = 0; j < T; j++) c[(row + i) * n + column + j * step] = sum[i][j];
}
"""
RUNS = """
__global__ void scale(const float* __restrict__ w, const float* __restrict__ b, float4* y, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  float out[4] = {};
  #pragma unroll
  for (int i = 0; i < MOVED; i++) out[i] = w[(4 * at + i) % n]OTHER;
  y[at] = make_float4(out[0], out[1], out[2], out[3]);
}
"""


def findings(tmp_path, text):
    need("ptxas", "nvdisasm")
    need_compiler()
    (tmp_path / "k.cu").write_text(text)
    (kernel,) = traceview.inspect_ptx(tmp_path / "k.cu").kernels
    return kernel.findings


@pytest.mark.parametrize(("each", "is_bound"), [(1, True), (2, True), (8, False)])
def test_a_loop_of_products_that_shared_memory_limits(tmp_path, each, is_bound):
    found = findings(tmp_path, PRODUCT.replace("EACH", str(each)))
    bound = [f for f in found if "shared memory takes longer than the arithmetic" in f.message]
    assert bool(bound) == is_bound
    for finding in bound:
        assert found[0] == finding
        assert finding.severity == "medium"
        assert finding.action.startswith("Let each thread compute several results")


@pytest.mark.parametrize("other", ["", " + b[(4 * at + i) % n]"])
@pytest.mark.parametrize("moved", [4, 1])
def test_adjacent_elements_of_a_thread_are_moved_at_once(tmp_path, moved, other):
    text = RUNS.replace("MOVED", str(moved)).replace("OTHER", other)
    (loads,) = (f for f in findings(tmp_path, text) if "Global loads" in f.message)
    assert "reverse" not in loads.message
    assert ("float4" in loads.action) == (moved == 4)
    assert loads.severity == ("medium" if moved == 4 else "high")


SUMS = """
__global__ void sums(const float* {restrict} x, float* {restrict} y, int* hits, int n) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k++) {{
    {body}
  }}
  if (sum != 0) y[at] = sum;
}}
"""


@pytest.mark.parametrize(
    ("restrict", "body", "said"),
    [
        ("", "y[at] += x[k * n + at];", "Accumulate in a register"),
        ("__restrict__", "hits[k] = k; sum += x[at] * k;", ""),
        ("", "hits[k] = k; sum += x[at] * k;", "Load before the loop"),
        ("", "hits[k] = k; sum += x[k + at];", ""),
        ("", "y[at + k] += 1;", ""),
        ("", "sum += *(volatile const float*)x;", ""),
    ],
)
def test_what_each_iteration_of_a_loop_repeats(tmp_path, restrict, body, said):
    found = findings(tmp_path, SUMS.format(restrict=restrict, body=body))
    kinds = ("Accumulate in a register", "Load before the loop")
    assert [k for k in kinds if any(f.action.startswith(k) for f in found)] == [said] * bool(said)


COPY = """
__global__ void copy(const {type}* x, {type}* y, int n, int columns) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  {moves}
}}
"""


@pytest.mark.parametrize(
    ("moves", "is_whole"),
    [
        ("if (at < n) y[at] = x[at];", True),
        ("for (; at < n; at += gridDim.x * blockDim.x) y[at] = x[at];", True),
        ("if (at < n) y[at] = x[at * 2];", False),
        ("if (at < n) y[at] = x[at * columns];", False),
    ],
)
@pytest.mark.parametrize("type_", ["float", "float2", "short"])
def test_whole_sectors_of_a_file_are_no_more_than_low(tmp_path, moves, is_whole, type_):
    found = findings(tmp_path, COPY.format(type=type_, moves=moves))
    loads = next(f for f in found if "Global loads" in f.message)
    assert (loads.severity == "low") == (is_whole and type_ != "short")
    assert not is_whole or "where each row is so aligned" in loads.action


STEPS = """
__global__ void steps(int* data, int* output, int n, int layers) {{
  int begin = threadIdx.x + n * blockIdx.x / gridDim.x, end = n * (blockIdx.x + 1) / gridDim.x;
  for (int layer = 0; layer < layers; layer++) {{
    for (int i = begin; i < end; i += {step}) {{
      int other = i - {distance};
      if (other >= 0) output[i] += data[other];
    }}
    __syncthreads();
  }}
}}
"""


@pytest.mark.parametrize("step", ["blockDim.x", "2 * blockDim.x", "512"])
@pytest.mark.parametrize("distance", ["layer", "(1 << layer)", "pow(2, layer)"])
def test_the_turns_of_an_unrolled_loop_store_different_elements(tmp_path, step, distance):
    found = findings(tmp_path, STEPS.format(step=step, distance=distance))
    assert not [f for f in found if "same element" in f.message]
