"""Reductions of whole tiles, whose size is then no free choice."""

import pytest

from traceview.kernels.ptx.ttgir.operations import TileReduction, tile_reductions
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

POINTERS = "*fp32:16, *fp32:16"


@pytest.mark.parametrize(
    ("name", "signature", "reductions"),
    [
        ("quantize_groups", f"{POINTERS}, *fp32:16, 512", [TileReduction(512, is_group=True)]),
        ("softmax", f"{POINTERS}, i32:16, i32:16, 256", 2 * [TileReduction(256, is_group=False)]),
        ("summed", f"{POINTERS}, i32:16, 256", []),
        ("summed_after", f"{POINTERS}, i32:16, 256", []),
        ("total", f"{POINTERS}, 256", []),
    ],
)
def test_a_tile_that_is_reduced_whole(compile_triton, name, signature, reductions):
    from tests.inspect.rules.shared_memory import looped_kernels
    from tests.ptx.kernels import reaches

    module = looped_kernels if hasattr(looped_kernels, name) else reaches
    made = compile_triton(getattr(module, name), signature, "sm_90")
    assert list(tile_reductions(parse_ttgir(made.ttgir))) == reductions
