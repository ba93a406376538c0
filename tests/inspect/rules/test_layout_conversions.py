"""A finding on layout conversions only where the hottest loop pays for them."""

import pytest

from tests.inspect.rules import findings_by
from tests.ptx.compiled_kernels import a_compiled
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.rules.shared_memory import layout_conversions_in_loops
from traceview.kernels.toolchain.listings import code_of

ROWS = (
    "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], "
    "order = [1, 0]}>"
)
COLUMNS = (
    "#ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 2], warpsPerCTA = [1, 4], "
    "order = [0, 1]}>"
)
TTGIR = f"""#rows = {ROWS}
#columns = {COLUMNS}
#loc = loc("/home/user/k.py":1:0)
#loc1 = loc("/home/user/k.py":7:4)
#loc2 = loc("/home/user/k.py":9:4)
module {{
  tt.func public @k(%n: i32 loc("n"(#loc))) attributes {{noinline = false}} {{
    %x = arith.constant dense<0.0> : tensor<SIZExf32, #rows> loc(#loc2)
    %c = arith.constant 0 : i32 loc(#loc2)
    OUTSIDE
    %r = scf.for %i = %c to %n step %c iter_args(%a = %x) -> (tensor<SIZExf32, #rows>) : i32 {{
      INSIDE
      scf.yield %a : tensor<SIZExf32, #rows> loc(#loc1)
    }} loc(#loc1)
    tt.return loc(#loc)
  }} loc(#loc)
}}
"""
CONVERT = "%y = ttg.convert_layout %x : tensor<SIZExf32, #rows> -> tensor<SIZExf32, TO> loc(#LOC)"
PTX = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {
.loc 1 7 1
AGAIN: fma.rn.f32 %f1, %f2, %f3, %f1;
@%p1 bra AGAIN;
.loc 1 9 1
fma.rn.f32 %f1, %f2, %f3, %f1;
ret;
}
.file 1 "/home/user/k.py"
"""


def findings(inside="", outside="", size="64x64", to="#columns", loc="loc1"):
    text = TTGIR.replace("INSIDE", inside).replace("OUTSIDE", outside)
    text = text.replace("LOC", loc).replace("SIZE", size).replace("TO", to)
    compiled = a_compiled(PTX, stages={"ttgir": text})
    kernel = KernelContext(compiled, code_of(compiled, sass=False, ptxas=False))
    return kernel.layout_conversions, findings_by(layout_conversions_in_loops, kernel)


def test_a_conversion_in_the_hottest_loop_is_told_with_its_bytes():
    (conversion,), (finding,) = findings(CONVERT)
    assert (conversion.path, conversion.loop_depth) == ("shared memory", 1)
    assert finding.severity == "low"
    assert finding.message == (
        "1 layout conversion in the hottest loop, at k.py:7, moves 16.4 kB per iteration and "
        "block through shared memory"
    )
    assert finding.evidence.basis == "TTGIR: blocked 1×4 → blocked 4×1"


@pytest.mark.parametrize(
    "where",
    [
        {"outside": CONVERT, "loc": "loc2"},
        {"outside": CONVERT},
        {"inside": CONVERT, "to": "#rows"},
        {"inside": CONVERT, "size": "16x16"},
        {"inside": CONVERT, "to": "#ttg.dot_op<{opIdx = 0, parent = #columns}>"},
    ],
    ids=["outside", "outside, same line", "no move", "small", "operand"],
)
def test_what_costs_nothing_there_is_not_told(where):
    conversions, found = findings(**where)
    assert len(conversions) == 1
    assert found == []


def test_without_ttgir_there_is_nothing():
    compiled = a_compiled(PTX)
    kernel = KernelContext(compiled, code_of(compiled, sass=False, ptxas=False))
    assert kernel.layout_conversions == ()
    assert findings_by(layout_conversions_in_loops, kernel) == []
