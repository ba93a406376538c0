"""Narrow accesses that are best left, and what padding must hold where a kernel reduces."""

import pytest

import traceview

pytest.importorskip("triton")

ROWS = """
import triton
import triton.language as tl

@triton.jit
def rows(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * n + at, at < n, other={other})
    tl.store(y + tl.program_id(0) * n + at, {result}, at < n)
"""
RESULTS = {
    "values * 2": False,
    "tl.exp(values)": False,
    "values / tl.sum(values)": True,
    "values - tl.max(values, 0)": True,
}
TAPS = """
import triton
import triton.language as tl

@triton.jit
def taps(x, w, y, T, SHIFT: tl.constexpr, TAPS: tl.constexpr, B: tl.constexpr):
    rows = tl.arange(0, B)
    times = tl.program_id(0) * B + tl.arange(0, B)
    sums = tl.zeros([B, B], tl.float32)
    for k in range(TAPS):
        at = times + k - SHIFT
        weights = tl.load(w + k * B * B + rows[:, None] * B + rows[None, :])
        part = tl.load(x + rows[:, None] * T + at[None, :], (at >= 0)[None, :], other=0.0)
        sums += tl.dot(weights, part)
    tl.store(y + rows[:, None] * T + times[None, :], sums)
"""
SUMS = """
import triton
import triton.language as tl

@triton.jit
def sums(x, y, n, ROWS: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    values = tl.load(x + rows[:, None] * D + tl.arange(0, D)[None, :])
    tl.store(y + rows, tl.sum(values, 1))
"""


def narrow(folder, source, name, signature):
    (folder / "k.py").write_text(source)
    report = traceview.inspect_ptx(f"{folder}/k.py:{name}", signature=signature)
    return [f for f in report.kernels[0].findings if "per thread per instruction" in f.message]


@pytest.mark.parametrize("other", ["0.0", "-float('inf')"])
@pytest.mark.parametrize("result", RESULTS)
def test_what_padding_holds_where_a_kernel_reduces(tmp_path, result, other):
    source = ROWS.format(result=result, other=other)
    (finding,) = narrow(tmp_path, source, "rows", "*fp32:16, *fp32:16, i32, 1024")
    assert finding.action.startswith("Pad n to a multiple of 16")
    assert ("Fill what is padded" in finding.action) == RESULTS[result]


@pytest.mark.parametrize("shift", [3, 15, 63])
def test_shifted_elements_are_neither_apart_nor_to_be_padded(tmp_path, shift):
    signature = f"*fp32:16, *fp32:16, *fp32:16, i32:16, {shift}, {shift + 1}, 32"
    shifted = [f for f in narrow(tmp_path, TAPS, "taps", signature) if "shifted" in f.message]
    assert [f.severity in ("medium", "low") for f in shifted] == [True]
    assert f"shifted by {shift} elements" in shifted[0].message
    assert shifted[0].action.startswith("Leave the width")


@pytest.mark.parametrize(("columns", "is_left"), [(2, False), (4, False), (64, True), (128, True)])
def test_one_result_per_row_is_left_narrow(tmp_path, columns, is_left):
    found = narrow(tmp_path, SUMS, "sums", f"*fp32:16, *fp32:16, i32:16, 64, {columns}")
    stores = [f for f in found if "Global stores" in f.message]
    assert [f.action.startswith("Leave it") for f in stores] == [is_left] * len(stores)
    assert stores or not is_left


SCALED = """
import triton
import triton.language as tl

@triton.jit
def scaled(a, b, scale, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.arange(0, M)
    sums = tl.zeros([M, N], tl.float32)
    for k in range(0, K, BLOCK_K):
        left = {left}
        part = tl.dot(left, b.load([0, k]).T)
        sums += part * tl.load(scale + rows * K + k)[:, None]
    tl.store(c + rows[:, None] * N + tl.arange(0, N)[None, :], sums)
"""
BULK, ROW_BY_ROW = (
    "a.load([0, k])",
    "tl.load(a + rows[:, None] * K + k + tl.arange(0, BLOCK_K)[None])",
)


@pytest.mark.parametrize(("left", "severities"), [(BULK, {"low"}), (ROW_BY_ROW, {"low", "high"})])
def test_scales_beside_tiles_of_bulk_copies_are_little(tmp_path, left, severities):
    """Not so a tile whose rows start anywhere."""
    source = SCALED.format(left=left)
    a = "tensordesc<fp16[64, 64]>" if left == BULK else "*fp16:16"
    signature = f"{a}, tensordesc<fp16[128, 64]>, *fp32:16, *fp32:16, i32, 64, 128, 64"
    found = narrow(tmp_path, source, "scaled", signature)
    at = (
        source.splitlines().index("        sums += part * tl.load(scale + rows * K + k)[:, None]")
        + 1
    )
    of_scale = {f.severity for f in found if f"k.py:{at}" in f.message}
    assert of_scale == {"low"}
    assert {f.severity for f in found} == severities


COLUMNS = """
import triton
import triton.language as tl

@triton.jit
def turns(x, scale, w, y, n, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    weights = tl.load(w + tl.arange(0, N)[:, None] * N + columns)
    sums = tl.zeros([M, N], tl.float32)
    for k in range(n):
        part = tl.load(x + (k * M + rows) * N + columns)
        sums += tl.dot(part * tl.load(scale + (k * M + {rows}) * M), weights)
    tl.store(y + rows * N + columns, sums)
"""


@pytest.mark.parametrize(("rows", "is_operand"), [("rows", False), ("rows + 0 * columns", True)])
def test_a_column_that_scales_an_operand_is_none(tmp_path, rows, is_operand):
    source, signature = COLUMNS.format(rows=rows), "*fp16:16, *fp16:16, *fp16:16, *fp32:16, i32"
    (tmp_path / "k.py").write_text(source)
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:turns", signature=f"{signature}, 64, 64")
    waits = [f for f in report.kernels[0].findings if "prefetch" in f.message]
    assert bool(waits) == is_operand
