"""The least cycles of loops: the path of most cycles, and what takes those of an SM."""

import pytest

from traceview.kernels.ptx.instruction_mix import instruction_mix
from traceview.kernels.ptx.issue_cycles import loop_cycles
from traceview.kernels.ptx.loops import Jump
from traceview.kernels.ptx.model import Function, Instruction
from traceview.kernels.ptx.pipes import L2_LATENCY, READ_LATENCY
from traceview.kernels.ptx.scoreboards import Control

ADD = ["FADD"] * 8
FULL = (16, 4)


def cycles(opcodes, jumps, capability="8.0", stalls=None, blocks=FULL):
    code = tuple(
        Instruction(*(*name.split(" ", 1), "R1, R2, R3")[:2], None, at)
        for at, name in enumerate(opcodes)
    )
    function = Function("k", "sass", True, code, jumps=tuple(jumps))
    controls = [Control(n, frozenset(), frozenset()) for n in stalls or [1] * len(code)]
    loops = instruction_mix(function).loops
    return list(loop_cycles(function, loops, controls, capability, *blocks))


@pytest.mark.parametrize(
    ("body", "capability", "expected"),
    [
        (ADD, "8.0", (4.0, "fp32")),
        (ADD, "9.0", (2.25, "issue")),
        (["MUFU.EX2", "FADD"], "9.0", (2.0, "special function")),
        (["MUFU.EX2", "FADD"], "10.0", (0.75, "issue")),
        (["IMAD.WIDE"] * 2 + ["FADD"], "9.0", (2.0, "fp32")),
        (["LOP3.LUT"] * 2 + ["SHF.R.U32.HI", "UIADD3"], "9.0", (1.5, "integer")),
        (["DFMA"], "8.6", (16.0, "fp64")),
        (["LDS.128"] * 2, "9.0", (8.0, "shared memory")),
        (["LDG.E.128", "FADD"], "9.0", (8.0, "L2")),
        (["HMMA.16816.F32"] * 4, "9.0", (6.2, "tensor cores")),
        (["HMMA.1688.F32.TF32"] * 4, "9.0", (6.2, "tensor cores")),
        (["HMMA.1688.F32"] * 4, "9.0", (3.1, "tensor cores")),
        (["HGMMA.64x128x16.F32.BF16"], "9.0", (16.0, "tensor cores")),
        (["HMMA.16816.F32", "FADD"], "8.0", (None, None)),
    ],
)
def test_what_takes_the_cycles_of_a_full_sm(body, capability, expected):
    """A loop of these instructions and its branch."""
    end = len(body)
    (loop,) = cycles([*body, "BRA", "EXIT"], [Jump(end, (0,), True)], capability)
    found = loop.sm_cycles_per_warp
    assert (found and round(found, 2), loop.limit) == expected
    assert loop.warp_cycles == loop.instructions == end + 1
    assert loop.loaded_bytes == (512 if "LDG.E.128" in body else 0)


def test_one_warp_per_scheduler_waits_for_its_stall_counts():
    (loop,) = cycles(["FADD", "BRA", "EXIT"], [Jump(1, (0,), True)], "9.0", [4, 6, 1], (1, 4))
    assert (loop.sm_cycles_per_warp, loop.limit, loop.warps_per_sm) == (2.5, "latency", 4)


@pytest.mark.parametrize(
    ("body", "issued"),
    [
        (["FFMA R1, R2, R3, R4"], 3),
        (["FFMA R1, R2, 2, R4"], 2),
        (["HFMA2.BF16_V2 R1, R2, R3, R4"], 3),
        (["FFMA R1, -R2, R3, -R2"], 2),
        (["FADD R5, R2.reuse, R6", "FFMA R1, R2, R3, R4"], 3),
        (["FADD R5, R6, R2.reuse", "FFMA R1, R2, R3, R4"], 4),
    ],
)
def test_three_registers_to_fetch_take_two_cycles(body, issued):
    """A register that the instruction before keeps in the same place is not fetched again."""
    body = [*body, "BRA", "EXIT"]
    end = len(body) - 2
    (hopper,), (ampere,) = (cycles(body, [Jump(end, (0,), True)], c) for c in ("9.0", "8.6"))
    assert hopper.sm_cycles_per_warp == issued / 4
    assert ampere.sm_cycles_per_warp == (end + 1) / 4


def test_operands_are_read_before_the_result_is_there():
    """The next pass waits for the address of this one, not for its data from L2."""
    code = tuple(
        Instruction(n, "R1, [R2]", None, at) for at, n in enumerate(("LDG.E", "BRA", "EXIT"))
    )
    function = Function("k", "sass", True, code, jumps=(Jump(1, (0,), True),))
    loops, free = instruction_mix(function).loops, frozenset[int]()
    found = {}
    for reads in (free, frozenset((1,))):
        load = Control(1, frozenset((0, 1)), frozenset((1,)), reads)
        controls = (load, Control(1, free, free), Control(1, free, free))
        (loop,) = loop_cycles(function, loops, controls, "9.0", 1, 4)
        found[reads] = loop.sm_cycles_per_warp * 4
    assert found[free] > L2_LATENCY > 10 * READ_LATENCY > found[frozenset((1,))]


@pytest.mark.parametrize("left", [0, 1])
def test_products_are_waited_for_as_the_code_says(left):
    """Of two groups of 64 cycles, a wait for the latest one leaves the tensor cores idle."""
    product = "HGMMA.64x128x16.F32 R24, gdesc[UR20], R24, gsb0"
    body = [product, f"WARPGROUP.DEPBAR.LE gsb0, {left:#x}", "BRA", "EXIT"]
    (loop,) = cycles(body, [Jump(2, (0,), True)], "9.0", blocks=(1, 4))
    assert loop.limit == ("tensor cores" if left else "latency")
    assert (loop.sm_cycles_per_warp == pytest.approx(16)) == bool(left)


def test_warps_of_a_block_meet_at_its_barrier():
    """Two of a block of 8 warps are on a scheduler, and a barrier of more warps takes longer."""
    body, jumps = ["FADD", "BAR.SYNC", "BRA", "EXIT"], [Jump(2, (0,), True)]
    (alone,) = cycles(body, jumps, "9.0", [20, 1, 1, 1], (1, 4))
    (both,) = cycles(body, jumps, "9.0", [20, 1, 1, 1], (1, 8))
    assert (alone.sm_cycles_per_warp * 4, both.sm_cycles_per_warp * 8) == (41, 51)


def test_scoreboards_that_there_are_not():
    body = ["DEPBAR.LE SB9, 0x1", "WARPGROUP.DEPBAR.LE gsb7, 0xffffffff", "HMMA.X", "BRA", "EXIT"]
    code = tuple(Instruction(*(*b.split(" ", 1), "")[:2], None, at) for at, b in enumerate(body))
    function = Function("k", "sass", True, code, jumps=(Jump(3, (0,), True),))
    controls = [Control(1, frozenset((6,)), frozenset((6,)))] * len(code)
    (loop,) = loop_cycles(function, instruction_mix(function).loops, controls, "9.0", 1, 4)
    assert loop.limit == "latency"


def test_a_loop_that_would_take_long_has_no_cycles_of_an_sm():
    (loop,) = cycles(["FADD"] * 3000 + ["BRA", "EXIT"], [Jump(3000, (0,), True)], "9.0")
    assert (loop.instructions, loop.sm_cycles_per_warp, loop.limit) == (3001, None, None)


def test_of_alternatives_the_one_of_more_cycles_counts():
    """1 branches over 2 and 3 to 4, which is the shorter way in instructions and the longer one."""
    opcodes = ["FADD", "BRA", "FADD", "BRA", "FMUL", "BRA", "EXIT"]
    jumps = [Jump(1, (4,), True), Jump(3, (5,), False), Jump(5, (0,), True)]
    (loop,) = cycles(opcodes, jumps, stalls=[4, 5, 1, 5, 15, 5, 5])
    assert (loop.instructions, loop.warp_cycles) == (4, 29)
    (loop,) = cycles(opcodes, jumps, stalls=[4, 5, 9, 9, 15, 5, 5])
    assert (loop.instructions, loop.warp_cycles) == (5, 32)


def test_only_loops_without_inner_loops():
    opcodes = ["FADD", "FADD", "BRA", "FADD", "BRA", "EXIT"]
    jumps = [Jump(2, (1,), True), Jump(4, (0,), True)]
    (loop,) = cycles(opcodes, jumps, stalls=[9, 2, 3, 9, 9, 5])
    assert loop.warp_cycles == 5


def test_an_inner_loop_that_polls_has_no_part():
    """2 and 3 wait for a barrier, as in a loop whose tiles the TMA copies."""
    opcodes = ["HGMMA.64x8x16.F32", "FADD", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "BRA", "BRA", "EXIT"]
    jumps = [Jump(3, (2,), True), Jump(4, (0,), True)]
    (loop,) = cycles(opcodes, jumps, "9.0", stalls=[9, 4, 2, 3, 5, 5])
    assert (loop.instructions, loop.warp_cycles) == (3, 18)
