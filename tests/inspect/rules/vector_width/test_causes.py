"""Which causes are put to the test at all."""

from dataclasses import replace

import pytest

from tests.ptx.compiled_kernels import a_compiled
from traceview.kernels.inspect.recompilations import Outcome
from traceview.kernels.inspect.rules.vector_width.causes import NarrowReason, too_few_elements
from traceview.kernels.inspect.rules.vector_width.proven import _lost
from traceview.kernels.ptx.model import Argument


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


def reason(cause, **others):
    return NarrowReason(cause, "Transpose the data", "basis", **others)


@pytest.mark.parametrize(
    ("causes", "joined"),
    [
        (
            ["apart by sx, that is all", "apart by sy, that is all"],
            "apart by sx or sy, that is all",
        ),
        (["apart by a", "apart by b", "apart by c"], "apart by a, b or c"),
        ([f"apart by {name}" for name in "abcde"], "apart by a, b, c or 2 more"),
        (["apart by a", "apart by a"], "apart by a"),
        (["apart by a", "far by b"], None),
        (["apart by a", "apart by the other"], None),
    ],
)
def test_causes_that_differ_in_a_name_are_one(causes, joined):
    first, *others = map(reason, causes)
    found = first.joined(others)
    assert (found and found.cause) == joined


def test_causes_of_other_remedies_or_of_trials_stay_apart():
    one, other = reason("apart by a"), reason("apart by b")
    assert one.joined([replace(other, remedy="Pad n")]) is None
    assert one.joined([replace(other, widened_bits=128)]) is None
    assert one.joined([replace(other, proven=True)]) is None


ROWS = """@triton.jit
def k(x, y, n, rows, BLOCK: tl.constexpr):
    {advance}
    at = {start} + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32) + tl.load(x + at, mask=at < n)
    tl.store(y + at, total, mask=at < n)
"""


@pytest.mark.parametrize(
    ("advance", "start", "is_row"),
    [
        ("row = tl.program_id(0)", "row * n", True),
        ("for row in range(tl.program_id(0), rows, 4):\n        pass", "row * n", True),
        ("row = tl.program_id(0)", "row * BLOCK", False),
        ("start = tl.program_id(0) * (BLOCK * 4)", "start", False),
        ("start = first_of(tl.program_id(0), BLOCK)", "start", False),
        ("for start in range(0, n, BLOCK):\n        pass", "start", False),
    ],
)
@pytest.mark.parametrize("place", ["launch", "source_text", None])
def test_the_tile_of_a_whole_row_is_not_enlarged(advance, start, is_row, place):
    text = ROWS.format(advance=advance, start=start)
    known = {"launch": {"source": text}, "source_text": text}
    arguments = (Argument("BLOCK", "constexpr", value=128),)
    changes = {place: known[place]} if place else {}
    compiled = a_compiled("ld.global.b32 %r1;", arguments=arguments, num_warps=1, **changes)
    causes = list(too_few_elements(compiled, 4, tiles=True))
    assert bool(causes) != (is_row and place is not None)


OPS = {
    "mma": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
    "wgmma": "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
    "none": "ret;",
}


@pytest.mark.parametrize("before", OPS)
@pytest.mark.parametrize("after", OPS)
def test_newer_tensor_cores_are_no_loss(before, after):
    head = ".version 8.7\n.target sm_90a\n.visible .entry k() {\n"
    old, new = (Outcome(a_compiled(f"{head}{OPS[each]}\n}}")) for each in (before, after))
    order = ["none", "mma", "wgmma"]
    assert bool([*_lost(old, new)]) == (order.index(after) < order.index(before))
