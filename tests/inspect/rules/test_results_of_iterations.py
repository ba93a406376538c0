"""Reductions whose result each iteration of a loop stores, and loads that an if hides."""

import pytest

import traceview

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def rows(x, y, o, n, B: tl.constexpr):
    at = tl.arange(0, B)
    kept = {start}
    for row in range(n):
        {guard}
            a = tl.load(x + row * B + at)
            total = tl.{reduce}(a * a, axis=0)
            {body}
    {end}
"""
USUAL = {
    "start": "0",
    "guard": "if True:",
    "reduce": "sum",
    "body": "tl.store(o + row, total)",
    "end": "pass",
}
# What is changed of a kernel, and whether its reduction is of each iteration alone.
CASES = [
    ({}, True),
    ({"reduce": "max"}, True),
    ({"body": "tl.store(o + row, tl.sqrt(total) * 2)"}, True),
    # The row needs it, whatever else is done at once.
    ({"body": "tl.store(y + row * B + at, a / total)"}, False),
    # A running value, which the next iteration needs.
    (
        {
            "start": "tl.zeros([1], tl.float32)",
            "body": "kept = kept * 0.5 + total; tl.store(o + row + tl.arange(0, 1), kept)",
        },
        False,
    ),
    ({"start": "0.0", "body": "kept += total", "end": "tl.store(o, kept)"}, False),
]


def findings_of(tmp_path, change, size, warps):
    (tmp_path / "k.py").write_text(KERNEL.format(**{**USUAL, **change}))
    report = traceview.inspect_ptx(
        f"{tmp_path}/k.py:rows",
        signature=f"*fp32:16, *fp32:16, *fp32:16, i32, {size}",
        num_warps=warps,
        budget_s=0.1,
    )
    return report.kernels[0].findings


@pytest.mark.parametrize(("size", "warps"), [(64, 4), (1024, 8), (128, 1), (4096, 8)])
@pytest.mark.parametrize(("change", "is_own"), CASES)
def test_a_reduction_that_each_iteration_stores(tmp_path, change, is_own, size, warps):
    findings = findings_of(tmp_path, change, size, warps)
    said = [f for f in findings if "that iteration's own" in f.message]
    assert bool(said) == (is_own and warps > 1 and size < 4096), findings
    for each in said:
        assert "a tile of two axes" in each.action
        assert "if no iteration loads what one before it stored" in each.action
        assert each.severity == "low"


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("guard", ["if row > n // 2:", "if (row >= 3) & (row < 77):"])
def test_a_loop_whose_loads_an_if_hides_is_not_pipelined(tmp_path, size, guard):
    for change, is_hidden in (({"guard": guard}, True), ({}, False)):
        findings = findings_of(tmp_path, change, size, 1)
        (said,) = (f for f in findings if "waits for its loads" in f.message)
        assert ("under a mask in place of the if" in said.action) == is_hidden
        assert "num_stages=4" in said.action
