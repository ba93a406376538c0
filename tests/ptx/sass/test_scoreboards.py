"""Scoreboards by the control bits: held against nvdisasm's words, and against the registers."""

import re
from pathlib import Path

import pytest

from tests.ptx.sass.machine_codes import assembled
from traceview.kernels.ptx.disassembly import access_of
from traceview.kernels.ptx.instruction_mix import instruction_mix
from traceview.kernels.ptx.issue_cycles import loop_cycles
from traceview.kernels.ptx.live_registers import _masks, written_registers
from traceview.kernels.ptx.loops import Jump
from traceview.kernels.ptx.model import Function, Instruction
from traceview.kernels.ptx.scoreboards import Control, Scoreboards, controls
from traceview.kernels.toolchain import tools

FILES = (
    "gelu-3.7.1-sm90",
    "matmul-3.7.1-sm80",
    "matmul-3.9.0-sm100",
)
WORD = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")


def printed(cubin: bytes, name: str) -> list[str]:
    """The 128 bits of each instruction of a kernel as nvdisasm prints them, highest first."""

    def attempt(path: Path) -> tools.ProcessResult:
        return tools.run(path, lambda source, _: ("-c", "-hex", source), cubin, ".cubin")

    text = tools.run_first_able(tools.find_newest("nvdisasm"), attempt, "").out
    part = text[text.index(f".text.{name}:") :].split("\n.section", 1)[0].split("//-----", 1)[0]
    words = [f"{int(word, 16):064b}" for word in WORD.findall(part)]
    return [high + low for low, high in zip(words[::2], words[1::2], strict=True)]


def by_position(bits: str) -> Control:
    """The control code in CuAssembler's order: reuse, wait, read, write, yield, stall."""
    code = bits[2:23]
    wait, read, write, stall = code[4:10], code[10:13], code[13:16], code[17:21]
    reads, writes = ({int(text, 2)} - {7} for text in (read, write))
    waits = {5 - place for place, bit in enumerate(wait) if bit == "1"}
    sets = frozenset(reads | writes)
    return Control(int(stall, 2), sets, frozenset(waits), frozenset(reads - writes))


@pytest.mark.parametrize("name", FILES)
def test_control_bits_are_those_of_the_words_that_nvdisasm_prints(name):
    cubin, function, code = assembled(name)
    decoded = controls(code)
    assert decoded == tuple(by_position(bits) for bits in printed(cubin, function.name))
    assert len(decoded) >= len(function.instructions)
    assert any(control.sets for control in decoded)


@pytest.mark.parametrize("name", FILES)
def test_the_first_use_of_what_is_loaded_waits_for_the_load(name):
    """Within a basic block, whatever touches a loaded register has waited for its load."""
    _, function, code = assembled(name)
    boards = Scoreboards.of(function, code)
    entries = {target for jump in function.jumps for target in (*jump.targets, jump.at + 1)}
    loaded: dict[int, int] = {}
    waited: set[int] = set()
    checked = 0
    for at, instruction in enumerate(function.instructions):
        if at in entries:
            loaded, waited = {}, set()
        waited.update(boards.awaited(at))
        written, read = _masks(instruction)
        touched = written | read
        for register in [register for register in loaded if touched >> register & 1]:
            assert loaded.pop(register) in waited
            checked += 1
        access = access_of(instruction)
        if boards.sets[at] and access and access.kind == "load":
            loaded |= dict.fromkeys(written_registers(instruction), at)
            waited.discard(at)
    assert checked >= 8


def test_cycles_of_a_loop_are_the_sum_of_the_stall_counts_that_nvdisasm_prints():
    cubin, function, code = assembled("matmul-3.7.1-sm80")
    (loop,) = instruction_mix(function).loops
    stalls = [by_position(bits).stall_cycles for bits in printed(cubin, function.name)]
    (cycles,) = loop_cycles(function, [loop], controls(code), "8.0")
    assert cycles.warp_cycles == sum(stalls[at] for at in loop.instructions) > 100
    assert cycles.instructions == len(loop.instructions)
    assert cycles.sm_cycles_per_warp is None


def test_a_wait_for_copies_is_for_their_groups():
    _, function, code = assembled("matmul-3.7.1-sm80")
    boards = Scoreboards.of(function, code)
    opcodes = [instruction.opcode for instruction in function.instructions]
    waits = [at for at, opcode in enumerate(opcodes) if opcode == "DEPBAR.LE"]
    assert len(waits) == 2
    for at in waits:
        assert {opcodes[each] for each in boards.awaited(at)} == {"LDGDEPBAR"}


def test_waits_end_the_search_and_loops_are_followed_back():
    """1 waits for the load before the loop and for that of the turn before, 4 for the latter."""
    names = ("LDG", "FADD", "LDG", "BRA", "FADD", "FMUL")
    code = tuple(Instruction(name, "", None, at) for at, name in enumerate(names))
    function = Function("k", "sass", True, code, jumps=(Jump(3, (1,), True),))
    words = (word(sets=name == "LDG", waits=name in ("FADD", "FMUL")) for name in names)
    boards = Scoreboards.of(function, b"".join(words))
    assert [boards.awaited(at) for at in (1, 4, 5)] == [(0, 2), (2,), ()]


@pytest.mark.parametrize(
    ("jumps", "awaited"),
    [((), [(0,), (1,), (2, 4)]), ((Jump(5, (3,), True),), [(0,), (1, 2, 4), (2, 4)])],
)
def test_a_wait_that_leaves_groups_is_for_those_before_them(jumps, awaited):
    """Three groups, then in line or in a loop: wait, commit another, wait for all but two."""
    copies = ("LDGDEPBAR", "")
    listed = [copies, copies, copies, ("DEPBAR.LE", "SB0, 0x2"), copies, ("DEPBAR.LE", "SB0, 0x2")]
    listed += [("DEPBAR.LE", "SB0, 0x0")]
    code = tuple(Instruction(*each, None, at) for at, each in enumerate(listed))
    words = (word(sets=each is copies, waits=False) for each in listed)
    boards = Scoreboards.of(Function("k", "sass", True, code, jumps=jumps), b"".join(words))
    assert [boards.awaited(at) for at in (3, 5, 6)] == awaited


def word(*, sets: bool, waits: bool) -> bytes:
    """An instruction that reserves scoreboard 0, or waits for it."""
    control = (0 if sets else 7) << 5 | 7 << 8 | waits << 11 | 1
    return (control << 105).to_bytes(16, "little")


def test_machine_code_that_is_too_short():
    _, function, code = assembled("gelu-3.7.1-sm90")
    with pytest.raises(ValueError, match="fewer instructions"):
        Scoreboards.of(function, code[:64])
