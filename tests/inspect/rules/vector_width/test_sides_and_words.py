"""Which sides of a tile may grow, and words of several parts, in the forms that kernels use."""

import pytest

import traceview

pytest.importorskip("triton")

SMALL = """
import triton
import triton.language as tl

@triton.jit
def small(x, y, n, {rows}: tl.constexpr, {columns}: tl.constexpr, FORMAT: tl.constexpr):
    number = tl.program_id(0)
    {first}
    at = (first + tl.arange(0, {rows}))[:, None] * FORMAT + tl.arange(0, FORMAT)[None, :]
    other = tl.program_id(1) * {columns} + tl.arange(0, {columns})
    for k in range(0, n):
        tile = tl.load(x + k * 65536 + at)
        tl.store(y + k * 65536 + at + tl.sum(other) * 0, tile)
"""


@pytest.mark.parametrize(
    ("first", "grows"),
    [
        ("first = number * {rows}", True),
        ("row = number % 64; first = {rows} * row", True),
        ("row = tl.minimum(number // 8, n); first = row * {rows}", True),
        ("first = number * 2", False),
    ],
)
@pytest.mark.parametrize(
    ("rows", "columns"), [("BLOCK_M", "BLOCK_N"), ("TILE_R", "TILE_C"), ("WIDTH", "DEPTH")]
)
def test_the_sides_along_which_blocks_advance(tmp_path, first, grows, rows, columns):
    names = {"rows": rows, "columns": columns}
    (tmp_path / "k.py").write_text(SMALL.format(first=first.format(**names), **names))
    signature = "*fp16:16, *fp16:16, i32, 2, 4, 32"
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:small", signature=signature, budget_s=0.1)
    actions = [f.action for f in report.kernels[0].findings if "is too small" in f.message]
    assert actions
    for each in actions:
        # A size of the data does not grow.
        assert (f"larger block ({rows})" in each) == (grows and rows != "WIDTH")
        assert "FORMAT" not in each
        assert columns not in each.partition("larger block")[2].partition(",")[0]


PACKED = """
import triton
import triton.language as tl

@triton.jit
def parts(w, y, n, pitch, step, B: tl.constexpr):
    at, row = tl.arange(0, B), tl.program_id(0) * 16 + tl.arange(0, 16)
    for k in range(0, n):
        word = tl.load({place})
        bits = (word >> ((at % {parts}) * {bits})[None, :]) & {mask}
        tl.store(y + k * 65536 + row[:, None] * B + at[None, :], bits)
"""
PLACES = ["w + k * 65536 + row[:, None] * {0} + {1}", "w + row[:, None] * {0} + (k + {1}) * step"]


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("divide", ["//", ">>"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("size", "is_repeated"), [(8, False), (256, True)])
def test_parts_of_a_word_that_one_thread_has(tmp_path, parts, divide, place, size, is_repeated):
    by = {"//": f"(at // {parts})[None, :]", ">>": f"(at >> {parts.bit_length() - 1})[None, :]"}
    bits = 8 // parts
    place = place.format("pitch", by[divide])
    text = PACKED.format(place=place, parts=parts, bits=bits, mask=(1 << bits) - 1)
    (tmp_path / "k.py").write_text(text)
    signature = f"*u8:16, *u8:16, i32, i32:16, i32, {size}"
    report = traceview.inspect_ptx(f"{tmp_path}/k.py:parts", signature=signature, budget_s=0.1)
    (said,) = (f for f in report.kernels[0].findings if f.message.startswith("Global loads"))
    once = "once, in a tile without the repetition" in said.action
    assert once == is_repeated, said
    assert not (once and "Leave the width" in said.action)
