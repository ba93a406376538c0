"""The least cycles of loops: the path of most cycles, and what takes those of an SM."""

import pytest

from traceview.kernels.ptx.instruction_mix import instruction_mix
from traceview.kernels.ptx.issue_cycles import loop_cycles
from traceview.kernels.ptx.loops import Jump
from traceview.kernels.ptx.model import Function, Instruction
from traceview.kernels.ptx.scoreboards import Control

ADD = ["FADD"] * 8


def cycles(opcodes, jumps, capability="8.0", stalls=None):
    code = tuple(Instruction(name, "R1, R2, R3", None, at) for at, name in enumerate(opcodes))
    function = Function("k", "sass", True, code, jumps=tuple(jumps))
    controls = [Control(n, frozenset(), frozenset()) for n in stalls or [1] * len(code)]
    return list(loop_cycles(function, instruction_mix(function).loops, controls, capability))


@pytest.mark.parametrize(
    ("body", "capability", "expected"),
    [
        (ADD, "8.0", (9, 4.0, "fp32")),
        (ADD, "9.0", (9, 2.25, "issue")),
        (["MUFU.EX2", "FADD"], "9.0", (3, 2.0, "special function")),
        (["MUFU.EX2", "FADD"], "10.0", (3, 0.75, "issue")),
        (["DFMA"], "8.6", (2, 16.0, "fp64")),
        (["HMMA.16816.F32", "FADD"], "8.0", (3, None, None)),
    ],
)
def test_what_takes_the_cycles_of_an_sm(body, capability, expected):
    """A loop of these instructions and its branch."""
    end = len(body)
    (loop,) = cycles([*body, "BRA", "EXIT"], [Jump(end, (0,), True)], capability)
    assert (loop.instructions, loop.sm_cycles_per_warp, loop.limit) == expected
    assert loop.warp_cycles == loop.instructions


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
