"""Reductions that every block along an axis of the grid computes again."""

import pytest

import traceview

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def nearest(x, c, o, K, B: tl.constexpr):
    n = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, B)
    first = tl.program_id(1) * K
    points = tl.load(x + n[:, None] * B + d[None, :])
    best = tl.full([B], 3e38, tl.float32)
    for k in tl.range({start}, K, B):
        {guard}
            at = {at}
            tile = tl.load(c + at[None, :] * B + d[:, None])
            squares = tl.sum({summed}, axis=0).to(tl.float32)
            best = tl.minimum(best, tl.min(squares[None, :] - tl.dot(points, tile), axis=1))
    tl.store({to} + tl.program_id(1) * 4096 + n, best)
"""
USUAL = {
    "start": "0",
    "guard": "if True:",
    "at": "first + k + tl.arange(0, B)",
    "summed": "tile * tile",
    "to": "o",
}
CASES = [
    ({}, [0]),
    ({"at": "k + tl.arange(0, B)"}, [0, 1]),
    ({"at": "first + k + tl.arange(0, B) + tl.program_id(0)"}, []),
    ({"start": "tl.program_id(0) * B"}, []),
    ({"guard": "if tl.program_id(0) > k:"}, []),
    ({"summed": "tile * points"}, []),
    # What other blocks may have stored.
    ({"to": "c"}, []),
]


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize(("change", "axes"), CASES)
def test_reductions_that_do_not_depend_on_an_axis(tmp_path, change, axes, stages):
    (tmp_path / "k.py").write_text(KERNEL.format(**{**USUAL, **change}))
    report = traceview.inspect_ptx(
        f"{tmp_path}/k.py:nearest",
        signature="*fp16:16, *fp16:16, *fp16:16, i32:16, 64",
        num_stages=stages,
        budget_s=0.1,
    )
    found = [f for f in report.kernels[0].findings if "computes the reduction" in f.message]
    assert [each.evidence.values["axis"] for each in found] == axes
    text = (tmp_path / "k.py").read_text().splitlines()
    assert all("squares" in text[each.subject.line - 1] for each in found)
    assert {each.severity for each in found} <= {"medium"}
