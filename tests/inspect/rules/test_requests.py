"""Coalescing and bank conflicts as findings: told where they cost, silent where they do not."""

import pytest

from tests.ptx.compiled_kernels import HEADER, a_compiled, ptx_kernel
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.model import Argument

ARGUMENTS = (Argument("x", "*fp16", True), Argument("y", "*fp16", True), Argument("n", "i32"))
LOAD = "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, "


def findings(body, subject, shared="", file="k.py"):
    """The findings of the rules on requests about this subject."""
    text = ptx_kernel(body).removeprefix(HEADER).replace("gelu.py", file)
    compiled = a_compiled(f"{HEADER}{shared}\n{text}", arguments=ARGUMENTS)
    return [f for f in inspect(compiled, sass=False).findings if subject in f.evidence.values]


def test_half_used_sectors_are_told_with_what_is_used():
    (found,) = findings(
        f"mad.wide.s32 %rd5, %r1, 4096, %rd1; {LOAD}[%rd5];", "ideal_sectors_per_request"
    )
    assert found.severity == "medium"
    assert found.message == (
        "Global loads at k.py:30 use 50.0 % of the bytes that they move: a warp's request touches "
        "32 sectors instead of 16"
    )
    assert found.evidence.values["used_pct"] == 50


def test_sectors_that_the_block_uses_whole_are_no_finding():
    body = f"mad.wide.s32 %rd5, %r1, 32, %rd1; {LOAD}[%rd5]; {LOAD}[%rd5+16];"
    assert not findings(body, "used_pct")


def test_a_narrow_access_with_distant_neighbours_names_the_sectors():
    (found,) = findings(
        "mad.wide.s32 %rd5, %r1, 4096, %rd1; ld.global.b32 %r10, [%rd5];", "sectors_per_request"
    )
    assert found.message.endswith(". A warp's request touches 32 sectors instead of 4")


def of_shared(at, depth=0):
    loop = ("$L: ", "setp.lt.s32 %p1, %r6, %r2; @%p1 bra $L;") if depth else ("", "")
    return (
        f"mov.u32 %r3, smem; {at} add.s32 %r5, %r3, %r4; "
        f"{loop[0]}ld.shared.b32 %r6, [%r5]; {loop[1]}"
    )


SMEM = ".extern .shared .align 16 .b8 smem[];"


@pytest.mark.parametrize(
    ("file", "action"),
    [
        ("k.cu", "Pad each row of the shared array by one element"),
        ("k.py", "Load and store the tile along the same axis"),
    ],
)
def test_bank_conflicts_are_told_with_their_wavefronts(file, action):
    (found,) = findings(of_shared("shl.b32 %r4, %r1, 7;", depth=1), "ways", SMEM, file)
    assert found.severity == "medium"
    assert found.message == (
        f"Bank conflicts: shared-memory accesses at {file}:30 take 32 wavefronts per request "
        "instead of 1"
    )
    assert found.action.startswith(action)
    assert found.evidence.values["ways"] == 32


def test_a_padded_row_has_no_conflicts():
    assert not findings(of_shared("mul.lo.s32 %r4, %r1, 132;", depth=1), "ways", SMEM)


def test_conflicts_outside_a_loop_that_has_none_are_no_finding():
    outside = of_shared("shl.b32 %r4, %r1, 7;").replace("%r4", "%r14").replace("%r5", "%r15")
    body = outside + of_shared("shl.b32 %r4, %r1, 2;", depth=1)
    assert not findings(body, "ways", SMEM)


# What a loop inside the one with conflicts does in each turn.
INSIDE = {
    "waits for a barrier": ("mbarrier.try_wait.parity.shared.b64 %p2, [smem], %r7;", "medium"),
    "computes": ("fma.rn.f32 %f1, %f1, %f1, %f1; setp.lt.f32 %p2, %f1, 0f00000000;", "info"),
}


@pytest.mark.parametrize("inside", INSIDE)
def test_a_loop_that_only_waits_is_no_deeper_loop(inside):
    """As around the waits of kernels that copy by TMA."""
    turn, severity = INSIDE[inside]
    body = of_shared("shl.b32 %r4, %r1, 7;", depth=1)
    spin = f"$W: {turn} @%p2 bra $W; setp.lt.s32 %p1"
    (found,) = findings(body.replace("setp.lt.s32 %p1", spin), "ways", SMEM)
    assert found.severity == severity
