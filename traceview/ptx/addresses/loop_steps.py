"""The bytes by which an address advances in each iteration of the loop around its access."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceview.ptx.addresses.slicing import Slices, address_text, registers_in
from traceview.ptx.model import Instruction
from traceview.records import record

_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|\d{1,20})$")
_COPIES = ("mov", "cvt", "cvta")
_MOST_DEPTH = 40


@record
class LoopSteps:
    """How far the registers of a function advance from one loop iteration to the next."""

    slices: Slices

    def of(self, access: Instruction) -> int | None:
        """The bytes by which an access's address advances; None outside loops or if it varies."""
        if not access.loop_depth:
            return None
        base = registers_in(address_text(access.operands))
        return self._step(base[0], access.loop_depth, 0) if base else 0

    def _step(self, text: str, depth: int, level: int) -> int | None:
        """The step of an operand; for a loop-carried register, what the loop adds to it."""
        inside = self._inside(text, depth)
        if not inside:
            return 0
        if len(inside) > 1 or level > _MOST_DEPTH:
            return None
        writer = inside[0]
        if len(self.slices.writers(registers_in(text)[0])) > 1:
            return self._added(writer, registers_in(text)[0], depth)
        steps = [self._step(operand, depth, level + 1) for operand in _operands(writer)]
        known = [step for step in steps if step is not None]
        if writer.opcode.startswith(("ld.", "atom.")) or len(known) < len(steps):
            return None
        return _combined(writer, known) if any(known) else 0

    def _added(self, writer: Instruction, carried: str, depth: int) -> int | None:
        """The constant that the loop adds to a register before it comes back to `writer`."""
        total = 0
        for _ in range(_MOST_DEPTH):
            root, operands = writer.opcode.partition(".")[0], _operands(writer)
            if root == "add" and len(operands) == 2:
                number = _number(operands[1])
                if number is None:
                    return None
                total += number
            elif root not in _COPIES:
                return None
            if operands[0] == carried:
                return total
            inside = self._inside(operands[0], depth)
            if len(inside) != 1:
                return None
            writer = inside[0]
        return None

    def _inside(self, text: str, depth: int) -> list[Instruction]:
        """The instructions in the loop that write an operand."""
        registers = registers_in(text)
        writers = self.slices.writers(registers[0]) if registers else ()
        return [writer for writer in writers if writer.loop_depth >= depth]


def _operands(writer: Instruction) -> list[str]:
    return [part.strip() for part in writer.operands.split(",")][1:]


def _combined(writer: Instruction, steps: Sequence[int]) -> int | None:
    """The step of a result, given the steps of its operands; None if it is not constant."""
    root, operands = writer.opcode.partition(".")[0], _operands(writer)
    if root in _COPIES:
        return steps[0]
    if root == "add":
        return steps[0] + steps[1]
    if root == "sub":
        return steps[0] - steps[1]
    if root == "or" and 0 in steps:
        # How LLVM adds to a multiple of a power of two.
        return sum(steps)
    factor = _number(operands[1]) if root in ("mul", "mad", "shl") and not steps[1] else None
    if factor is None:
        return None
    scaled = steps[0] << factor if root == "shl" else steps[0] * factor
    return scaled + (steps[2] if root == "mad" else 0)


def _number(text: str) -> int | None:
    return int(text, 0) if _NUMBER.match(text) else None
