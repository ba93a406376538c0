"""How many blocks of a compiled kernel an SM holds at once, and how many waves its grid makes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from traceview.errors import InputError
from traceview.hardware import Occupancy, limits_of, occupancy, part_of
from traceview.ptx.model import Compiled
from traceview.toolchain.listings import Code

_WARP_THREADS = 32


@dataclass(frozen=True)
class Sms:
    """The number of SMs that waves are counted on. `assumed` names the part taken to be meant."""

    count: int
    assumed: str | None = None

    @property
    def said(self) -> str:
        """Such as `132 SMs (H100 SXM and H200, assumed; --sms for another GPU)`."""
        why = f" ({self.assumed}, assumed; --sms for another GPU)" if self.assumed else ""
        return f"{self.count:,} SMs{why}"


def sms_of(compiled: Compiled, sm_count: int | None) -> Sms | None:
    """The SMs as told, else those of the part that stands for the kernel's architecture."""
    if sm_count:
        return Sms(sm_count)
    try:
        part = part_of(compiled.arch)
    except InputError:
        return None
    return Sms(part.sm_count, part.name)


def waves_of(compiled: Compiled, known: Occupancy | None, sms: Sms | None) -> float | None:
    """The blocks of the grid ÷ those that all SMs hold at once."""
    if not (compiled.grid and known and known.blocks_per_sm and sms):
        return None
    return math.prod(compiled.grid) / (known.blocks_per_sm * sms.count)


def occupancy_of(compiled: Compiled, code: Code) -> tuple[Occupancy | None, tuple[str, ...]]:
    """The occupancy at the launch's block size, with remarks, or why there is none."""
    if code.resources is None:
        return None, ()
    threads, said = _block_threads(compiled, code)
    if threads is None:
        return None, ("no occupancy: the block size is not known; pass --num-warps",)
    try:
        limits = limits_of(compiled.arch)
    except InputError as error:
        return None, (f"no occupancy: {error}",)
    dynamic = compiled.dynamic_shared_bytes
    unknown = "dynamic shared memory is not known and counted as none in the occupancy"
    if dynamic is None and _uses_dynamic_shared(code):
        said = (*said, unknown)
    known = occupancy(
        limits,
        threads,
        code.resources.registers,
        code.resources.static_shared_bytes,
        dynamic or 0,
        code.resources.barriers,
    )
    return known, said


def registers_for_more_blocks(compiled: Compiled, code: Code) -> int | None:
    """The most registers a thread may have for one more block to fit on an SM.

    None if registers are not what limits, or if no number of them would do.
    """
    now, _ = occupancy_of(compiled, code)
    threads, _ = _block_threads(compiled, code)
    if now is None or threads is None or code.resources is None:
        return None
    limits, wanted = limits_of(compiled.arch), now.blocks_per_sm + 1
    # maxnreg is rounded down to a multiple of 8, and 24 is the least that ptxas takes.
    for registers in range(code.resources.registers // 8 * 8, 23, -8):
        if occupancy(limits, threads, registers).blocks_by_limit["registers"] >= wanted:
            return registers
    return None


def static_shared(code: Code) -> int | None:
    """The static shared memory of a block in bytes; None if nothing tells."""
    if code.resources:
        return code.resources.static_shared_bytes
    return code.ptx.static_shared_bytes if code.ptx else None


def _block_threads(compiled: Compiled, code: Code) -> tuple[int | None, tuple[str, ...]]:
    """Threads of a block: as launched, as required, or the most that the kernel allows."""
    directives = code.ptx.directives if code.ptx else {}
    if directives.get("reqntid"):
        # With warp specialisation, this is more than num_warps of them.
        return math.prod(directives["reqntid"]), ()
    if compiled.num_warps:
        return compiled.num_warps * _WARP_THREADS, ()
    most = math.prod(directives.get("maxntid", ())) if directives.get("maxntid") else None
    most = most or (code.resources.max_threads if code.resources else None)
    if most is None:
        return None, ()
    return most, (f"occupancy is that of {most} threads a block, the most the kernel allows",)


def _uses_dynamic_shared(code: Code) -> bool:
    if static_shared(code) or not code.ptx:
        return False
    return any(".shared" in instruction.opcode for instruction in code.ptx.instructions)
