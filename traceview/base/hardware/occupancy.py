"""Limits of one SM, the blocks that it holds at once, and the waves in which a grid fills a GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.base.vocabulary.amounts import WARP_THREADS

# Limits of one SM, by compute capability.
#
# Sources. Threads, blocks, registers and shared memory: CUDA C++ Programming Guide, table
# "Technical Specifications per Compute Capability" (7.2 as in the guides of CUDA 10 to 12), and
# `cuda::arch_traits` of NVIDIA's CCCL 3.3, against which a test holds them (7.2 is not in it).
# Shared memory reserved by the driver per block, and the most that a block may opt into:
# arch_traits again, and the Guide's sections on 7.x to 12.x. Sub-partitions, allocation units and
# barriers: cuda_occupancy.h of CUDA 13.0, against which the occupancy is tested; it has no
# barriers before 9.0. Bytes per access: ptxas of CUDA 13.1, which refuses "256 bit wide
# load/store" before sm_100.

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


Limiter = Literal["warps", "blocks", "registers", "shared memory", "barriers"]


@record
class Occupancy:
    """The blocks that one SM holds at once.

    `blocks_by_limit` has the blocks that each limit alone allows, without limits of resources that
    the kernel does not use. `limiters` are those that allow the fewest; there may be several. With
    `blocks_per_sm` 0 the launch fails.
    """

    blocks_per_sm: int
    active_warps: int
    theoretical_occupancy_pct: float
    limiters: tuple[Limiter, ...]
    blocks_by_limit: Mapping[Limiter, int]

    @property
    def limiter(self) -> Limiter:
        """The first of the limiters: warps before blocks, registers, shared memory, barriers."""
        return self.limiters[0]


def occupancy(
    limits: SmLimits,
    block_threads: int,
    registers: int,
    static_shared_bytes: int = 0,
    dynamic_shared_bytes: int = 0,
    barriers: int = 0,
) -> Occupancy:
    """The occupancy of a kernel launched with blocks of `block_threads` threads.

    `registers` are per thread, `barriers` and shared memory per block, without what the driver
    reserves. The kernel is assumed to opt into shared memory, and the L1 cache to shrink for it.
    Raises InputError for a block without threads and for negative numbers.
    """
    uses = (registers, static_shared_bytes, dynamic_shared_bytes, barriers)
    if block_threads < 1 or min(uses) < 0:
        raise InputError(f"no kernel has {block_threads} threads per block and uses {uses}")
    warps = _round_up(block_threads, WARP_THREADS) // WARP_THREADS
    allowed: dict[Limiter, int | None] = {
        "warps": by_warps(limits, block_threads),
        "blocks": limits.blocks_per_sm,
        "registers": by_registers(limits, warps, registers),
        "shared memory": by_shared(
            limits, limits.shared_bytes_per_sm, static_shared_bytes + dynamic_shared_bytes
        ),
        "barriers": by_barriers(limits, barriers),
    }
    blocks_by_limit = {name: count for name, count in allowed.items() if count is not None}
    blocks = min(blocks_by_limit.values())
    return Occupancy(
        blocks_per_sm=blocks,
        active_warps=blocks * warps,
        theoretical_occupancy_pct=100.0 * blocks * warps / limits.warps_per_sm,
        limiters=tuple(name for name, count in blocks_by_limit.items() if count == blocks),
        blocks_by_limit=blocks_by_limit,
    )


def by_warps(limits: SmLimits, block_threads: int) -> int:
    """The blocks per SM that the number of warps allows."""
    warps = _round_up(block_threads, WARP_THREADS) // WARP_THREADS
    return limits.warps_per_sm // warps if block_threads <= limits.threads_per_block else 0


def by_registers(limits: SmLimits, warps: int, registers: int) -> int | None:
    """The blocks per SM that registers allow; None for kernels that use none, as below."""
    if registers == 0:
        return None
    warp_registers = _round_up(registers * WARP_THREADS, limits.register_unit)
    # The check per block assumes that every sub-partition gets equally many of its warps.
    block_registers = warp_registers * _round_up(warps, limits.sub_partitions)
    if registers > limits.registers_per_thread or block_registers > limits.registers_per_block:
        return 0
    per_partition = limits.registers_per_sm // limits.sub_partitions // warp_registers
    return per_partition * limits.sub_partitions // warps


def by_shared(limits: SmLimits, bytes_per_sm: int, used_bytes: int) -> int | None:
    """The blocks per SM that its shared memory allows, `used_bytes` of it per block."""
    reserved = limits.reserved_shared_bytes_per_block
    allocated = _round_up(used_bytes + reserved, limits.shared_unit_bytes)
    if allocated == 0:
        return None
    if allocated > limits.opt_in_shared_bytes_per_block + reserved:
        return 0
    return bytes_per_sm // allocated


def by_barriers(limits: SmLimits, barriers: int) -> int | None:
    """The blocks per SM that its named barriers allow."""
    if barriers == 0 or limits.barriers_per_sm is None:
        return None
    return limits.barriers_per_sm // barriers


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# Waves: how a grid of blocks fills a GPU, and what its last wave leaves unused.
#
# One model for kernels of a trace and for compiled kernels. A wave is the number of blocks that
# the GPU holds at once, `at_once`; waves are blocks ÷ at_once.


def filling_sizes(blocks: int, at_once: int) -> tuple[int, ...]:
    """The nearest grid sizes that leave no block slot unused: the one below, if any, and above."""
    down, up = blocks // at_once * at_once, -(-blocks // at_once) * at_once
    return (down, up) if 0 < down < up else (up,)


@record
class Waves:
    """The waves of one grid. `blocks` is the size of the grid, `at_once` that of a wave."""

    blocks: int
    at_once: int
    sm_count: int

    @property
    def waves(self) -> float:
        """Blocks ÷ blocks per wave."""
        return self.blocks / self.at_once

    @property
    def whole(self) -> int:
        """The number of waves, a partial last one counted as one."""
        return -(-self.blocks // self.at_once)

    @property
    def idle_fraction(self) -> float:
        """The tail effect, 1 − waves ÷ ceil(waves): the fraction of all block slots left unused."""
        return 1 - self.blocks / (self.whole * self.at_once)

    @property
    def fills(self) -> tuple[int, ...]:
        return filling_sizes(self.blocks, self.at_once)

    @property
    def unused_slots(self) -> int:
        """Block slots of the last wave that stay unused."""
        return self.whole * self.at_once - self.blocks

    @property
    def idle_sms(self) -> int:
        """SMs that get no block at all."""
        return max(self.sm_count - self.blocks, 0)


def waves_of(grid: int | Sequence[int], occupancy: Occupancy, sm_count: int) -> Waves | None:
    """The waves of a grid (its blocks, or its extents); None where no block fits on an SM."""
    blocks = grid if isinstance(grid, int) else math.prod(grid)
    if blocks < 1 or occupancy.blocks_per_sm < 1 or sm_count < 1:
        return None
    return Waves(blocks, occupancy.blocks_per_sm * sm_count, sm_count)
