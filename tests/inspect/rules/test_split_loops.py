"""Loops that blocks share, with sums by atomics: more blocks than there are tiles."""

import pytest

import traceview

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def shared(x, w, o, N, {length}, B: tl.constexpr, S: tl.constexpr):
    number = tl.program_id({axis})
    at = tl.arange(0, B) + {first}
    total = tl.zeros((B,), tl.float32)
    for k in range(0, {length}, B * S):
        a = tl.load(x + k + at, mask={mask}, other=0.0)
        total += a * tl.load(w + k + at, mask={mask}, other=0.0)
    {end}
"""
USUAL = {
    "length": "K",
    "axis": 0,
    "first": "number * B",
    "mask": "k + at < K",
    "end": "tl.atomic_add(o, tl.sum(total))",
}
CASES = [
    ({}, True),
    ({"axis": 1, "length": "size", "mask": "(at < size - k)"}, True),
    ({"first": "B * number"}, True),
    ({"end": "if number * B < K: tl.atomic_add(o, tl.sum(total))"}, False),
    ({"end": "tl.store(o + number, tl.sum(total))"}, False),
    ({"first": "number * N"}, False),
    ({"mask": "at < N"}, False),
]


@pytest.mark.parametrize(("block", "parts", "is_long"), [(256, 64, True), (128, 8, False)])
@pytest.mark.parametrize(("change", "is_shared"), CASES)
def test_blocks_that_only_add_zeros(tmp_path, change, is_shared, block, parts, is_long):
    text = KERNEL.format(**{**USUAL, **change})
    (tmp_path / "k.py").write_text(text)
    report = traceview.inspect_ptx(
        f"{tmp_path}/k.py:shared",
        signature=f"*fp32:16, *fp32:16, *fp32:16, i32, i32:16, {block}, {parts}",
        budget_s=0.1,
    )
    said = [f for f in report.kernels[0].findings if "only add zeros" in f.message]
    assert len(said) == (is_shared and is_long)
    for each in said:
        name = change.get("length", "K")
        assert f"{parts} blocks along axis {change.get('axis', 0)}" in each.message
        assert f"triton.cdiv({name}, {block})" in each.action
        assert each.severity == "low"
