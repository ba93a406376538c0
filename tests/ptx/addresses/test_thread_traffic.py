"""How many bytes a thread moves: exact where the code tells it, and else not told."""

import pytest

from tests.ptx.compiled_kernels import ptx_kernel
from traceview.kernels.ptx.addresses.request_costs import LOOPS, traffic_of
from traceview.kernels.ptx.disassembly import parse as parse_sass
from traceview.kernels.ptx.parser import parse_ptx

LOAD, STORE = "ld.global.f32 %r3, [%rd3];", "st.global.f32 [%rd4], %r3;"


def of(body):
    return traffic_of(parse_ptx(ptx_kernel(body)).functions[0], None)


def test_a_straight_line_is_exact():
    assert of(LOAD + STORE).bytes_moved == 8
    wide = "ld.global.v4.b32 {%r3,%r4,%r5,%r6}, [%rd3]; st.global.v2.b64 [%rd4], {%rd5,%rd6};"
    assert of(wide).bytes_moved == 32
    assert of("cp.async.cg.shared.global [%r9], [%rd3], 16;").bytes_moved == 16


def test_a_mask_counts_in_full_and_an_early_end_takes_nothing_away():
    guarded = "setp.ge.s32 %p1, %r1, %r2; @%p1 bra END;" + LOAD + f"@%p2 {STORE}" + " END:"
    assert of(guarded).bytes_moved == 8


def test_of_two_branches_the_heavier_counts():
    body = f"@%p1 bra B; {LOAD} {LOAD} bra E; B: {LOAD} E: {STORE}"
    assert of(body).bytes_moved == 12


def test_what_a_whole_block_shares_counts_for_nothing():
    assert of("ld.global.f32 %r3, [%rd1];" + STORE).bytes_moved == 4


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"L: {LOAD} @%p1 bra L;", LOOPS),
        ("ld.f32 %r3, [%rd3];", "ld.f32 has a generic address, whose memory space is not known"),
        ("red.global.add.f32 [%rd4], %r3;", "its atomics may contend"),
        ("atom.global.add.f32 %r5, [%rd4], %r3;", "its atomics may contend"),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%r9], [%rd3], %r8, [%r7];",
            "its bulk copies have sizes that are not in the code",
        ),
        ("call (%r3), helper, (%r4);", "it calls functions"),
    ],
)
def test_what_the_code_does_not_tell(body, why):
    found = of(body)
    assert (found.bytes_moved, found.issue_slots, found.unknown) == (None, None, why)


def test_an_assertion_is_no_call_that_matters():
    assert of(LOAD + "call.uni __assertfail, (p0);" + STORE).bytes_moved == 8


def test_a_loop_without_memory_tells_bytes_but_no_arithmetic():
    found = of(f"{LOAD} L: add.f32 %r3, %r3, %r3; @%p1 bra L; {STORE}")
    assert (found.bytes_moved, found.issue_slots, found.unknown) == (8, None, "")


def test_arithmetic_is_counted_in_slots():
    start = of("").issue_slots
    assert of("add.f32 %r3, %r3, %r3; ex2.approx.f32 %r3, %r3;").issue_slots == start + 1 + 8


SASS = """
	.section	.text.k,"ax",@progbits
	.type	k,@function
	.other	k,@"STO_CUDA_ENTRY STV_DEFAULT"
k:
        /*0000*/                   LDG.E.64 R2, desc[UR4][R2.64] ;
        /*0010*/              @!P0 STG.E desc[UR4][R4.64], R2 ;
{more}
        /*0030*/                   EXIT ;
"""


def test_sass_where_there_is_no_other_and_where_it_unrolled():
    plain = parse_sass(SASS.format(more="")).functions[0]
    assert traffic_of(None, plain).bytes_moved == 12
    looped = parse_ptx(ptx_kernel(f"L: {LOAD} @%p1 bra L;")).functions[0]
    assert traffic_of(looped, plain).bytes_moved == 12
    more = "        /*0020*/                   CALL.REL.NOINC `(k) ;"
    assert traffic_of(None, parse_sass(SASS.format(more=more)).functions[0]).bytes_moved is None
    assert traffic_of(None, None).unknown == "its code is not known"
