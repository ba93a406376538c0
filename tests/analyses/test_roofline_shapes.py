"""Work told by the program itself, recorded for real: tensor shapes, and ranges that declare it."""

import pytest

from traceview.traces.analyses import roofline
from traceview.traces.trace.load import load

ONE_PRODUCT = 2 * 4096 * 2048 * 8192
GIB = 1 << 30


@pytest.fixture(scope="module")
def rows(unpack):
    return list(roofline.compute(load(unpack("shapes"))).tables["kernels"].rows())


def test_products_have_the_flop_of_their_shapes(rows):
    """Three times mm, bmm and the product of the backward pass; three times the linear layer."""
    told = sorted(
        (row["flop"], row["bytes"] // row["calls"] >> 20)
        for row in rows
        if row["basis"] == "tensor shapes"
    )
    # One kernel does three of them. A batch of thin products moves more than one product that
    # takes as many FLOP, so they are not alike.
    assert told == [(3 * ONE_PRODUCT, 112), (3 * ONE_PRODUCT, 208), (6 * ONE_PRODUCT, 112)]


def test_a_range_declares_bytes_and_flop(rows):
    """GELU of 2²⁸ floats declares both; ReLU its bytes by a payload, its FLOP by their ratio."""
    declared = sorted((row["bytes"], row["flop"]) for row in rows if row["basis"] == "declared")
    assert declared == [(2 * GIB, GIB // 4), (2 * GIB, 13 * GIB // 4)]
    assert {row["bound"] for row in rows if row["basis"] == "declared"} == {"memory"}
