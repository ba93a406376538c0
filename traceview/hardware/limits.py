"""Limits of one SM, by compute capability.

Sources. Threads, blocks, registers and shared memory: CUDA C++ Programming Guide, table
"Technical Specifications per Compute Capability" (7.2 as in the guides of CUDA 10 to 12), and
`cuda::arch_traits` of NVIDIA's CCCL 3.3, against which a test holds them (7.2 is not in it).
Shared memory reserved by the driver per block, and the most that a block may opt into: arch_traits
again, and the Guide's sections on 7.x to 12.x. Sub-partitions, allocation units and barriers:
cuda_occupancy.h of CUDA 13.0, against which the occupancy is tested; it has no barriers before
9.0. Bytes per access: ptxas of CUDA 13.1, which refuses "256 bit wide load/store" before sm_100.
"""

from __future__ import annotations

import re

from traceview.errors import InputError
from traceview.records import record
from traceview.vocabulary.amounts import WARP_THREADS

KIB = 1024
_WIDE_SINCE = 10.0
_ARCH = re.compile(r"(?:sm_|compute_)(\d+)(\d)[af]?")


@record
class SmLimits:
    """Resources of one SM of a compute capability. Registers have 32 bits.

    `shared_bytes_per_sm` includes what the driver reserves per block
    (`reserved_shared_bytes_per_block`); the two limits per block do not. A block gets up to
    `shared_bytes_per_block` by default and up to `opt_in_shared_bytes_per_block` on request, as
    Triton makes. Registers are allocated per warp in units of `register_unit`, within one of the
    `sub_partitions`; shared memory per block in units of `shared_unit_bytes`. `barriers_per_sm` is
    None where barriers limit nothing.
    """

    compute_capability: str
    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_sm: int
    opt_in_shared_bytes_per_block: int
    reserved_shared_bytes_per_block: int
    shared_unit_bytes: int
    barriers_per_sm: int | None
    shared_bytes_per_block: int = 48 * KIB
    threads_per_block: int = 1024
    registers_per_sm: int = 65_536
    registers_per_block: int = 65_536
    registers_per_thread: int = 255
    register_unit: int = 256
    sub_partitions: int = 4

    @property
    def access_bytes(self) -> int:
        """The most bytes of global memory that a thread moves in one instruction.

        The address must be known to be a multiple of this number.
        """
        return 32 if float(self.compute_capability) >= _WIDE_SINCE else 16

    @property
    def warps_per_sm(self) -> int:
        """Maximum of resident warps per SM."""
        return self.threads_per_sm // WARP_THREADS


def _volta(capability: str, threads: int, blocks: int, shared_kib: int) -> SmLimits:
    """Before 8.0: no shared memory is reserved, so one block may have all of it."""
    shared = shared_kib * KIB
    return SmLimits(capability, threads, blocks, shared, shared, 0, 256, None)


def _ampere(
    capability: str, threads: int, blocks: int, shared_kib: int, barriers: int | None = None
) -> SmLimits:
    """From 8.0 on: the driver reserves 1 KiB of shared memory per block."""
    shared = shared_kib * KIB
    return SmLimits(capability, threads, blocks, shared, shared - KIB, KIB, 128, barriers)


_KNOWN = {
    limits.compute_capability: limits
    for limits in (
        _volta("7.0", threads=2048, blocks=32, shared_kib=96),
        _volta("7.2", threads=2048, blocks=32, shared_kib=96),
        _volta("7.5", threads=1024, blocks=16, shared_kib=64),
        _ampere("8.0", threads=2048, blocks=32, shared_kib=164),
        _ampere("8.6", threads=1536, blocks=16, shared_kib=100),
        _ampere("8.7", threads=1536, blocks=16, shared_kib=164),
        _ampere("8.9", threads=1536, blocks=24, shared_kib=100),
        _ampere("9.0", threads=2048, blocks=32, shared_kib=228, barriers=64),
        _ampere("10.0", threads=2048, blocks=32, shared_kib=228, barriers=64),
        _ampere("10.3", threads=2048, blocks=32, shared_kib=228, barriers=64),
        _ampere("11.0", threads=1536, blocks=24, shared_kib=228, barriers=24),
        _ampere("12.0", threads=1536, blocks=24, shared_kib=100, barriers=24),
        _ampere("12.1", threads=1536, blocks=24, shared_kib=100, barriers=24),
    )
}
KNOWN_CAPABILITIES = tuple(_KNOWN)


def limits_of(gpu: str) -> SmLimits:
    """The limits of a compute capability ("9.0") or of an architecture ("sm_90", "sm_90a").

    Raises InputError for an unknown one; the limits of a neighbour would be a guess.
    """
    capability = _ARCH.sub(r"\1.\2", gpu) if _ARCH.fullmatch(gpu) else gpu
    if capability not in _KNOWN:
        known = ", ".join(KNOWN_CAPABILITIES)
        raise InputError(f"the SM limits of {gpu[:40]!r} are not known", f"known are {known}")
    return _KNOWN[capability]
