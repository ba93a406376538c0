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
    assert finding.severity == "high"
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
