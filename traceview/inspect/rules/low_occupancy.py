"""Low theoretical occupancy: an SM that holds few warps, or no block at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from traceview import units
from traceview.findings import Evidence, Finding, Severity, Subject
from traceview.hardware import Limiter, Occupancy
from traceview.inspect.kernel_context import KernelContext, tensor_ops_of
from traceview.inspect.occupancy import registers_for_more_blocks
from traceview.inspect.recompilations import Outcome
from traceview.inspect.rules.advice import Advice
from traceview.inspect.rules.recompiled import MOST_REMEDIES, results_clause
from traceview.inspect.rules.remedies import (
    Remedy,
    Tested,
    fewer_registers,
    fewer_stages,
    imperative,
    more_warps,
    one_of_each,
    smaller_tiles,
    tested_remedies,
)
from traceview.units import Value

LOW_OCCUPANCY_PCT = 25.0
# What an SM must have in flight for its part of the memory's bandwidth: 4.8 TB/s × 1 µs ÷ 132 on an
# H200 is 36 kB.
_ENOUGH_BYTES = 64 * 1024
_ASYNCHRONOUS = ("wgmma", "tcgen05", "UTC", "HGMMA", "IGMMA", "QGMMA", "BGMMA")
_RELIEF: dict[Limiter, str] = {
    "registers": "Try a smaller tile or more warps, which likely lower the registers per thread",
    "shared memory": "Try fewer stages or a smaller tile, which likely need less shared memory",
    "blocks": "Try larger blocks of more warps, which likely raise it",
    "warps": (
        "Try a block size whose number of warps divides that of the SM, which likely raises it"
    ),
    "barriers": "Try fewer named barriers per block, which likely raises it",
}


class _Pressure(NamedTuple):
    occupancy_pct: float
    spill_bytes: int


def low_occupancy(kernel: KernelContext) -> Iterator[Advice]:
    """Occupancy below 25 %, with the changes that raise it without spilling more."""
    occupancy = kernel.occupancy
    if occupancy is None or occupancy.theoretical_occupancy_pct >= LOW_OCCUPANCY_PCT:
        return
    before = _Pressure(occupancy.theoretical_occupancy_pct, kernel.spill_bytes or 0)
    tries = tested_remedies(_remedies(kernel, occupancy), kernel.trials, _pressure)
    raised = [each for each in tries if each.after.occupancy_pct > before.occupancy_pct]
    free = [each for each in raised if each.after.spill_bytes <= before.spill_bytes]
    highest_first = sorted(free, key=lambda each: -each.after.occupancy_pct)
    helped = one_of_each(highest_first, MOST_REMEDIES)
    compared = results_clause(helped or raised, tries, lambda after: _compared(before, after))
    in_flight = _bytes_in_flight(kernel, occupancy)
    loads = f"; {units.quantity('bytes', in_flight)} of loads in flight per SM" if in_flight else ""
    basis = f"{_limits(occupancy)}{loads}{compared}"
    finding = Finding(
        _severity(kernel, occupancy),
        "Theoretical occupancy is {theoretical_occupancy_pct}, limited by {limiters}"
        if occupancy.blocks_per_sm
        else "A block does not fit on an SM, limited by {limiters}: the launch fails",
        f"{imperative(helped)}, and measure it" if helped else _RELIEF[occupancy.limiter],
        subject=Subject("kernel", kernel.compiled.name),
        evidence=Evidence(_values(kernel, occupancy, helped), basis=basis),
    )
    remedies = tuple(each.remedy for each in helped)
    yield Advice(finding, remedies, _otherwise(occupancy.limiter, remedies))


def _otherwise(limiter: Limiter, withdrawn: Sequence[Remedy]) -> str:
    """The advice if no remedy holds; it does not repeat the withdrawn ones."""
    if limiter == "registers" and any(remedy.change.num_warps for remedy in withdrawn):
        return "Try a smaller tile, which likely lowers the registers per thread"
    return _RELIEF[limiter]


def _values(
    kernel: KernelContext, occupancy: Occupancy, helped: list[Tested[_Pressure]]
) -> dict[str, Value]:
    resources = kernel.code.resources
    values: dict[str, Value] = {
        "theoretical_occupancy_pct": occupancy.theoretical_occupancy_pct,
        "blocks_per_sm": occupancy.blocks_per_sm,
        "limiters": " and ".join(occupancy.limiters),
        "registers": resources.registers if resources else None,
        "proven": bool(helped),
    }
    if helped:
        values["recompiled_occupancy_pct"] = helped[0].after.occupancy_pct
    return values


def _severity(kernel: KernelContext, occupancy: Occupancy) -> Severity:
    if not occupancy.blocks_per_sm:
        return "high"
    if not tensor_ops_of(kernel.code):
        in_flight = _bytes_in_flight(kernel, occupancy)
        return "medium" if in_flight is not None and in_flight < _ENOUGH_BYTES else "info"
    # Tensor-core kernels hide latency with their own pipeline; wgmma and tcgen05 are asynchronous,
    # so that few warps keep them busy.
    return "info" if _is_asynchronous(kernel) else "low"


def _bytes_in_flight(kernel: KernelContext, occupancy: Occupancy) -> float | None:
    """Bytes that the threads of an SM load from global memory in one pass of the hottest loop.

    None where a bulk copy (TMA) loads, whose size is not in the instruction.
    """
    loads = [
        access
        for access in kernel.accesses
        if (access.level, access.space) == ("ptx", "global")
        and access.kind in ("load", "async-copy")
    ]
    if any(access.width_bits is None for access in loads):
        return None
    threads = 32 * (kernel.compiled.num_warps or 0) * occupancy.blocks_per_sm
    return kernel.provenance.bits_of(loads) / 8 * threads if kernel.provenance else 0.0


def _is_asynchronous(kernel: KernelContext) -> bool:
    ops = tensor_ops_of(kernel.code)
    return bool(ops) and ops[0].operation.startswith(_ASYNCHRONOUS)


def _remedies(kernel: KernelContext, occupancy: Occupancy) -> Iterator[Remedy]:
    if "registers" in occupancy.limiters:
        yield from fewer_registers(registers_for_more_blocks(kernel.compiled, kernel.code))
    if "shared memory" in occupancy.limiters:
        yield from fewer_stages(kernel.compiled)
    # More warps leave each a smaller part of the tile: a public wgmma kernel ran 8 % slower so.
    if not _is_asynchronous(kernel):
        yield from more_warps(kernel.compiled)
    yield from smaller_tiles(kernel.compiled)


def _pressure(outcome: Outcome) -> _Pressure | None:
    if outcome.occupancy is None:
        return None
    return _Pressure(outcome.occupancy.theoretical_occupancy_pct, outcome.spill_bytes or 0)


def _compared(before: _Pressure, after: _Pressure) -> str:
    spilled = ""
    if after.spill_bytes != before.spill_bytes:
        counts = f"{units.count(before.spill_bytes)} → {units.count(after.spill_bytes)}"
        spilled = f", {counts} bytes spilled"
    occupancies = f"{before.occupancy_pct:.1f} → {units.percent(after.occupancy_pct)}"
    return f"occupancy {occupancies}{spilled}"


def _limits(occupancy: Occupancy) -> str:
    each = ", ".join(f"{name} {blocks}" for name, blocks in occupancy.blocks_by_limit.items())
    return f"blocks per SM by limit: {each}"
