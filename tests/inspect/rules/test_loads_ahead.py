"""Loops that load for the next iteration before they use what the last one loaded."""

from importlib.util import find_spec

import pytest

import traceview

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
    ),
    pytest.mark.programs,
]
SCRIPT = """import torch
import triton
import triton.language as tl


@triton.jit
def total(x_ptr, w_ptr, y_ptr, n, B: tl.constexpr):
    i = {tile}
    s = tl.zeros({shape}, tl.float32)
{body}
    tl.store(y_ptr + i, s)


x = torch.empty(1 << 20, device="cuda", dtype=torch.{type})
total[({blocks},)](x, x, x.float(), 64, B={side}, num_stages=1)
"""
ROWS = {
    "sum": ("tl.arange(0, B)", "[B]", "float32", 1024, "s * 0.5 + {}"),
    "product": (
        "tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]",
        "[B, B]",
        "float16",
        64,
        "tl.dot({0}, {0}, s)",
    ),
}
# Step by step: what is loaded before the loop, and in it.
AHEAD = {
    "before the use": ["now = later", "later = LOAD", "s = USE(now)"],
    "after the use": ["s = USE(later)", "later = LOAD"],
    "two ahead": ["now = later", "later = third", "third = LOAD", "s = USE(now)"],
}
WAITS = {
    "at once": ["later = LOAD", "s = USE(later)"],
    "and kept": ["now = later", "later = LOAD", "s = USE(now + later)"],
}


def waiting(path, form, steps, blocks=4):
    tile, shape, kind, side, use = ROWS[form]
    lines = ["later = tl.load(x_ptr + i)", "third = tl.load(w_ptr + i)", "for k in range(2, n):"]
    for step in steps:
        value = step.partition("USE(")[2].rstrip(")")
        used = step.replace(f"USE({value})", use.format(f"({value})")) if value else step
        lines.append("    " + used.replace("LOAD", f"tl.load(x_ptr + k * {side} + i)"))
    body = "\n".join(f"    {line}" for line in lines)
    path.write_text(
        SCRIPT.format(tile=tile, shape=shape, type=kind, side=side, body=body, blocks=blocks)
    )
    (kernel,) = traceview.inspect_ptx(path).kernels
    words = ("waits for", "without prefetching")
    return [f for f in kernel.findings if any(word in f.message for word in words)]


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("steps", AHEAD.values(), ids=AHEAD)
def test_a_loop_that_loads_ahead_by_hand_is_not_told_to(tmp_path, form, steps):
    assert not waiting(tmp_path / "script.py", form, steps)


@pytest.mark.parametrize("steps", WAITS.values(), ids=WAITS)
def test_a_loop_that_uses_what_it_loads_still_is(tmp_path, steps):
    assert waiting(tmp_path / "script.py", "sum", steps)


@pytest.mark.parametrize(("blocks", "is_first"), [(4, True), (131, True), (132, False)])
def test_a_grid_that_leaves_sms_idle_is_split_first(tmp_path, blocks, is_first):
    (finding,) = waiting(tmp_path / "script.py", "sum", WAITS["at once"], blocks)
    assert finding.action.startswith("Split the loop over more blocks") == is_first
    assert "split the loop over more blocks" in finding.action.lower()
    assert "tl.range" in finding.action
