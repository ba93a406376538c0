"""Grids of more blocks than the data need."""

from importlib.util import find_spec

import pytest

import traceview

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
    ),
    pytest.mark.programs,
]
MASKED = """import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, y_ptr, last_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    {guard}
    rows = tl.program_id({rows}) * ROWS + tl.arange(0, ROWS)[:, None]
    at = tl.program_id({columns}) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (at < {bound}) & (rows < 4096)
    tl.store(y_ptr + rows * n + at, 2 * tl.load(x_ptr + rows * n + at, mask=mask), mask=mask)


x = torch.empty(4096 * 4096, device="cuda")
scaled[{grid}](x, torch.empty_like(x), x.int(), 4096, ROWS=4, BLOCK=256)
"""
TOO_MANY = [(1024, 4096), (4096, 16), (4096, 4096), (1024, 40)]
AS_MANY = [(1024, 16), (1024, 17), (1100, 16), (1024, 24)]


@pytest.mark.parametrize("grid", TOO_MANY + AS_MANY, ids=str)
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 1)], ids=str)
def test_a_grid_that_ignores_the_size_of_its_blocks(tmp_path, grid, axes):
    sizes = [1, 1, 1]
    for axis, blocks in zip(axes, grid, strict=True):
        sizes[axis] = blocks
    found = masked(tmp_path, sizes, rows=axes[0], columns=axes[1])
    assert bool(found) == (grid in TOO_MANY)
    for finding in found:
        blocks = grid[0] * grid[1]
        assert f"spread over a grid of {blocks:,}, " in finding.message
        share = finding.evidence.values["idle_blocks"] / finding.evidence.values["sampled_blocks"]
        assert share == pytest.approx(1 - 1024 * 16 / blocks, abs=0.12)


@pytest.mark.parametrize(
    ("bound", "guard"),
    [
        ("tl.load(last_ptr)", ""),
        ("n", "tl.atomic_add(last_ptr, 1)"),
        ("n", "tl.store(last_ptr + tl.program_id(0), 1)"),
    ],
    ids=["a loaded bound", "a ticket", "a flag"],
)
def test_blocks_that_may_store_are_not_told(tmp_path, bound, guard):
    assert not masked(tmp_path, [4096, 4096, 1], bound=bound, guard=guard)


def masked(tmp_path, grid, bound="n", guard="", rows=0, columns=1):
    path = tmp_path / "script.py"
    names = {"bound": bound, "guard": guard, "rows": rows, "columns": columns}
    path.write_text(MASKED.format(grid=tuple(grid), **names))
    (kernel,) = traceview.inspect_ptx(path).kernels
    return [f for f in kernel.findings if "store nothing" in f.message]
