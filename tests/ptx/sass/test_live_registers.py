"""Live registers of SASS, counted by hand."""

from traceview.kernels.ptx.disassembly import parse
from traceview.kernels.ptx.live_registers import live_registers

HEAD = """	.target	sm_90
	.section	.text.k,"ax",@progbits
	.type k,@function
	.other          k,@"STO_CUDA_ENTRY STV_DEFAULT"
k:
.text.k:
"""


def live(*lines):
    """The live registers of these instructions, R1, the stack pointer, included."""
    code = "".join(
        line if line.endswith(":\n") else f"        /*{16 * at:04x}*/   {line} ;\n"
        for at, line in enumerate(lines)
    )
    (function,) = parse(HEAD.replace(".type k", "        .type           k") + code).functions
    return live_registers(function)


def test_a_register_lives_from_its_write_to_its_last_read():
    found = live("MOV R2, 0x1", "MOV R3, 0x2", "FADD R4, R2, R3", "STG.E [R6.64], R4", "EXIT")
    # R6 and R7 are the kernel's from the start.
    assert found.counts == (4, 5, 6, 4, 1)
    assert found.peak == 2


def test_vectors_pairs_and_fragments_are_as_wide_as_their_opcodes_say():
    assert live("LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.128 [R8.64], R4").counts == (9, 7)
    assert live("IMAD.WIDE R2, R4, R5, R6", "STG.E.64 [R8.64], R2").counts[1] == 5
    assert live("LDSM.16.M88.4 R4, [R0]", "STS.128 [R1], R4").counts[1] == 5
    product = live("HMMA.16816.F32 R4, R8, R12, R4", "STS.128 [R1], R4")
    assert product.counts == (11, 5)


def test_a_write_under_a_predicate_keeps_the_old_value():
    assert live("MOV R2, 0x1", "@P0 MOV R2, 0x2", "STS [R1], R2").counts == (2, 2, 2)
    assert live("MOV R2, 0x1", "MOV R2, 0x2", "STS [R1], R2").counts == (2, 2, 2)


def test_shuffles_write_their_second_operand():
    assert live("SHFL.BFLY PT, R5, R4, 0x10, 0x1f", "STS [R1], R5").counts == (3, 2)


def test_a_loop_keeps_what_its_next_turn_reads():
    found = live(
        "MOV R2, 0x0",
        ".L_1:\n",
        "IADD3 R2, R2, R3, RZ",
        "ISETP.GE.AND P0, PT, R2, 0x8, PT",
        "@!P0 BRA `(.L_1)",
        "EXIT",
    )
    assert found.counts == (3, 3, 3, 3, 1)
