"""Spilled values: the source lines that computed what ptxas stores to the stack, and its reloads.

A spill store writes a register to a slot relative to R1; its value was computed where that register
was written last. A load returns the value stored to its slot last. Both follow the listing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from traceview.ptx.model import Function, Instruction, SourceLine
from traceview.ptx.sass.live_registers import written_registers
from traceview.records import record

_SLOT = re.compile(r"\[R1(?:\.U32)?(?:\+(0x[0-9a-f]+|\d+))?\]")
_REGISTER = re.compile(r"(?<![A-Za-z])R(\d+)")
_WORD_BYTES = 4


@record
class SpilledValue:
    """A spilled value and the line that computed it. `in_hottest_loop` counts its loads there."""

    source: SourceLine | None
    store_bytes: int
    load_bytes: int
    loads: int
    in_hottest_loop: int


def spilled_values(function: Function, hottest: Collection[int]) -> tuple[SpilledValue, ...]:
    """The spilled values by source line, the most bytes first.

    `hottest` holds the indices of the instructions of the hottest loop.
    """
    totals: dict[SourceLine | None, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for source, numbers in _spills(function, hottest):
        totals[source] = [a + b for a, b in zip(totals[source], numbers, strict=True)]
    values = [SpilledValue(source, *numbers) for source, numbers in totals.items()]
    return tuple(sorted(values, key=lambda value: -value.store_bytes - value.load_bytes))


def _spills(
    function: Function, hottest: Collection[int]
) -> Iterator[tuple[SourceLine | None, tuple[int, int, int, int]]]:
    """Bytes stored and loaded, loads, and loads in the hottest loop, of each instruction."""
    written: dict[int, SourceLine | None] = {}
    slots: dict[int, SourceLine | None] = {}
    for at, each in enumerate(function.instructions):
        size, slot = _size(each), _SLOT.search(each.operands)
        first = int(slot[1] or "0", 0) // _WORD_BYTES if slot else 0
        if slot and each.opcode.startswith("STL"):
            source = written.get(_register(each.operands.rpartition(",")[2]), each.source)
            slots.update(dict.fromkeys(range(first, first + size // _WORD_BYTES), source))
            yield source, (size, 0, 0, 0)
        elif slot and each.opcode.startswith("LDL"):
            source = slots.get(first, each.source)
            yield source, (0, size, 1, int(at in hottest))
        for register in written_registers(each):
            # A reloaded value keeps the line that computed it.
            is_load = slot is not None and each.opcode.startswith("LDL")
            written[register] = slots.get(first, each.source) if is_load else each.source


def _register(text: str) -> int:
    match = _REGISTER.search(text)
    return int(match[1]) if match else -1


def _size(instruction: Instruction) -> int:
    widths = [int(m) for m in instruction.opcode.split(".") if m in ("64", "128")]
    return widths[0] // 8 if widths else _WORD_BYTES
