"""256 bits at once: which GPUs have it by ptxas, and where Triton could have used it."""

import importlib.metadata
import re

import pytest

from tests.inspect.rules.written_ptx import need
from traceview.base.errors import TraceviewError
from traceview.base.hardware import KNOWN_CAPABILITIES, limits_of
from traceview.kernels.inspect.rules.global_memory import full_width_bits
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.toolchain.listings import assemble

WIDE = ("v8.b32", "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}")
WIDE_64 = ("v4.b64", "{%rd2, %rd3, %rd4, %rd5}")
USUAL = ("v4.b32", "{%r1, %r2, %r3, %r4}")


def accepted(arch, type_and_registers, version):
    """Whether ptxas assembles a load of this type for an architecture."""
    type_, registers = type_and_registers
    text = f""".version {version}
.target {arch}
.address_size 64
.visible .entry k(.param .u64 p) {{
    .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [p];
    ld.global.{type_} {registers}, [%rd1];
    st.global.{type_} [%rd1+64], {registers};
    ret;
}}
"""
    try:
        assemble(text)
    except TraceviewError as error:
        if "256 bit wide" not in str(error):
            pytest.skip(f"no ptxas here for {arch}: {error}")
        return False
    return True


@pytest.mark.parametrize("capability", KNOWN_CAPABILITIES)
def test_the_widest_access_is_the_one_that_ptxas_takes(capability):
    need("ptxas")
    arch = f"sm_{capability.replace('.', '')}"
    version = "9.0" if capability == "11.0" else "8.8"
    assert accepted(arch, USUAL, version)
    wide = [accepted(arch, each, version) for each in (WIDE, WIDE_64)]
    assert wide == [limits_of(capability).access_bytes == 32] * 2


def test_an_unknown_gpu_moves_128_bits():
    assert [full_width_bits(arch) for arch in ("sm_90a", "sm_100a", "sm_199")] == [128, 256, 128]


@pytest.mark.parametrize(
    ("arch", "aligned", "may_be_wide"),
    [("sm_100", 32, True), ("sm_120", 32, True), ("sm_100", 16, False), ("sm_90", 32, False)],
)
def test_runs_of_32_aligned_bytes_are_one_instruction(compile_triton, arch, aligned, may_be_wide):
    from triton.experimental.gluon.language import BlockedLayout

    from tests.ptx.kernels import widths

    layout = BlockedLayout([8], [32], [4], [0])
    signature = f"*fp32:{aligned}, *fp32:{aligned}, i32:{aligned}, 1024"
    made = compile_triton(widths.eight_side_by_side, signature, arch, (layout,))
    # Counted from the bare text.
    written = re.findall(r"(?:ld|st)\.global\.v(\d)\.b32", made.ptx)
    compiled = Compiled(
        "eight_side_by_side", arch, "given", made.ptx, num_warps=4, stages={"ttgir": made.ttgir}
    )
    found = [f for f in inspect(compiled).findings if f.evidence.values.get("wanted_bits") == 256]
    newer = tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) >= (3, 9)
    assert written == (["8", "8"] if may_be_wide and newer else ["4"] * 4)
    assert len(found) == (may_be_wide and not newer)
    for finding in found:
        assert finding.severity == "low"
        assert (
            "128 bits per thread per instruction instead of 256 (4 × 128 bits)" in finding.message
        )
