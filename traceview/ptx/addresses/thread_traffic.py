"""Global memory traffic and arithmetic per thread, where the code alone determines them."""

from __future__ import annotations

import re

from traceview.ptx import accesses as ptx_accesses
from traceview.ptx import longest_path, opcodes
from traceview.ptx.addresses.slicing import Slices
from traceview.ptx.model import Access, Function, Instruction
from traceview.ptx.sass import accesses as sass_accesses
from traceview.records import record

LOOPS = "its loop trip counts are not known"
_ARITHMETIC = frozenset({"integer", "float", "conversion"})
# An SM has 16 special-function lanes and 128 fp32 lanes (CUDA C++ Programming Guide, throughput of
# arithmetic instructions, the same for all compute capabilities from 7.x on).
_SPECIAL_SLOTS = 8
_MOVES = ("load", "store", "async-copy")
# These callees move none of the program's data.
_HARMLESS_CALLS = re.compile(r"\b(?:vprintf|__assertfail|__assert_fail)\b")


@record
class Traffic:
    """Bytes and arithmetic of a thread on its longest path; None where unknown.

    `bytes_moved` counts its global loads and stores; an address that all threads of a block share
    counts as 0 bytes. `issue_slots` counts arithmetic instructions, weighted by the issue slots of
    an fp32 instruction. `unknown` is the reason for None.
    """

    bytes_moved: int | None
    issue_slots: int | None
    unknown: str = ""


def traffic_of(ptx: Function | None, sass: Function | None) -> Traffic:
    """A thread's traffic from its PTX; from SASS without PTX, or if ptxas unrolled its loops."""
    by_ptx = _traffic(ptx) if ptx else None
    if sass and (by_ptx is None or by_ptx.unknown == LOOPS):
        by_sass = _traffic(sass)
        return by_sass if by_ptx is None or by_sass.bytes_moved is not None else by_ptx
    return by_ptx or Traffic(None, None, "its code is not known")


def _traffic(function: Function) -> Traffic:
    is_ptx = function.level == "ptx"
    access_of = ptx_accesses.access_of if is_ptx else sass_accesses.access_of
    pairs = [(i, access_of(i)) for i in function.instructions]
    unknown = next((why for i, access in pairs if (why := _unknown(i, access))), "")
    if unknown:
        return Traffic(None, None, unknown)
    weights, slots = [_bytes(access) for _, access in pairs], [1 for _ in pairs]
    if is_ptx:
        # An address that all threads of a block share costs nothing.
        origin = Slices.of(function).address
        weights = [
            n if n and (o := origin(i)) and (o.per_thread or o.loaded or o.through_shared) else 0
            for n, (i, _) in zip(weights, pairs, strict=True)
        ]
        slots = [_slots(i.opcode) for i, _ in pairs]
    moved = longest_path.heaviest(weights, function.jumps)
    if moved is None:
        return Traffic(None, None, LOOPS)
    return Traffic(moved, longest_path.heaviest(slots, function.jumps))


def _bytes(access: Access | None) -> int:
    if access is None or access.space != "global" or access.kind not in _MOVES:
        return 0
    return (access.width_bits or 0) // 8


def _unknown(instruction: Instruction, access: Access | None) -> str:
    """Why an instruction makes the traffic of its function unknown; empty if it does not."""
    root = instruction.opcode.partition(".")[0].lower()
    if root == "call" and not _HARMLESS_CALLS.search(instruction.operands):
        return "it calls functions"
    if access is None or access.kind == "prefetch":
        return ""
    if access.space == "generic":
        return f"{instruction.opcode} has a generic address, whose memory space is not known"
    if access.space in ("texture", "surface"):
        return "it accesses textures, whose formats are not in the code"
    if access.space == "global" and access.kind in ("atomic", "reduction"):
        return "its atomics may contend"
    if access.space == "global" and access.width_bits is None:
        return "its bulk copies have sizes that are not in the code"
    return ""


def _slots(opcode: str) -> int:
    kind = opcodes.family(opcode)
    if kind == "special-function":
        return _SPECIAL_SLOTS
    return 1 if kind in _ARITHMETIC else 0
