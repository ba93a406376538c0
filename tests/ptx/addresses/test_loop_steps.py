"""The steps of addresses from one iteration to the next, from PTX written by hand."""

import pytest

from tests.ptx.compiled_kernels import ptx_kernel
from traceview.kernels.ptx.addresses.slicing import Slices
from traceview.kernels.ptx.addresses.strides import LoopSteps
from traceview.kernels.ptx.parser import parse_ptx

LOAD = "ld.global.b32 %r9, [%rd5+8];"
COUNT = "mov.b32 %r5, 0; L: "
NEXT = "add.s32 %r5, %r5, 2; @%p1 bra L;"


@pytest.mark.parametrize(
    ("body", "step"),
    [
        (f"mov.b64 %rd5, %rd3; L: {LOAD} add.s64 %rd5, %rd5, 4; @%p1 bra L;", 4),
        (
            f"mov.b64 %rd5, %rd3; L: {LOAD} add.s64 %rd6, %rd5, -64; mov.b64 %rd5, %rd6;"
            "@%p1 bra L;",
            -64,
        ),
        (f"mov.b64 %rd6, 0; L: add.s64 %rd5, %rd3, %rd6; {LOAD} add.s64 %rd6, %rd6, 4; bra L;", 4),
        (f"{COUNT} mad.wide.s32 %rd5, %r5, 4, %rd1; {LOAD} {NEXT}", 8),
        (f"{COUNT} shl.b32 %r6, %r5, 3; cvt.s64.s32 %rd5, %r6; {LOAD} {NEXT}", 16),
        (
            f"{COUNT} shl.b32 %r6, %r5, 4; or.b32 %r7, %r6, %r1; cvt.s64.s32 %rd5, %r7;"
            f"{LOAD} {NEXT}",
            32,
        ),
        (f"{COUNT} sub.s32 %r6, %r1, %r5; mul.wide.s32 %rd5, %r6, 4; {LOAD} {NEXT}", -8),
        (f"L: mov.b64 %rd5, %rd3; {LOAD} @%p1 bra L;", 0),
        (LOAD, None),
        (f"{COUNT} mul.wide.s32 %rd5, %r5, %r2; {LOAD} {NEXT}", None),
        (f"L: ld.global.b64 %rd5, [%rd4]; {LOAD} @%p1 bra L;", None),
        (f"mov.b64 %rd5, %rd3; L: {LOAD} add.s64 %rd5, %rd5, %rd6; @%p1 bra L;", None),
        (f"mov.b64 %rd5, %rd3; L: {LOAD} shl.b64 %rd5, %rd5, 1; @%p1 bra L;", None),
    ],
)
def test_steps(body, step):
    function = parse_ptx(ptx_kernel(body)).kernels()[0]
    (load,) = (
        i for i in function.instructions if i.opcode == "ld.global.b32" and "%r9" in i.operands
    )
    assert LoopSteps(Slices.of(function)).of(load) == step
