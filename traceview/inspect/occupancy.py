"""Theoretical occupancy of a compiled kernel, and the SMs that its waves are counted on."""

from __future__ import annotations

import math

from traceview import units
from traceview.errors import InputError
from traceview.hardware import Occupancy, limits_of, occupancy, part_of
from traceview.ptx.model import Compiled
from traceview.ptx.producers import dynamic_shared_variables
from traceview.records import record
from traceview.toolchain.listings import Code
from traceview.vocabulary.amounts import WARP_THREADS


@record
class SmCount:
    """The number of SMs to count waves on. `assumed` names the GPU that it is taken from."""

    count: int
    assumed: str | None = None

    @property
    def described(self) -> str:
        """The count as `132 SMs (assuming H100 SXM and H200; --sms N for another GPU)`."""
        why = f" (assuming {self.assumed}; --sms N for another GPU)" if self.assumed else ""
        return f"{units.counted(self.count, 'SM')}{why}"


def sm_count_of(compiled: Compiled, sm_count: int | None) -> SmCount | None:
    """The SM count as given, else of the GPU that stands for the architecture, if known."""
    if sm_count:
        return SmCount(sm_count)
    try:
        part = part_of(compiled.arch)
    except InputError:
        return None
    return SmCount(part.sm_count, part.name)


def occupancy_of(compiled: Compiled, code: Code) -> tuple[Occupancy | None, tuple[str, ...]]:
    """The occupancy at the block size of the launch, with notes on it or on why there is none."""
    if code.resources is None:
        return None, ()
    threads, notes = _block_threads(compiled, code)
    if threads is None:
        return None, ("no occupancy: the block size is not known; pass --num-warps",)
    try:
        limits = limits_of(compiled.arch)
    except InputError as error:
        return None, (f"no occupancy: {error}",)
    dynamic = compiled.dynamic_shared_bytes
    if dynamic is None and code.ptx:
        instructions = code.ptx.instructions
        names = dynamic_shared_variables(compiled.ptx or "")
        shared = not static_shared(code) and any(".shared" in i.opcode for i in instructions)
        if shared or any(name in i.operands for name in names for i in instructions):
            notes = (*notes, "dynamic shared memory is not known; the occupancy assumes none")
    result = occupancy(
        limits,
        threads,
        code.resources.registers,
        code.resources.static_shared_bytes,
        dynamic or 0,
        code.resources.barriers,
    )
    return result, notes


def registers_for_more_blocks(compiled: Compiled, code: Code) -> int | None:
    """The most registers per thread at which one more block fits on an SM.

    None if registers do not limit the occupancy, or if no number of them suffices.
    """
    now, _ = occupancy_of(compiled, code)
    threads, _ = _block_threads(compiled, code)
    if now is None or threads is None or code.resources is None:
        return None
    limits, wanted = limits_of(compiled.arch), now.blocks_per_sm + 1
    # maxnreg is rounded down to a multiple of 8, and 24 is the least that ptxas accepts.
    for registers in range(code.resources.registers // 8 * 8, 23, -8):
        if occupancy(limits, threads, registers).blocks_by_limit["registers"] >= wanted:
            return registers
    return None


def static_shared(code: Code) -> int | None:
    """Static shared memory per block in bytes; None where unknown."""
    if code.resources:
        return code.resources.static_shared_bytes
    return code.ptx.static_shared_bytes if code.ptx else None


def _block_threads(compiled: Compiled, code: Code) -> tuple[int | None, tuple[str, ...]]:
    """Threads per block: as required, as launched, or the most that the kernel allows."""
    directives = code.ptx.directives if code.ptx else {}
    if directives.get("reqntid"):
        # With warp specialization, this is more than num_warps × 32.
        return math.prod(directives["reqntid"]), ()
    if compiled.num_warps:
        return compiled.num_warps * WARP_THREADS, ()
    most = math.prod(directives.get("maxntid", ())) if directives.get("maxntid") else None
    most = most or (code.resources.max_threads if code.resources else None)
    if most is None:
        return None, ()
    return most, (
        f"occupancy assumes {units.count(most)} threads per block, the most the kernel allows",
    )
