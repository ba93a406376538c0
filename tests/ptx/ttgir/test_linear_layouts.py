"""Who holds which element: against the definitions of blocked layouts and of PTX fragments."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.kernels.ptx.ttgir.layouts import bases_of, elements

MMA = "#ttg.nvidia_mma<{versionMajor = 2, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
WGMMA = (
    "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], "
    "instrShape = [16, 64, 16]}>"
)


def held(layout, shape):
    """The set of elements of each thread, by warp and lane."""
    places = elements(bases_of(layout, shape), shape)
    return {
        (warp, lane): {tuple(map(int, np.unravel_index(p, shape))) for p in places[warp, lane]}
        for warp, lane in product(range(places.shape[0]), range(32))
    }


@st.composite
def blocked(draw):
    lanes_in_rows = draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    warps_in_rows = draw(st.sampled_from([1, 2, 4]))
    sizes = [draw(st.sampled_from([1, 2, 4, 8])) for _ in range(2)]
    order = draw(st.sampled_from([(0, 1), (1, 0)]))
    shape = tuple(draw(st.sampled_from([1, 2, 8, 32, 64])) for _ in range(2))
    return (
        sizes,
        [lanes_in_rows, 32 // lanes_in_rows],
        [warps_in_rows, 4 // warps_in_rows],
        order,
        shape,
    )


@settings(max_examples=40)
@given(blocked())
def test_a_blocked_layout_is_its_definition(drawn):
    sizes, lanes, warps, order, shape = drawn
    layout = (
        f"#ttg.blocked<{{sizePerThread = {sizes}, threadsPerWarp = {lanes}, "
        f"warpsPerCTA = {warps}, order = {list(order)}}}>"
    )
    expected = {key: set() for key in product(range(4), range(32))}
    tile = [s * t * w for s, t, w in zip(sizes, lanes, warps, strict=True)]
    # Threads beyond a small tensor hold what those within it do.
    for i, j in product(range(max(shape[0], tile[0])), range(max(shape[1], tile[1]))):
        at = [i, j]
        lane = [at[d] // sizes[d] % lanes[d] for d in (0, 1)]
        warp = [at[d] // (sizes[d] * lanes[d]) % warps[d] for d in (0, 1)]
        fast, slow = order
        key = (warp[fast] + warp[slow] * warps[fast], lane[fast] + lane[slow] * lanes[fast])
        expected[key].add((i % shape[0], j % shape[1]))
    assert held(layout, shape) == expected


def fragment(rows, columns):
    """The elements of a lane by the PTX manual: functions of lane and register."""
    return lambda lane, registers: {(rows(lane, i), columns(lane, i)) for i in range(registers)}


ACCUMULATOR = fragment(lambda t, i: t // 4 + 8 * (i // 2), lambda t, i: t % 4 * 2 + i % 2)
OPERAND_A = fragment(
    lambda t, i: t // 4 + 8 * (i // 2 % 2), lambda t, i: t % 4 * 2 + i % 2 + 8 * (i // 4)
)
OPERAND_B = fragment(lambda t, i: t % 4 * 2 + i % 2 + 8 * (i // 2), lambda t, i: t // 4)


def test_accumulators_are_those_of_the_ptx_manual():
    threads = held(MMA, (32, 16))
    for (warp, lane), found in threads.items():
        row, column = divmod(warp, 2)
        assert found == {(r + 16 * row, c + 8 * column) for r, c in ACCUMULATOR(lane, 4)}
    for (warp, lane), found in held(WGMMA, (64, 64)).items():
        expected = {(r + 16 * warp, c + 8 * n) for r, c in ACCUMULATOR(lane, 4) for n in range(8)}
        assert found == expected


@pytest.mark.parametrize("parent", [MMA, WGMMA])
def test_operands_are_those_of_the_ptx_manual(parent):
    operand = f"#ttg.dot_op<{{opIdx = 0, parent = {parent}, kWidth = 2}}>"
    for (warp, lane), found in held(operand, (64, 32)).items():
        tiles = [warp] if parent is WGMMA else [warp // 2, warp // 2 + 2]
        expected = {
            (r + 16 * m, c + 16 * k) for m in tiles for k in (0, 1) for r, c in OPERAND_A(lane, 8)
        }
        assert found == expected


def test_the_other_operand_is_that_of_the_ptx_manual():
    operand = f"#ttg.dot_op<{{opIdx = 1, parent = {MMA}, kWidth = 2}}>"
    for (warp, lane), found in held(operand, (16, 16)).items():
        assert found == {(r, c + 8 * (warp % 2)) for r, c in OPERAND_B(lane, 4)}


def test_a_slice_drops_an_axis_and_a_linear_layout_is_as_written():
    parent = (
        "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], "
        "order = [1, 0]}>"
    )
    rows = held(f"#ttg.slice<{{dim = 1, parent = {parent}}}>", (32,))
    assert rows[2, 13] == {(16 + 13 // 4,)}
    linear = (
        "#ttg.linear<{register = [[1], [64]], lane = [[2], [4], [8], [16], [32]], "
        "warp = [[0], [0]], block = []}>"
    )
    assert held(linear, (128,))[3, 5] == {(10,), (11,), (74,), (75,)}


def test_what_is_not_understood_is_none():
    assert bases_of("#ttg.swizzled_shared<{vec = 8}>", (64, 64)) is None
    assert bases_of("#ttg.linear<{register = []}>", (48,)) is None
    assert bases_of("", ()) is None
    assert bases_of("#ttg.blocked<{sizePerThread = [4]}>", (64,)) is None
    assert bases_of("#ttg.blocked<{sizePerThread = [4], order = [7]}>", (64,)) is None
    endless = f"sizePerThread = [{2**60}], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]"
    assert bases_of(f"#ttg.blocked<{{{endless}}}>", (64,)) is None
    assert bases_of("#ttg.linear<{register = [[1, 2]]}>", (64,)) is None
