"""Which instructions a SASS instruction waits for, by the control bits of its machine code.

A load, a shared-memory access or a special function takes an unknown number of cycles: it reserves
one of six scoreboards until its result is there (write) or its operands are read (read). The next
instruction that needs them names the scoreboard in its wait mask and does not issue before. NVIDIA
does not document the bits; they are, from sm_70 on, those of Jia et al., "Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking" (2018), and of CuAssembler. The tests hold them
against the registers that instructions write and read.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from traceview.base.records import record
from traceview.kernels.ptx.model import Function, Instruction

INSTRUCTION_BYTES = 16
CONTROLS_SINCE = 7.0
"""The first compute capability with control bits in each instruction."""
_WORDS = struct.Struct("<QQ")
# The bits from 105 on, of which 41 are in the upper word.
_CONTROL = 41
_NONE = 7
_SCOREBOARDS = 6
# DEPBAR.LE SB0, 0x1 waits until at most one of the copies that reserve scoreboard 0 is under way,
# WARPGROUP.DEPBAR.LE gsb0, 0x1 until one group of matrix products is: HGMMA … gsb0 ends a group.
_NAMED = re.compile(r"(?P<kind>SB|gsb)(?P<scoreboard>\d)(?:, *(?P<left>0x[0-9a-f]{1,8}))?")
PRODUCTS = _SCOREBOARDS
"""The number, behind those of the scoreboards, by which matrix products are waited for."""
_ALL = 1 << 32


@record
class Control:
    """The control bits of an instruction.

    `stall_cycles` pass before the warp issues its next one, at least. `sets` are the scoreboards
    that it reserves, of which `reads` only until its operands are read; `waits` are those that must
    be free before it issues.
    """

    stall_cycles: int
    sets: frozenset[int]
    waits: frozenset[int]
    reads: frozenset[int] = frozenset()


def controls(machine_code: bytes) -> tuple[Control, ...]:
    """The control bits of each instruction of a function for sm_70 or later."""
    whole = len(machine_code) // INSTRUCTION_BYTES * INSTRUCTION_BYTES
    return tuple(_control(high >> _CONTROL) for _, high in _WORDS.iter_unpack(machine_code[:whole]))


def _control(bits: int) -> Control:
    written, read = (frozenset({bits >> at & 7} - {_NONE}) for at in (5, 8))
    waits = frozenset(number for number in range(_SCOREBOARDS) if bits >> 11 + number & 1)
    return Control(bits & 15, written | read, waits, read - written)


@record
class Scoreboards:
    """The scoreboards of a SASS function, by index of the instruction.

    `waits` has, for each that it waits for, how many of the latest reservations may be left.
    """

    sets: Sequence[frozenset[int]]
    waits: Sequence[Mapping[int, int]]
    before: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, function: Function, machine_code: bytes) -> Scoreboards:
        """The scoreboards of a function, from its instructions and their machine code.

        Raises ValueError if the code has fewer instructions, as that of another architecture.
        """
        code = function.instructions
        decoded = controls(machine_code)[: len(code)]
        if len(decoded) < len(code):
            raise ValueError("fewer instructions in the machine code than in its disassembly")
        waits = [
            {**named(i), **dict.fromkeys(c.waits, 0)} for c, i in zip(decoded, code, strict=True)
        ]
        sets = [c.sets | closes(i) for c, i in zip(decoded, code, strict=True)]
        before: dict[int, list[int]] = defaultdict(list)
        for earlier, later in _steps(function):
            before[later].append(earlier)
        return cls(sets, waits, before)

    def awaited(self, at: int) -> tuple[int, ...]:
        """The instructions whose results or operands the instruction `at` waits for, in order.

        They are those on any path before it that reserve a scoreboard which it waits for, and that
        no instruction in between has waited for.
        """
        found: set[int] = set()
        for barrier, kept in self.waits[at].items():
            # With each, how many reservations `at` still leaves, and how many waits before it left.
            waiting = [(earlier, kept, _ALL) for earlier in self.before.get(at, ())]
            seen = set[tuple[int, int, int]]()
            while waiting:
                step = waiting.pop()
                if step in seen:
                    continue
                seen.add(step)
                earlier, later, left = step
                if barrier in self.sets[earlier]:
                    if not later:
                        found.add(earlier)
                    later, left = max(later - 1, 0), left - (left < _ALL)
                left = min(left, self.waits[earlier].get(barrier, left))
                if left:
                    waiting += ((each, later, left) for each in self.before.get(earlier, ()))
        return tuple(sorted(found))


def named(instruction: Instruction) -> Mapping[int, int]:
    """The scoreboards that a DEPBAR names, and how many reservations it leaves of each."""
    if "DEPBAR." not in instruction.opcode:
        return {}
    return {
        PRODUCTS if each["kind"] == "gsb" else int(each["scoreboard"]): int(each["left"] or "0", 16)
        for each in _NAMED.finditer(instruction.operands)
    }


def closes(instruction: Instruction) -> frozenset[int]:
    """PRODUCTS, where an instruction ends a group of them; none otherwise."""
    ends = "gsb0" in instruction.operands and "DEPBAR." not in instruction.opcode
    return frozenset((PRODUCTS,)) if ends else frozenset()


def _steps(function: Function) -> Iterator[tuple[int, int]]:
    jumps = {jump.at: jump for jump in function.jumps}
    for at in range(len(function.instructions)):
        jump = jumps.get(at)
        yield from ((at, target) for target in (jump.targets if jump else ()))
        if jump is None or jump.falls_through:
            yield at, at + 1
