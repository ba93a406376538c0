"""Axes of a grid that the kernel does not read, and grids of more blocks than the data need."""

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
def copy(x_ptr, y_ptr, count_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0)
    second = tl.program_id({axis})
    at = {at} * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x, mask=at < n)


x = torch.empty(1 << 20, device="cuda")
copy[{grid}](x, x, x.int(), 1 << 20, BLOCK=1024)
"""
IGNORED = {
    "second": ("1", "first", "(1024, 3)", 1, 3),
    "named": ("axis=1", "first", "(1024, 2, 1)", 1, 2),
    "third": ("2", "first", "(1024, 1, 5)", 2, 5),
    "first": ("axis=1", "second", "(4, 1024)", 0, 4),
    "not read at all": ("0", "second", "(1024, 7)", 1, 7),
}
USED = {
    "both": ("1", "(first + second)", "(1024, 3)"),
    "one block": ("1", "first", "(1024, 1)"),
    "a ticket instead": ("0", "tl.atomic_add(count_ptr, 1)", "(1024, 3)"),
}


def axes(path, **options):
    (kernel,) = traceview.inspect_ptx(path, **options).kernels
    return [f for f in kernel.findings if "axis" in f.evidence.values]


@pytest.mark.parametrize(("read", "at", "grid", "axis", "blocks"), IGNORED.values(), ids=IGNORED)
def test_an_axis_of_the_grid_that_is_ignored_is_told_once(tmp_path, read, at, grid, axis, blocks):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(axis=read, at=at, grid=grid))
    (finding,) = axes(path)
    assert finding.severity == "low"
    assert finding.message == (
        f"The kernel ignores axis {axis} of its grid: the {blocks} blocks along it do the same work"
    )


@pytest.mark.parametrize(("read", "at", "grid"), USED.values(), ids=USED)
def test_an_axis_that_is_used_is_not(tmp_path, read, at, grid):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(axis=read, at=at, grid=grid))
    assert not axes(path)


@pytest.mark.parametrize(("at", "told"), [("first", True), ("(first + second)", False)])
def test_without_a_launch_the_unused_name_is(tmp_path, at, told):
    path = tmp_path / "script.py"
    text = SCRIPT.format(axis="axis=1", at=at, grid="(1024, 3)").partition("\n\n\nx =")[0]
    path.write_text(text)
    found = axes(path)
    assert [f.severity for f in found] == ["info"] * told
    if told:
        assert found[0].subject.line == 9
        assert "tl.program_id(1) at script.py:9 is never used" in found[0].message


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
