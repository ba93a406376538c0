"""Theoretical occupancy: the blocks that one SM holds at once, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from traceview.errors import InputError
from traceview.hardware.limits import SmLimits
from traceview.records import record
from traceview.vocabulary.amounts import WARP_THREADS

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
