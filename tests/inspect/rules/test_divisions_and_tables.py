"""Kernels in CUDA C++ that divide by run-time values, take powers, or look up constants.

All variants of a kind are kernels of one file, as compiling a file takes seconds.
"""

import itertools

import pytest

import traceview
from tests.inspect.rules.written_ptx import need, need_compiler

# What is divided, and whether threads divide different values by what only the run knows.
DIVISIONS = {
    "out[(i % w) * h + i / w] = x[i]": True,
    "out[i / w + (i / (w * h)) % d] = x[i % h]": True,
    "out[i % 48 * 16 + i / 48] = x[i]": False,
    "out[i % W * 16 + i / W] = x[i]": False,
    "out[i] = x[i] * (blockIdx.x / w)": False,
    "out[i] = x[i + w]": False,
    # The compiler divides to count the iterations, before the loop.
    "for (int k = threadIdx.x; k < w; k += h) out[i] += x[k * d]": False,
}
# An index into a table, and whether threads of a warp look up different elements.
INDICES = {"q[i]": True, "threadIdx.x & 63": True, "q[i] >> 2": True, "w & 63": False, "7": False}
# An index by which neighbouring threads read the same element, or no row that starts at 16 bytes.
SHARED = {"i / 32": True, "i >> 6": True, "i": False, "i + 1": True, "i + 16": False}
COUNTED = ("__popc(mask[i / 32] & ((1u << (i & 31)) - 1))", "w + __popcll(m & ((1ull << i) - 1))")


def kernels(tmp_path, bodies, before="", more=""):
    """The findings of each body, as a kernel of one file; `more` are further parameters."""
    need("ptxas", "nvdisasm")
    need_compiler()
    text = f"constexpr int W = 80;\n{before}\n"
    for number, body in enumerate(bodies):
        text += (
            f"__global__ void k{number}(const float* __restrict__ x, const unsigned char* q,\n"
            "    const unsigned* __restrict__ mask, unsigned long long m,\n"
            "    float* __restrict__ out, int w, int h, int d"
            f"{more}) {{\n"
            "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
            f"  {body};\n}}\n"
        )
    (tmp_path / "k.cu").write_text(text)
    found = traceview.inspect_ptx(tmp_path / "k.cu").kernels
    by_number = {int("".join(filter(str.isdigit, k.name[3:6]))): k.findings for k in found}
    return [by_number[number] for number in range(len(by_number))]


def test_division_by_what_only_the_run_knows(tmp_path):
    loops = [f"for (int j = 0; j < d; j++, i += blockDim.x) {{ {each}; }}" for each in DIVISIONS]
    found = kernels(tmp_path, [*DIVISIONS, *loops])
    for findings, is_said in zip(found, [*DIVISIONS.values()] * 2, strict=True):
        said = [f for f in findings if f.message.startswith("Integer division")]
        assert bool(said) == is_said, findings
        assert all(f.severity in ("low", "medium") and "template" in f.action for f in said)


# What a loop sums, and whether powers take most of its instructions.
SUMMED = {
    "powf(x[j], 3.0f)": True,
    "powf(x[j], y)": True,
    "fabsf(pow(x[j], 2.5f)) + y": True,
    "powf(2.0f, j)": True,
    "exp2f(x[j]) * x[j] * x[j]": False,
    "expf(x[j]) + logf(x[j]) * sqrtf(x[j])": False,
    "x[j] * x[j] * y": False,
}


def test_powers_in_a_loop(tmp_path):
    loop = "float s = 0, y = x[w], z = {}; for (int j = {}; j < d; j += {}) s += {}; out[i] = s * z"
    bodies = [loop.format("1", 0, 1, each) for each in SUMMED]
    once = loop.format("powf(y, 3.5f)", "i", 64, "x[j]")
    apart = loop.format("1", "i * 64", "h", "powf(x[j], 3.0f)")
    *found, before, far = kernels(tmp_path, [*bodies, once, apart])
    for findings, is_said in zip(found, SUMMED.values(), strict=True):
        said = [f for f in findings if "power function" in f.message]
        assert [f.severity for f in said] == ["medium"] * is_said, findings
        assert all("x * x * x" in f.action and "before the loop" in f.action for f in said)
    assert not any("power function" in f.message for f in before)
    assert [f.severity for f in far if "power function" in f.message] == ["low"]


@pytest.mark.parametrize("type_", ["float", "int"])
def test_a_table_in_constant_memory_that_threads_index_differently(tmp_path, type_):
    bodies = [f"out[i] = table[{index}]" for index in INDICES]
    found = kernels(tmp_path, bodies, f"__constant__ {type_} table[256];")
    for findings, is_said in zip(found, INDICES.values(), strict=True):
        said = [f for f in findings if "__constant__" in f.message]
        assert bool(said) == is_said, findings
        assert all(f.severity == "medium" and f.subject for f in said)


def test_neighbours_that_read_one_element_or_shifted_ones_need_no_vector(tmp_path):
    found = kernels(tmp_path, [f"out[i] = x[{index}]" for index in SHARED])
    for findings, is_shared in zip(found, SHARED.values(), strict=True):
        narrow = [f.severity for f in findings if "loads" in f.message]
        assert [severity for severity in narrow if severity != "info"] == ["medium"] * (
            not is_shared
        )


def test_elements_that_bits_of_a_mask_count_are_adjacent(tmp_path):
    guards = ("", "if (i < w) ")
    bodies = [f"{g}out[i] = x[{index}]" for g, index in itertools.product(guards, COUNTED)]
    for findings in kernels(tmp_path, bodies):
        counted = [f for f in findings if "mask" in f.message]
        assert [f.severity for f in counted] == ["info"]
        assert not any("Sort" in (f.action or "") for f in findings)


DOTTED = """
import triton
import triton.language as tl

@triton.jit
def k(x, w, o, K, d, h, B: tl.constexpr):
    m, at = tl.arange(0, B), tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        row = (k + at) // d
        place = row // h * 4096 + row % h * 64 + (k + at) % d
        b = tl.load(x + place[:, None] * 64 + m[None, :])
        a = tl.load(w + m[:, None] * 4096 + k + at[None, :])
        total = tl.dot(a, b, total)
    tl.store(o + m[:, None] * B + m[None, :], total)
"""


@pytest.mark.parametrize(("element", "side"), [("fp16", 64), ("fp32", 64), ("fp16", 32)])
def test_divisions_beside_products_whose_memory_traffic_is_not_counted(tmp_path, element, side):
    pytest.importorskip("triton")
    (tmp_path / "k.py").write_text(DOTTED)
    signature = f"*{element}:16, *{element}:16, *fp32:16, i32, i32, i32, {side}"
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:k", signature=signature, budget_s=0.1)
    (said,) = (f for f in report.kernels[0].findings if f.message.startswith("Integer division"))
    assert said.severity == "low"
    assert "memory traffic" not in str(said.evidence.basis)
