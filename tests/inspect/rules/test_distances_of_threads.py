"""What is said of CUDA C++ depends on how far neighbouring threads are proven to be apart.

All variants of a kind are kernels of one file, as compiling a file takes seconds. Expectations
follow from the index that each has.
"""

import itertools
import random

import pytest

import traceview
from tests.inspect.rules.test_divisions_and_tables import kernels
from tests.inspect.rules.written_ptx import need, need_compiler

RANDOM = random.Random(45)
TYPES = {"unsigned char": 1, "short": 2, "float": 4, "double": 8}
ACCESSOR = """
struct Rows { const float* data; long sizes[2]; long strides[2];
  __device__ float at(long row, long column) const {
    return data[row * strides[0] + column * strides[1]]; } };
"""
# An index of a float, and whether its neighbours are proven to be adjacent, from a row's start on.
INDICES = {
    "i": True,
    "(long)blockIdx.y * 64 + i": True,
    "w * h + i": True,
    "blockIdx.y * w + i": True,
    "i + 1": False,
    "mask[blockIdx.y] + i": False,
    "mask[i / 32] * w + i % 32": False,
    "i / w * h + i % w": False,
    "(i * h) % w": False,
}


@pytest.mark.parametrize("type_", ["short", "float"])
def test_vectors_are_advised_where_threads_are_proven_to_be_adjacent(tmp_path, type_):
    bodies = [f"(({type_}*)out)[i] = (({type_}*)x)[{index}]" for index in INDICES]
    for found, is_proven in zip(kernels(tmp_path, bodies), INDICES.values(), strict=True):
        loads = [f for f in found if f.message.startswith("Global loads")]
        advised = [f for f in loads if f.action.startswith("Give each thread adjacent")]
        assert bool(advised) == is_proven
        assert all(f.severity == "info" and "Leave" in f.action for f in loads if not is_proven)


def test_an_accessor_whose_strides_are_members_is_no_gather(tmp_path):
    calls = ["rows.at(i, 0)", "rows.at(0, i)", "rows.at(blockIdx.y, i)", "rows.at(i, w)"]
    found = kernels(tmp_path, [f"out[i] = {each}" for each in calls], ACCESSOR, ", Rows rows")
    for finding in itertools.chain(*found):
        assert "gather" not in finding.message
        assert not finding.message.startswith("Global loads") or finding.severity == "info"


@pytest.mark.parametrize("is_gathered", [True, False])
def test_only_what_is_loaded_per_thread_is_a_gather(tmp_path, is_gathered):
    indices = ["mask[i]", "mask[i] + w", "own[threadIdx.x ^ 1]", "mask[mask[i]]"]
    if not is_gathered:
        indices = ["mask[0] + i * w", "own[0] * w + i * h", "mask[blockIdx.x] * 3 + i * 2", "i * w"]
    shared = "__shared__ int own[256]; own[threadIdx.x] = mask[i]; __syncthreads();"
    for found in kernels(tmp_path, [f"{shared} out[i] = x[{each}]" for each in indices]):
        assert any("gather" in f.message for f in found) == is_gathered


@pytest.mark.parametrize("size", ["int", "long", "unsigned long", "unsigned"])
def test_a_thread_that_walks_along_a_row_has_neighbours_elsewhere(tmp_path, size):
    """Whatever the type of the row's length, and whether the row is found in a table."""
    length, type_ = f"({size})w", RANDOM.choice(list(TYPES))
    bodies = [
        f"for ({size} j = 0; j < {length}; j++) (({type_}*)out)[{to}] = (({type_}*)x)[{at}]"
        for to, at in (
            (f"i * {length} + j", f"i * {length} + j"),
            (f"i * {length} + j", f"mask[i] * {length} + j"),
        )
    ]
    for found in kernels(tmp_path, bodies):
        assert found[0].action.startswith("Let neighbouring threads access adjacent elements")
        assert found[0].severity in ("high", "medium")
        assert not any("float4" in f.action for f in found if f.severity != "info")


# A loop over elements of 16 bits, and whether wider ones take fewer iterations, not fewer threads.
LOOPS = {
    "for (int j = i; j < w; j += blockDim.x * gridDim.x) s += half[j]": True,
    "for (int j = threadIdx.x; j < w; j += blockDim.x) s += half[blockIdx.x * w + j]": True,
    "for (int j = 0; j < h; j++) s += half[j * w + i]": False,
    "for (int j = h; j > 0; j--) s += half[j * (w + 16) + i]": False,
}


def test_wider_elements_of_columns_leave_fewer_threads(tmp_path):
    start = "float s = 0; const short* half = (const short*)x"
    found = kernels(tmp_path, [f"{start}; {loop}; out[i] = s" for loop in LOOPS])
    for findings, is_along in zip(found, LOOPS.values(), strict=True):
        (loads,) = (f for f in findings if "Global loads" in f.message)
        assert loads.severity == ("low" if is_along else "info")
        assert ("fewer threads" in loads.action) == (not is_along)


@pytest.mark.parametrize("again", [True, False])
def test_rows_that_an_outer_loop_reads_again_are_not_high(tmp_path, again):
    row = "i * w" if again else "(k * 4096 + i) * w"
    body = f"for (int j = 0; j < w; j++) s += x[{row} + j] * mask[j + k]"
    (found,) = kernels(
        tmp_path, [f"float s = 0; for (int k = 0; k < h; k++) {{ {body}; s *= s; }} out[i] = s"]
    )
    (apart,) = (f for f in found if "w elements apart" in f.message)
    assert apart.severity == ("medium" if again else "high")


# What the compiler keeps in shared memory, as one address may be the other.
SUMS = "own[threadIdx.x] += x[j * h + i]; own[threadIdx.x + d] += x[j * h + i + w];"
LOOP = "__shared__ float own[256]; own[threadIdx.x] = 0; for (int j = 0; j < w; j++) { BODY }"


@pytest.mark.parametrize(
    ("body", "is_said"),
    [
        (SUMS, True),
        (f"if (x[j * w + i] > 0) {{ {SUMS} }}", True),
        (f"{SUMS} __syncthreads();", False),
        (SUMS.replace("threadIdx.x", "(threadIdx.x + j) % 128"), False),
        (SUMS.replace("+=", "="), False),
        (SUMS.replace("own[", "((volatile float*)own)["), False),
    ],
)
def test_sums_in_shared_memory(tmp_path, body, is_said):
    bodies = [LOOP.replace("BODY", body) + " __syncthreads(); out[i] = own[threadIdx.x ^ 1]"]
    (found,) = kernels(tmp_path, bodies)
    said = [f for f in found if f.message.startswith("Shared-memory stores")]
    assert bool(said) == is_said
    assert all(f.action.startswith("Accumulate in a register") for f in said)


@pytest.mark.parametrize("size", ["long", "unsigned long", "int", "unsigned"])
def test_divisions_of_64_bits(tmp_path, size):
    work = "".join(f" s = s * {n}.5f + x[s > {n} ? i : w];" for n in range(9))
    bodies = [
        f"float s = 0; for ({size} j = i; j < ({size})w * w; j += 99) "
        f"{{ s += x[j / ({size})h] + x[j % ({size})h];{work} }} out[i] = s"
    ]
    (found,) = kernels(tmp_path, bodies)
    said = [f for f in found if "divides integers of 64 bits" in f.message]
    assert bool(said) == ("long" in size)
    assert {f.severity for f in said} <= {"low"}


OVERLOADS = """
namespace outer { template <typename T, typename S> __global__ void copy(const T* x, T* y, S) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i]; }
template <typename T, typename S> __global__ void copy(const T* x, T* y, S pitch, S) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i * pitch] = x[i * pitch]; } }
template __global__ void outer::copy(const float*, float*, SIZE);
template __global__ void outer::copy(const float*, float*, SIZE, SIZE);
"""


@pytest.mark.parametrize("size", ["int", "long", "unsigned long"])
def test_overloads_with_a_finding_of_high_severity_come_first(tmp_path, size):
    need("ptxas", "nvdisasm")
    need_compiler()
    (tmp_path / "k.cu").write_text(OVERLOADS.replace("SIZE", size))
    first, second = traceview.inspect_ptx(f"{tmp_path / 'k.cu'}:copy").kernels
    assert first.findings[0].severity == "high" != second.findings[0].severity
    assert "pitch elements apart" in first.findings[0].message


# Where a thread puts its four elements, each on a line, and whether what it loads decides that.
PLACES = {
    "bins[(mask[i] >> w) & 15] + 4 * threadIdx.x + {0}": True,
    "bins[(mask[i + 32] >> w) & 15] + 8 * i + {0} - h * 16": True,
    "bins[q[i] & 15] + 4 * threadIdx.x + {0}": None,
    "4 * i + {0}": False,
    "6 * i + {0}": False,
}


def test_no_vector_is_advised_where_data_place_each_element(tmp_path):
    start = "__shared__ int bins[16]; if (threadIdx.x < 16) bins[threadIdx.x] = mask[threadIdx.x];"
    bodies = [
        f"{start} __syncthreads();\n"
        + ";\n".join(move.format(place.format(n), n) for n in range(4))
        for move in ("out[{}] = x[{} + d]", "out[i + {1} * d] = x[{0}]")
        for place in PLACES
    ]
    for found, by_data in zip(kernels(tmp_path, bodies), [*PLACES.values()] * 2, strict=True):
        said = [f for f in found if "apart" in f.message or "scatter" in f.message]
        ordered = [f.severity for f in said if "order the block's values" in f.action]
        assert len(ordered) == (by_data is True)
        assert {*ordered} <= {"medium", "low"}
        if by_data is not False:
            assert not any("as one vector" in f.action for f in found)


def test_what_few_threads_of_a_block_move_is_small(tmp_path):
    conditions = {
        "threadIdx.x < 8": True,
        "threadIdx.x == 31": True,
        "(threadIdx.x & 31) == 0": True,
        "threadIdx.x >= 8": False,
        "i < w": False,
        "mask[i] < 8": False,
        "blockIdx.x < 8": False,
    }
    rest = "for (int n = 0; n < 8; n++) out[(8 * blockIdx.x + n) * blockDim.x + threadIdx.x] = n"
    found = kernels(tmp_path, [f"if ({each}) out[d] = x[i * w]; {rest}" for each in conditions])
    for findings, is_small in zip(found, conditions.values(), strict=True):
        loads = [f for f in findings if "loads" in f.message and f.severity in ("high", "medium")]
        assert bool(loads) != is_small


def test_what_a_loop_stores_only_for_some_data_is_low(tmp_path):
    loop = "float s = 0; for (int j = 0; j < d; j++) {{ s += x[j * w + i]; {} }}"
    conditions = {
        "if (j % 3 == h) out[i] += s;": "medium",
        "if (mask[j * w + i] < 9) out[i] += s;": "low",
        "if (s > 9) { if (j & 1) out[i] += s; else out[i] *= s; }": "low",
    }
    found = kernels(tmp_path, [loop.format(each) for each in conditions])
    for findings, severity in zip(found, conditions.values(), strict=True):
        said = [f.severity for f in findings if "write the same address" in f.message]
        assert said == [severity], findings
