"""What one thread moves through global memory and reckons, where the code alone tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.addresses.slicing import Slices
from traceview.ptx.longest_path import heaviest
from traceview.ptx.model import Access, Function, Instruction
from traceview.ptx.opcodes import family
from traceview.ptx.sass import accesses as sass_accesses

LOOPS = "it goes through memory in loops, whose turns the code does not tell"
_ARITHMETIC = frozenset({"integer", "float", "conversion"})
# An SM has 16 lanes for special functions where it has 128 for fp32 (CUDA C++ Programming Guide,
# throughput of arithmetic instructions, the same for all capabilities from 7.x on).
_SPECIAL_SLOTS = 8
_MOVES = ("load", "store", "async-copy")
# What they call moves none of the program's data.
_HARMLESS_CALLS = re.compile(r"\b(?:vprintf|__assertfail|__assert_fail)\b")
# Addresses in memory of any kind: which, only the run tells.
_ANYWHERE = frozenset({"generic"})


@dataclass(frozen=True)
class Traffic:
    """What a thread moves and reckons on its longest way; None with the reason where unknown.

    `bytes_moved` are those that its loads and stores of global memory ask for; an address that
    all threads of a block share counts for nothing. `issue_slots` are the instructions of
    arithmetic, each in units of what an fp32 instruction takes.
    """

    bytes_moved: int | None
    issue_slots: int | None
    unknown: str = ""


def traffic_of(ptx: Function | None, sass: Function | None) -> Traffic:
    """By PTX, which tells more; by SASS where that is all, or where it has unrolled a loop."""
    told = _of_ptx(ptx) if ptx else None
    if sass and (told is None or told.unknown == LOOPS):
        running = _of_sass(sass)
        return running if told is None or running.bytes_moved is not None else told
    return told or Traffic(None, None, "there is no code")


def _of_ptx(function: Function) -> Traffic:
    slices = Slices.of(function)
    found = [(i, ptx_accesses.access_of(i)) for i in function.instructions]
    unknown = next((why for i, access in found if (why := _unknown(i, access))), "")
    if unknown:
        return Traffic(None, None, unknown)
    weights = [_bytes(a) if _bytes(a) and _differs(i, slices) else 0 for i, a in found]
    return _along(function, weights, [_slots(i.opcode) for i, _ in found])


def _of_sass(function: Function) -> Traffic:
    found = [(i, sass_accesses.access_of(i)) for i in function.instructions]
    unknown = next((why for i, access in found if (why := _unknown(i, access))), "")
    if unknown:
        return Traffic(None, None, unknown)
    weights = [_bytes(access) for _, access in found]
    return _along(function, weights, [1 for _ in found])


def _along(function: Function, weights: list[int], slots: list[int]) -> Traffic:
    moved = heaviest(weights, function.jumps)
    if moved is None:
        return Traffic(None, None, LOOPS)
    return Traffic(moved, heaviest(slots, function.jumps))


def _bytes(access: Access | None) -> int:
    if access is None or access.space != "global" or access.kind not in _MOVES:
        return 0
    return (access.width_bits or 0) // 8


def _unknown(instruction: Instruction, access: Access | None) -> str:
    """Why the traffic of a function with this instruction cannot be told; empty if it can."""
    root = instruction.opcode.partition(".")[0].lower()
    if root == "call" and not _HARMLESS_CALLS.search(instruction.operands):
        return "it calls functions"
    if access is None or access.kind == "prefetch":
        return ""
    if access.space in _ANYWHERE:
        return f"{instruction.opcode} does not tell which memory it goes to"
    if access.space in ("texture", "surface"):
        return "it goes through textures, whose formats the code does not tell"
    if access.space == "global" and access.kind in ("atomic", "reduction"):
        return "its atomics may wait for one another"
    if access.space == "global" and access.width_bits is None:
        return "it copies in bulk, and the sizes are not in the code"
    return ""


def _differs(instruction: Instruction, slices: Slices) -> bool:
    """Whether threads of a block go to different addresses."""
    origin = slices.address(instruction)
    return origin.per_thread or origin.loaded or origin.through_shared


def _slots(opcode: str) -> int:
    kind = family(opcode)
    if kind == "special-function":
        return _SPECIAL_SLOTS
    return 1 if kind in _ARITHMETIC else 0
