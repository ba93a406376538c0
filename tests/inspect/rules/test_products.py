"""Tiles of products that leave Hopper's tensor cores waiting."""

import pytest

import traceview

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros([BM, BN], tl.float32)
    for i in tl.range(0, K, BK):
        left = tl.load(a + m[:, None] * K + i + k[None, :])
        right = {right}
        sums = tl.dot(left, right, sums)
{more}
    tl.store(c + m[:, None] * N + n[None, :], sums)
"""
RIGHT = "tl.load(b + (i + k)[:, None] * N + n[None, :])"
TURNED = "tl.trans(tl.load(b + n[:, None] * K + i + k[None, :]))"
AGAIN = "        sums = tl.dot(left, right * 2, sums)"
CLAIMS = {
    "two buffers": "have only two buffers",
    "few terms": "multiplies only 32 columns",
    "shared rows": "8 warps share a tile of only 64 rows",
}


def found(tmp_path, tile, warps, stages, right=RIGHT, more="", budget=0.1, element="fp16"):
    (tmp_path / "k.py").write_text(KERNEL.format(right=right, more=more))
    signature = f"*{element}:16, *{element}:16, *fp32:16, i32:16, i32:16, "
    report = traceview.inspect_ptx(
        f"{tmp_path}/k.py:product",
        signature=signature + ", ".join(map(str, tile)),
        num_warps=warps,
        num_stages=stages,
        budget_s=budget,
    )
    findings = report.kernels[0].findings
    return {n: f for n, text in CLAIMS.items() for f in findings if text in f.message}


@pytest.mark.parametrize("right", [RIGHT, TURNED], ids=["rows", "columns"])
@pytest.mark.parametrize(
    ("tile", "warps", "stages", "claims"),
    [
        ((128, 128, 64), 8, 3, []),
        ((128, 128, 64), 8, 2, ["two buffers"]),
        ((128, 128, 32), 4, 4, ["few terms"]),
        ((128, 256, 32), 8, 2, ["two buffers", "few terms"]),
        ((64, 128, 64), 8, 3, ["shared rows"]),
        # More blocks fit an SM, and overlap.
        ((64, 64, 64), 4, 2, []),
        ((32, 64, 32), 4, 2, []),
    ],
)
def test_tiles_of_products(tmp_path, right, tile, warps, stages, claims):
    listed = found(tmp_path, tile, warps, stages, right)
    assert list(listed) == claims
    assert {finding.severity for finding in listed.values()} <= {"low"}


def test_a_loop_with_another_product_or_wider_elements_has_other_limits(tmp_path):
    assert not found(tmp_path, (128, 128, 32), 8, 3, more=AGAIN)
    assert not found(tmp_path, (64, 64, 32), 4, 3, element="fp32")


def test_more_buffers_and_terms_are_tried(tmp_path):
    listed = found(tmp_path, (128, 128, 32), 8, 2, budget=60)
    assert listed["two buffers"].action == "Use num_stages=3, and measure it"
    assert listed["few terms"].action == "Use BK=64 if BK only sets the tile, and measure it"
    assert "fits an SM and spills no more" in listed["few terms"].evidence.basis
