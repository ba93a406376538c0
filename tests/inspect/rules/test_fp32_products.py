"""Products of fp32 operands on CUDA cores are told where Triton can use tensor cores."""

import pytest

from tests.inspect.retried import Retried, allow
from tests.inspect.rules import findings_by
from tests.ptx.compiled_kernels import a_compiled
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.rules.occupancy import fp32_products
from traceview.kernels.toolchain.listings import code_of

FLOATS = "*fp32:16, *fp32:16, *fp32:16, i32:16, 32"


@pytest.fixture
def findings_on(triton_cache, monkeypatch):
    """The findings on `multiplied` of narrow_kernels.py with this precision."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import multiplied

    def found(precision, signature=FLOATS):
        tried = Retried(multiplied, f"{signature}, {precision!r}", with_ttgir=True, sass=False)
        return [each for each in tried.alone().findings if "matrix product" in each.message]

    return found


def test_full_precision_in_a_loop(findings_on):
    (finding,) = findings_on("ieee")
    assert finding.severity == "medium"
    assert finding.message == (
        "1 matrix product at narrow_kernels.py:108 runs on CUDA cores, not on tensor cores: fp32 "
        "operands at full precision (ieee)"
    )
    assert 'pass input_precision="tf32" to tl.dot; where 7 bits are enough' in finding.action


def test_the_remedy_ends_the_finding(findings_on):
    assert findings_on("tf32") == findings_on("tf32x3") == []
    assert findings_on("ieee", FLOATS.replace("*fp32", "*fp16")) == []


TTGIR = """#blocked = #ttg.blocked<{sizePerThread = [4, 4], threadsPerWarp = [4, 8]}>
#loc1 = loc("/home/user/k.py":7:4)
module {
  tt.func public @k() {
    %d = tt.dot %a, %b, %c : tensor<8x8xf32, #ttg.dot_op<{opIdx = 0, parent = #blocked}>> * \
tensor<8x8xf32, #ttg.dot_op<{opIdx = 1, parent = #blocked}>> -> tensor<8x8xf32, #blocked> loc(#loc1)
  }
}
"""


@pytest.mark.parametrize(("arch", "severities"), [("sm_90", ["low"]), ("sm_75", [])])
def test_outside_of_loops_and_before_tf32(arch, severities):
    ptx = f".version 8.7\n.target {arch}\n.visible .entry k() {{ ret; }}"
    compiled = a_compiled(ptx, arch=arch, stages={"ttgir": TTGIR})
    kernel = KernelContext(compiled, code_of(compiled, sass=False, ptxas=False))
    assert [each.severity for each in findings_by(fp32_products, kernel)] == severities


LOOP = """#blocked = #ttg.blocked<{sizePerThread = [4, 4], threadsPerWarp = [4, 8]}>
#loc1 = loc("/home/user/k.py":7:4)
module {
  tt.func public @k(%n: i32) {
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero, %other = %zero) -> (T, T) : i32 {
      %u = tt.load %at : tensor<8x8x!tt.ptr<f32>, #blocked>
      %scaled = arith.mulf %acc, %acc : tensor<8x8xf32, #blocked>
      %cast = ttg.convert_layout %scaled : tensor<8x8xf32, #blocked> -> tensor<8x8xf32, #blocked>
      %d = tt.dot LEFT, RIGHT, SUM : tensor<8x8xf32, #ttg.dot_op<{opIdx = 0, parent = #blocked}>> \
* tensor<8x8xf32, #ttg.dot_op<{opIdx = 1, parent = #blocked}>> -> tensor<8x8xf32, #blocked> \
loc(#loc1)
      %e = arith.addf %d, %d : tensor<8x8xf32, #blocked>
      scf.yield YIELDED : T, T
    }
  }
}
"""


@pytest.mark.parametrize("yielded", ["%d, %u", "%e, %u", "%u, %d"])
@pytest.mark.parametrize("operands", ["%u, %u, %acc", "%u, %cast, %zero", "%scaled, %u, %zero"])
def test_products_of_their_own_results_keep_their_precision(operands, yielded):
    left, right, total = operands.split(", ")
    text = LOOP.replace("LEFT", left).replace("RIGHT", right).replace("SUM", total)
    stages = {"ttgir": text.replace("YIELDED", yielded)}
    compiled = a_compiled(
        ".version 8.7\n.target sm_90\n.visible .entry k() { ret; }", stages=stages
    )
    kernel = KernelContext(compiled, code_of(compiled, sass=False, ptxas=False))
    (finding,) = findings_by(fp32_products, kernel)
    is_recurrent = "%u, %u" not in operands and yielded != "%u, %d"
    assert finding.severity == ("low" if is_recurrent else "medium")
    assert finding.action.startswith("Leave") == is_recurrent
