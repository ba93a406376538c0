"""Live registers of a thread at each SASS instruction, and which lines hold them.

A register is live from where it is written to where it is read last, on any path. Widths follow
from the opcode: LDG.E.128 writes four registers, IMAD.WIDE two, a matrix product its fragments.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from traceview.base.records import record
from traceview.kernels.ptx.loops import block_edges, block_starts
from traceview.kernels.ptx.model import Function, Instruction, SourceLine

_REGISTER = re.compile(r"(?<![A-Za-z])R(\d+)(\.64)?(?![\w])")
_OPERAND = re.compile(r"(?:\[[^\]]*\]|\{[^}]*\}|[^,\[\]])+")
_WGMMA = re.compile(r"64x(\d+)x\d+")
_MATRICES = re.compile(r"M\w*88\.(\d)")
_TENSOR_MEMORY = re.compile(r"\.x(\d+)")
_WITHOUT_RESULT = re.compile(
    r"ST|RED|LDGSTS|BRA|BRX|EXIT|RET|BAR|BSSY|BSYNC|DEPBAR|MEMBAR|CCTL|NANOSLEEP|UTMA|UBLKCP|CALL|"
    r"WARPSYNC|NOP|ERRBAR|SUST|PREFETCH|FENCE|LDGDEPBAR|ARRIVES|JMX|KILL|USETMAXREG"
)
_PREDICATE_FIRST = frozenset({"SHFL", "ATOM", "ATOMG", "ATOMS", "MATCH", "SYNCS", "REDUX"})
# R1 holds the stack pointer from start to end.
_STACK_POINTER = 1 << 1
_DOUBLE = frozenset({"DADD", "DMUL", "DFMA", "DMNMX", "DSETP", "FADD2", "FMUL2", "FFMA2"})
_MEMORY = ("LD", "ST", "AT", "RED", "SYNCS")
_MMA = frozenset({"HMMA", "IMMA", "QMMA", "BMMA", "DMMA", "OMMA"})


@record
class LiveRegisters:
    """The live registers at each instruction, and the first instruction with the most.

    `holders` counts the registers that are live at that instruction by the line that wrote them.
    """

    counts: tuple[int, ...]
    peak: int
    holders: tuple[tuple[SourceLine | None, int], ...]

    @property
    def most(self) -> int:
        """The number of live registers at the peak."""
        return self.counts[self.peak] if self.counts else 0


def live_registers(function: Function) -> LiveRegisters:
    """The live registers of a SASS function."""
    code = function.instructions
    writes, reads = zip(*map(_masks, code), strict=True) if code else ((), ())
    after = _live_after(function, writes, reads)
    masks = [live | w | _STACK_POINTER for live, w in zip(after, writes, strict=True)]
    counts = tuple(mask.bit_count() for mask in masks)
    peak = max(range(len(counts)), key=counts.__getitem__, default=0)
    held = masks[peak] if code else 0
    # The source lines that last wrote the registers.
    holders = Counter[SourceLine | None]()
    for at in (*range(peak, -1, -1), *range(len(code) - 1, peak, -1)):
        registers = writes[at] & held
        if registers:
            holders[code[at].source] += registers.bit_count()
            held &= ~registers
    return LiveRegisters(counts, peak, tuple(holders.most_common()))


def written_registers(instruction: Instruction) -> Iterator[int]:
    """The numbers of the registers that an instruction writes."""
    mask, _ = _masks(instruction)
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _live_after(function: Function, writes: Sequence[int], reads: Sequence[int]) -> list[int]:
    """A mask of registers per instruction: those live before it or after it."""
    code = function.instructions
    starts = block_starts(len(code), function.jumps)
    edges = block_edges(starts, function.jumps)
    entry = [0] * len(starts)
    live = [0] * len(code)
    changed = True
    while changed:
        changed = False
        for block in range(len(starts) - 2, -1, -1):
            now = 0
            for successor in edges[block]:
                now |= entry[successor]
            for at in range(starts[block + 1] - 1, starts[block] - 1, -1):
                kills = 0 if code[at].predicate else writes[at]
                before = (now & ~kills) | reads[at]
                live[at] = now | before
                now = before
            changed |= now != entry[block]
            entry[block] = now
    return live


def _masks(instruction: Instruction) -> tuple[int, int]:
    operands = [text.strip() for text in _OPERAND.findall(instruction.operands)]
    root, *modifiers = instruction.opcode.split(".")
    results = 0 if _WITHOUT_RESULT.match(root) else 1
    if results and root in _PREDICATE_FIRST and operands[:1] and not _first(operands[0]):
        results = 2
    written = 0
    for text in operands[:results]:
        if "[" not in text and (number := _first(text)) is not None:
            written |= _run(number, _result_width(root, modifiers, instruction.opcode))
    read = 0
    for at, text in enumerate(operands[results:]):
        for match in _REGISTER.finditer(text):
            width = 2 if match[2] else 1
            if "[" not in text and width == 1:
                width = _source_width(at, root, modifiers, instruction.opcode)
            read |= _run(int(match[1]), width)
    return written, read


def _first(text: str) -> int | None:
    match = _REGISTER.search(text)
    return int(match[1]) if match else None


def _run(first: int, width: int) -> int:
    return ((1 << width) - 1) << first


def _result_width(root: str, modifiers: Sequence[str], opcode: str) -> int:
    if root in ("HGMMA", "IGMMA", "QGMMA", "BGMMA"):
        return _accumulators(opcode, modifiers)
    if root in _MMA:
        return 2 if "F16" in modifiers[1:2] or modifiers[:1] == ["8816"] else 4
    if root in ("LDSM", "LDTM"):
        return _listed(opcode)
    if root == "CS2R":
        return 1 if "32" in modifiers else 2
    if root.startswith(_MEMORY):
        return _memory_width(modifiers)
    if root in _DOUBLE or "WIDE" in modifiers:
        return 2
    converts = root in ("I2F", "F2F", "F2I", "MOV", "IADD")
    return 2 if converts and {"F64", "S64", "U64", "64"} & set(modifiers[:1]) else 1


def _source_width(at: int, root: str, modifiers: Sequence[str], opcode: str) -> int:
    if root in ("HGMMA", "IGMMA", "QGMMA", "BGMMA"):
        return 4 if at == 0 else _accumulators(opcode, modifiers)
    if root in _MMA:
        # The number of registers of operand `at` (A, B or C) of a warp's matrix product.
        if at == 2:
            return 2 if "F16" in modifiers[1:2] or modifiers[:1] == ["8816"] else 4
        small = modifiers[:1] in (["1688"], ["16816"]) and not {"F32", "F16"} & set(modifiers[1:2])
        half = modifiers[:1] == ["1688"] and "TF32" not in modifiers
        return ((2, 1) if half or small else (4, 2))[min(at, 1)]
    if root in ("STSM", "STTM"):
        return _listed(opcode)
    if root.startswith(("ST", "RED", "AT")):
        return _memory_width(modifiers)
    if "WIDE" in modifiers:
        return 2 if at == 2 else 1
    if root in _DOUBLE or root in ("RET", "BRX", "JMX", "CALL"):
        return 2
    converts = root in ("I2F", "F2F", "F2I")
    return 2 if converts and modifiers[-1:] in (["F64"], ["S64"], ["U64"]) else 1


def _accumulators(opcode: str, modifiers: Sequence[str]) -> int:
    shape = _WGMMA.search(opcode)
    columns = int(shape[1]) if shape else 8
    return columns // 4 if "F16" in modifiers[1:2] else columns // 2


def _listed(opcode: str) -> int:
    match = _MATRICES.search(opcode) or _TENSOR_MEMORY.search(opcode)
    return int(match[1]) if match else 1


def _memory_width(modifiers: Sequence[str]) -> int:
    return next((int(m) // 32 for m in ("256", "128", "64") if m in modifiers), 1)


# Spilled values: the source lines that computed what ptxas stores to the stack, and its reloads.
#
# A spill store writes a register to a slot relative to R1; its value was computed where that
# register was written last. A load returns the value stored to its slot last. Both follow the
# listing.

_SLOT = re.compile(r"\[R1(?:\.U32)?(?:\+(0x[0-9a-f]+|\d+))?\]")
_SPILLED_REGISTER = re.compile(r"(?<![A-Za-z])R(\d+)")
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
        widths = [int(m) for m in each.opcode.split(".") if m in ("64", "128")]
        size, slot = (widths[0] // 8 if widths else _WORD_BYTES), _SLOT.search(each.operands)
        first = int(slot[1] or "0", 0) // _WORD_BYTES if slot else 0
        if slot and each.opcode.startswith("STL"):
            match = _SPILLED_REGISTER.search(each.operands.rpartition(",")[2])
            source = written.get(int(match[1]) if match else -1, each.source)
            slots.update(dict.fromkeys(range(first, first + size // _WORD_BYTES), source))
            yield source, (size, 0, 0, 0)
        elif slot and each.opcode.startswith("LDL"):
            source = slots.get(first, each.source)
            yield source, (0, size, 1, int(at in hottest))
        for register in written_registers(each):
            # A reloaded value keeps the line that computed it.
            is_load = slot is not None and each.opcode.startswith("LDL")
            written[register] = slots.get(first, each.source) if is_load else each.source
