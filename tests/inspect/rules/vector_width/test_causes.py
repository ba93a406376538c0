"""Which causes are put to the test at all."""

import pytest

from tests.ptx.compiled_kernels import a_compiled
from traceview.inspect.rules.vector_width.causes import too_few_elements
from traceview.ptx.model import Argument


@pytest.mark.parametrize(
    ("instruction", "factor", "sizes"),
    [
        ("ld.global.b8", 16, [2048]),
        ("wgmma.mma_async.sync.aligned.m64n128k16", 16, []),
        ("mma.sync.aligned.m16n8k16", 8, []),
        ("mma.sync.aligned.m16n8k16", 4, [512]),
        # mbarrier and the like multiply nothing.
        ("fence.mbarrier_init.comma", 16, [2048]),
    ],
)
def test_tiles_of_a_product_that_fit_nowhere_are_not_tried(instruction, factor, sizes):
    arguments = (Argument("BLOCK_M", "constexpr", value=128),)
    compiled = a_compiled(f"{instruction}.x %r1;", arguments=arguments, num_warps=1)
    causes = too_few_elements(compiled, factor, tiles=True)
    assert [cause.change.constexprs for cause in causes] == [(("BLOCK_M", n),) for n in sizes]
