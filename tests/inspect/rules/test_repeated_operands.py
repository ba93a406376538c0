"""Operands of products whose elements are loaded several times, as packed weights often are."""

import pytest

import traceview

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def product(
    a, b, c, K, N, PACKED: tl.constexpr, GROUP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros([BM, BN], tl.float32)
    {before}
    for i in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + i + k[None, :])
        word = {load}
        bits = ((k % PACKED) * (32 // PACKED))[:, None]
        sums += tl.dot(left, ((word >> bits) & 15).to(tl.float16))
        {after}
    tl.store(c + m[:, None] * N + n[None, :], sums)
"""
WHOLE = "b + (i + k)[:, None] // PACKED * N + n[None, :] // GROUP"
FORMS = {
    "computed": ("pass", f"tl.load({WHOLE})", "pass"),
    "carried": (
        "at = b + k[:, None] // PACKED * N + n[None, :] // GROUP",
        "tl.load(at)",
        "at += BK // PACKED * N",
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("packed", "group"), [(1, 1), (4, 1), (8, 1), (1, 8), (8, 4)])
def test_packed_words_are_loaded_once_per_element(tmp_path, form, packed, group):
    before, load, after = FORMS[form]
    (tmp_path / "k.py").write_text(KERNEL.format(before=before, load=load, after=after))
    signature = f"*fp16:16, *i32:16, *fp32:16, i32:16, i32:16, {packed}, {group}, 64, 64, 64"
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:product", signature=signature, budget_s=0.1)
    found = [f for f in report.kernels[0].findings if "is loaded" in f.message]
    assert len(found) == (packed * group > 1)
    for finding in found:
        assert f"is loaded {packed * group} times" in finding.message
        assert f"in a tile {packed * group} times as small" in finding.action
        assert finding.severity == "medium"
        text = (tmp_path / "k.py").read_text().splitlines()
        assert "word = " in text[finding.subject.line - 1]
