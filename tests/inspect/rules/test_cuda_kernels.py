"""Kernels in CUDA C++: loops that shared memory limits, and elements that a thread moves apart."""

import math

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
    # A remainder may end a row anywhere.
    assert loads.action.startswith("Leave the width unless") == (moved == 4)
    assert loads.severity == ("info" if moved == 4 else "high")


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
def test_whole_sectors_of_a_file_are_information_unless_few_are_in_flight(
    tmp_path, moves, is_whole, type_
):
    found = findings(tmp_path, COPY.format(type=type_, moves=moves))
    loads = next(f for f in found if "Global loads" in f.message)
    is_alone = type_ == "float" and moves == "if (at < n) y[at] = x[at];"
    assert (loads.severity == "info") == (is_whole and type_ != "short" and not is_alone)
    assert loads.severity == "medium" or not is_alone
    assert loads.action.startswith("Leave it") == (loads.severity == "info")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("type_", "value", "bits"),
    [
        ("float", "x[at]", 32),
        ("float", "x[at] + w[at]", 64),
        ("short", "x[at] + w[at]", 32),
        ("unsigned char", "x[at]", 8),
        ("unsigned short", "x[at] + w[at] + x[at + n] + w[at + n]", 64),
    ],
)
def test_vectors_are_advised_where_few_bytes_are_in_flight(tmp_path, arch, type_, value, bits):
    need("ptxas", "nvdisasm")
    need_compiler()
    (tmp_path / "k.cu").write_text(
        f"__global__ void k(const {type_}* x, const {type_}* w, {type_}* y, int n) {{\n"
        "  int at = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"  if (at < n) y[at] = {value};\n}}\n"
    )
    (kernel,) = traceview.inspect_ptx(tmp_path / "k.cu", arch=arch).kernels
    (finding,) = (f for f in kernel.findings if "Global loads" in f.message)
    is_proven = arch == "sm_90" and bits <= 32
    whole = "info" if type_ == "float" else "low"
    assert finding.severity == ("medium" if is_proven else whole)
    assert ("8.19 kB or less in flight" in finding.evidence.basis) == is_proven


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


# A thread reads one element per offset, and its neighbour the next ones: (offsets, severity).
STENCIL = """
__global__ void k(const float* __restrict__ x, float* __restrict__ y, int n, int width) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] = {sum};
}}
"""


@pytest.mark.parametrize("offsets", [(-1, 0, 1), (-2, 1), (0, 3), (0, 31)])
@pytest.mark.parametrize("rows", ["", "width", "4 * width"])
def test_neighbours_that_read_the_same_are_no_vectors(tmp_path, offsets, rows):
    terms = [f"x[at + {offset}]" for offset in offsets]
    terms += [f"x[at + {rows}]", f"x[at - {rows}]"] if rows else []
    found = findings(tmp_path, STENCIL.format(sum=" + ".join(terms)))
    assert {f.severity for f in found} == {"info"}
    assert "Leave the width" in found[0].action


@pytest.mark.parametrize("terms", ["x[at] + x[at + width]", "x[at]", "x[at] + x[at + 64]"])
def test_neighbours_that_read_others_may_be_vectors(tmp_path, terms):
    found = findings(tmp_path, STENCIL.format(sum=terms))
    assert not any("stencil" in f.message for f in found)
    assert any("float4" in f.action for f in found)


STRUCTURE = """
struct S {{ {type_} m[{members}]; }};
__global__ void k(S* s, int n) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) {{ {body} }}
}}
"""


@pytest.mark.parametrize("members", [3, 5, 6])
@pytest.mark.parametrize(
    ("used", "type_", "severity"),
    [("all", "float", "low"), ("one", "float", "high"), ("all", "unsigned char", "high")],
)
def test_structures_are_as_bad_as_what_is_not_used(tmp_path, members, used, type_, severity):
    each = range(members if used == "all" else 1)
    body = " ".join(f"s[at].m[{i}] += 1;" for i in each)
    found = findings(tmp_path, STRUCTURE.format(type_=type_, members=members, body=body))
    assert found[0].severity == severity
    assert f"{members * (4 if type_ == 'float' else 1)} bytes apart" in found[0].message
    assert "an array of its own" in found[0].action
    # 16 bytes divide a few structures together, if not one.
    size = members * (4 if type_ == "float" else 1)
    whole = math.lcm(size, 16)
    said = f"{whole // size} structures as {whole // 16} vectors of 16 bytes"
    assert (said in found[0].action) == (used == "all" and whole <= 64)


AXES = """
__global__ void k(const float* __restrict__ x, float* __restrict__ y, int width) {{
  int a = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y * blockDim.y + threadIdx.y;
  y[{fast} + {slow} * width] = x[{fast} + {slow} * width] + 1;
}}
"""


@pytest.mark.parametrize(("fast", "slow"), [("a", "b"), ("b", "a")])
def test_the_axis_of_a_block_that_runs_along_memory(tmp_path, fast, slow):
    found = findings(tmp_path, AXES.format(fast=fast, slow=slow))
    exchanged = [f for f in found if f.action.startswith("Let threadIdx.x run along the axis")]
    assert bool(exchanged) == (fast == "b")
    assert all(f.severity == "high" for f in exchanged)


DOUBLES = """
#include <math.h>
__global__ void k(const {type_}* __restrict__ x, {type_}* __restrict__ y, int n, int turns) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  {type_} sum = x[at];
  {loop} sum = {body};
  y[at] = sum;
}}
"""
# A division in fp64 calls a function, so that its time is not known; exp does not.
TURNS = "for (int i = 0; i < turns; i++)"
LONG = " + ".join(f"exp(sum * 0.{i})" for i in range(1, 7))


@pytest.mark.parametrize(
    ("loop", "body", "severity"),
    [
        (TURNS, "sum * 1.1f + 0.3f", ""),
        (TURNS, "sum * 1.1 + 0.3", "any"),
        (TURNS, "exp(-0.3 * sum) + sqrt(0.1 + sum)", "medium"),
        (TURNS, "expf(-0.3f * sum) + sqrtf(0.1f + sum)", ""),
        (TURNS, "pow(sum, 2.5) + 0.1", "medium"),
        (TURNS, "sum + pow(x[i], 2.5)", "medium"),
        ("", "sum * 1.1 + 0.3", "low"),
        (TURNS, "sum + x[i] * 0.5", "low"),
        ("", LONG, "medium"),
    ],
)
@pytest.mark.parametrize("type_", ["float", "double"])
def test_fp64_by_accident(tmp_path, type_, loop, body, severity):
    found = findings(tmp_path, DOUBLES.format(type_=type_, loop=loop, body=body))
    fp64 = [f for f in found if "in fp64 on values of narrower types" in f.message]
    assert bool(fp64) == (type_ == "float" and severity != "")
    for finding in fp64:
        assert finding.subject.line == 6
        assert finding.severity in ({severity} if severity != "any" else {"low", "medium"})


PRODUCTS = """
__global__ void k({type_}* a, {type_}* b, {type_}* c, int n) {{
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  {type_} sum = 0;
  for (int i = 0; i < n; i++) sum += {left} * {right};
  c[row * n + col] = sum;
}}
"""


@pytest.mark.parametrize("type_", ["float", "double"])
@pytest.mark.parametrize(
    ("left", "right", "is_product"),
    [
        ("a[row * n + i]", "b[i * n + col]", True),
        ("b[i * n + col]", "a[row * n + i]", True),
        ("a[(row + i) * n + col]", "b[i * n + col]", False),
    ],
)
def test_operands_that_threads_of_a_block_share(tmp_path, type_, left, right, is_product):
    found = findings(tmp_path, PRODUCTS.format(type_=type_, left=left, right=right))
    tiles = [f for f in found if f.action.startswith("Load tiles of both operands")]
    assert bool(tiles) == is_product
    assert all(f.severity == "medium" and f is found[0] for f in tiles)


ATOMICS = """
__global__ void k(const {type_}* __restrict__ x, {type_}* sum, unsigned* bins, int n) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
}}
"""


@pytest.mark.parametrize(
    ("type_", "body", "severity"),
    [
        ("float", "if (at < n) atomicAdd(sum, x[at]);", "high"),
        ("double", "if (at < n) atomicAdd(sum, x[at]);", "high"),
        ("float", "if (at < n && x[at] > 3) atomicAdd(sum, x[at]);", "medium"),
        ("float", "if (threadIdx.x == 0) atomicAdd(sum, x[at]);", "low"),
        (
            "float",
            "float v = x[at]; for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);"
            " if (threadIdx.x % 32 == 0) atomicAdd(sum, v);",
            "low",
        ),
        ("int", "if (at < n) atomicAdd(sum, x[at]);", "low"),
    ],
)
def test_atomics_of_all_threads_at_one_address(tmp_path, type_, body, severity):
    found = findings(tmp_path, ATOMICS.format(type_=type_, body=body))
    (contended,) = (f for f in found if "one address" in f.message)
    assert contended.severity == severity
    assert contended.message.startswith("All threads of all blocks") == (severity != "low")


MOVING = """
__global__ void k(const float* __restrict__ x, const int* __restrict__ ids, float* sum, int n) {{
  __shared__ int own[256];
  own[threadIdx.x] = ids[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int j = 0; j < n; j++) {{
    v *= 0.5f;
    {body}
  }}
}}
"""
OF_WARPS = "for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        # One address per iteration, which another iteration does not have.
        ("atomicAdd(&sum[own[j]], v);", "Sum within each warp"),
        ("atomicAdd(&sum[2 * own[j]], v); atomicAdd(&sum[2 * own[j] + 1], -v);", "Sum within each"),
        ("atomicAdd(&sum[own[threadIdx.x]], v);", None),
        (OF_WARPS + " if (threadIdx.x % 32 == 0) atomicAdd(&sum[own[j]], v);", None),
        ("if (v > 1) atomicAdd(&sum[7], v);", "Sum in a register over the loop"),
    ],
)
def test_atomics_of_all_threads_in_a_loop(tmp_path, body, says):
    found = findings(tmp_path, MOVING.format(body=body))
    contended = [f for f in found if "one address" in f.message]
    assert [f.action.startswith(says) for f in contended] == ([True] if says else [])
    assert all(f.severity == "medium" for f in contended)


@pytest.mark.parametrize(
    ("body", "is_counted"),
    [
        ("atomicAdd(&bins[x[at]], 1);", True),
        ("for (; at < n; at += 4096) atomicAdd(&bins[x[at] % 64], 2);", True),
        ("atomicAdd(&bins[x[at]], x[at + n]);", False),
        ("atomicAdd(&bins[at], 1);", False),
        (
            "__shared__ unsigned own[64]; own[threadIdx.x % 64] = 0; __syncthreads();"
            " atomicAdd(&own[x[at] % 64], 1); __syncthreads(); atomicAdd(&bins[x[at]], 1);",
            False,
        ),
    ],
)
def test_counts_in_bins(tmp_path, body, is_counted):
    found = findings(tmp_path, ATOMICS.format(type_="int", body=body))
    counted = [f for f in found if f.action.startswith("If the bins fit")]
    assert bool(counted) == is_counted
    assert all(f.severity == "medium" for f in counted)


LEVELS = """
__global__ void k({type_}* x, const {type_}* y, int n) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = {start}; i {go}) {{
    x[at] += {read};
    {barrier}
  }}
}}
"""
HALVES, ROWS = ("blockDim.x / 2", "> 0; i /= 2"), ("0", "< n; i++")


@pytest.mark.parametrize("type_", ["float", "double", "int"])
@pytest.mark.parametrize(
    ("steps", "read", "barrier", "said"),
    [
        (HALVES, "x[at + i]", "", "no barrier is between"),
        (HALVES, "x[at + i]", "__syncthreads();", ""),
        (HALVES, "x[at - i]", "", "no barrier is between"),
        (ROWS, "x[(long)i * n + at]", "", ""),
        (ROWS, "y[(long)i * n + at]", "", "write the same address"),
    ],
)
def test_what_a_loop_stores_and_other_threads_load(tmp_path, type_, steps, read, barrier, said):
    start, go = steps
    text = LEVELS.format(type_=type_, start=start, go=go, read=read, barrier=barrier)
    found = [f for f in findings(tmp_path, text) if f.severity == "medium"]
    assert [said in f.message for f in found if "iteration" in f.message] == [True] * bool(said)


CLAMPED = """
__global__ void k(const {type_}* u, {type_}* out, int width, int height) {{
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (col >= width || row >= height) return;
  out[row * width + col] = {read};
}}
"""


@pytest.mark.parametrize("type_", ["float", "int"])
@pytest.mark.parametrize(
    ("read", "is_stencil"),
    [
        ("u[row * width + max(col - 1, 0)] + u[row * width + min(col + 1, width - 1)]", True),
        ("u[row * width + col] + u[row * width + max(col - 2, 0)]", True),
        ("u[row * width + col] + u[max(row - 1, 0) * width + col]", False),
        ("u[row * width + min(col, width - 1)]", False),
    ],
)
def test_neighbours_that_are_clamped_at_the_rim(tmp_path, type_, read, is_stencil):
    found = findings(tmp_path, CLAMPED.format(type_=type_, read=read))
    assert any("is a stencil" in f.message for f in found) == is_stencil
    # Coalesced accesses of 32 bits are information, too.
    assert {f.severity for f in found} <= {"info", *(() if is_stencil else ("low", "medium"))}


RUN = """
__global__ void k(const {type_}* __restrict__ x, {type_}* __restrict__ y, int n) {{
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  {type_} run[{count}];
  for (int i = 0; i < {count}; i++) run[i] = x[{times} * at + i];
  for (int i = 0; i < {count}; i++) {guard} y[{times} * at + i] = run[{count} - 1 - i];
}}
"""


@pytest.mark.parametrize("type_", ["unsigned char", "float"])
@pytest.mark.parametrize("count", [4, 16])
@pytest.mark.parametrize(
    ("times", "guard", "overlap"),
    [("1", "", True), ("{count}", "", False), ("1", "if (i == 0 || at == n - 1)", False)],
)
def test_threads_that_store_to_the_same_elements(tmp_path, type_, count, times, guard, overlap):
    times = times.format(count=count)
    text = RUN.format(type_=type_, count=count, times=times, guard=guard)
    found = findings(tmp_path, text)
    stores = [f for f in found if "the last one to store wins" in f.message]
    assert [f.severity for f in stores] == ["medium"] * overlap
    assert not stores or stores[0] is found[0]


APART = """
__global__ void k(const float* __restrict__ a, const int* __restrict__ at, float* y,
                  int pitch, int n) {{
  __shared__ int chosen[1024];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  chosen[threadIdx.x] = at[i];
  __syncthreads();
  float sum = 0;
  {loop} sum += {read};
  y[i] = sum;
}}
"""
WALK = "for (int j = 0; j < n; j++)"
COLUMN = "for (int j = 0; j < n; j = chosen[j])"


@pytest.mark.parametrize(
    ("loop", "read", "severity", "message", "action"),
    [
        (WALK, "a[i * pitch + j]", "high", "pitch elements apart", "give each row to a warp"),
        (COLUMN, "a[i * pitch + j]", "high", "pitch elements apart", "store a transposed"),
        ("", "a[i * pitch + i]", "high", "pitch + 1 elements apart", "such as a diagonal"),
        ("", "a[i * pitch] + a[i * pitch + 3]", "medium", "pitch elements apart", "an array of"),
        (
            "for (int j = threadIdx.x; j < n; j += blockDim.x)",
            "a[j * pitch + blockIdx.x]",
            "high",
            "pitch elements apart",
            "as blockIdx.x does here",
        ),
        (WALK, "a[j * pitch + i]", "info", "32 bits in one place", "float4"),
        (WALK, "a[chosen[threadIdx.x ^ 1] + j * pitch]", "low", "this is a gather", "Sort"),
        ("", "a[at[i]]", "low", "this is a gather", "Sort"),
        ("", "(y[at[i]] = a[at[i]])", "low", "this is a gather or scatter:", "Sort"),
        ("", "a[at[0] + __popc(at[1] & i)]", "info", "counts the bits", "Leave the width"),
    ],
)
def test_where_the_elements_of_threads_lie(tmp_path, loop, read, severity, message, action):
    found = findings(tmp_path, APART.format(loop=loop, read=read))
    (finding,) = (f for f in found if message in f.message and action in f.action)
    assert finding.severity == severity
    assert not any(f.severity == "high" for f in found if f is not finding)
    assert not any("tl." in f.action for f in found)


@pytest.mark.parametrize(
    ("block", "severity"),
    [
        ("1", "high"),
        ("dim3(4, 4)", "high"),
        ("dim3(10, 10)", "medium"),
        ("48", "medium"),
        ("250", ""),
        ("dim3(16, 16)", ""),
        ("n", ""),
    ],
)
def test_blocks_that_leave_lanes_of_their_warps_idle(tmp_path, block, severity):
    kernel = "__global__ void k(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1.5f; }"
    launch = f"void run(float *x, int n) {{\n  k<<<64, {block}>>>(x, n);\n}}"
    found = findings(tmp_path, f"{kernel}\n{launch}\n")
    said = [f for f in found if "lanes of their warps idle" in f.message]
    assert [f.severity for f in said] == [severity] * bool(severity)
    for finding in said:
        assert finding == found[0]
        assert "launched at k.cu:3" in finding.message
        assert "by threadIdx" not in finding.action


@pytest.mark.parametrize(("index", "alone"), [("blockIdx.x", True), ("threadIdx.x", False)])
def test_more_threads_alone_would_repeat_the_work_of_a_block(tmp_path, index, alone):
    kernel = f"__global__ void k(float *x) {{ x[{index}] += 1.5f; }}"
    found = findings(tmp_path, f"{kernel}\nvoid run(float *x) {{ k<<<64, 1>>>(x); }}\n")
    said = [f for f in found if "lanes of their warps idle" in f.message]
    assert [("by threadIdx" in f.action) for f in said] == [alone]


TILES = """
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void k(const half* x, float* y, int n) {
  __shared__ half tile[64 * 64];
  __shared__ float sums[64];
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < 64; j++) tile[threadIdx.x * 64 + j] = x[(i * 64 + j) * 64 + threadIdx.x];
    __syncthreads();
    READ
    __syncthreads();
  }
}
"""
READ = {
    "wmma": "wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;"
    " wmma::load_matrix_sync(a, tile, 64); y[i * 64 + threadIdx.x] = a.x[0];",
    "": "y[i * 64 + threadIdx.x] = __half2float(tile[threadIdx.x]);",
}


@pytest.mark.parametrize("by", READ)
def test_rows_of_tiles_for_matrix_products_stay_aligned(tmp_path, by):
    found = findings(tmp_path, TILES.replace("READ", READ[by]))
    said = [f for f in found if f.message.startswith("Bank conflicts")]
    assert said
    assert all(("by 16 bytes" in f.action) is bool(by) for f in said), said
