"""The last wave of a grid: its idle share, what would fill it, and what is left unsaid."""

import pytest

from tests.inspect.rules import findings_by
from tests.ptx.compiled_kernels import a_compiled
from traceview.base.hardware import limits_of, occupancy
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import SmCount, sm_count_of
from traceview.kernels.inspect.rules.occupancy import tail_wave
from traceview.kernels.toolchain.listings import Code

# 128 threads of 32 registers: 16 blocks an SM of 9.0.
SIXTEEN = occupancy(limits_of("9.0"), 128, 32)


SMS = SmCount(132)
NO_CODE = Code(None, None, None, (), ())


def found(blocks, sms=SMS, known=SIXTEEN):
    compiled = a_compiled(grid=(blocks, 1, 1))
    return findings_by(tail_wave, KernelContext(compiled, NO_CODE, (), known, sms))


def test_a_tail_by_hand():
    """16 × 132 = 2,112 blocks at once; 2,640 are 1.25 waves of 2: 37.5 % of 4,224 are empty."""
    (finding,) = found(2640)
    assert finding.severity == "low"
    assert "1.25 waves: 37.5 % of the block slots stay unused" in finding.message
    assert "1,584 more blocks would fill it" in finding.message
    assert finding.evidence.values["blocks_per_wave"] == 2112
    assert finding.evidence.basis == "2,640 blocks, 16 at once on each of 132 SMs"


@pytest.mark.parametrize(
    ("blocks", "severity"),
    [(2112, None), (2 * 2112, None), (10 * 2112 + 1, None), (8 * 2112 + 211, "info")],
)
def test_only_a_tail_that_weighs_is_told(blocks, severity):
    findings = found(blocks)
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_a_grid_smaller_than_the_gpu():
    (finding,) = found(4)
    assert "only 4 blocks, so 128 of 132 SMs stay idle" in finding.message
    assert "only 1 block, so 131 of" in found(1)[0].message


def test_a_persistent_grid_is_no_tail():
    assert found(132) == found(264) == []


def test_nothing_is_said_of_what_is_not_known():
    assert found(2640, sms=None) == found(2640, known=None) == found(0) == []
    assert findings_by(tail_wave, KernelContext(a_compiled(), NO_CODE, (), SIXTEEN, SMS)) == []
    fits_nowhere = occupancy(limits_of("9.0"), 128, 32, 300_000)
    assert found(2640, known=fits_nowhere) == []


def test_an_assumed_part_is_named():
    sms = sm_count_of(a_compiled(arch="sm_80"), None)
    assert sms == SmCount(108, "A100")
    (finding,) = found(4, sms)
    assert "108 SMs (assuming A100; --sms N for another GPU)" in finding.evidence.basis
    assert sm_count_of(a_compiled(arch="sm_80"), 56) == SmCount(56)
    assert sm_count_of(a_compiled(arch="sm_42"), None) is None
