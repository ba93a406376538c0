"""One configuration of a kernel, compiled, with its occupancy."""

from __future__ import annotations

from traceview.hardware import Occupancy
from traceview.records import record


@record
class WhatIf:
    """One configuration, compiled; `failure` is the reason if it does not compile.

    `tile` has the constexprs that are tiles. Registers and spills are per thread, shared memory per
    block. `waves` is the grid ÷ the blocks that the GPU holds at once.
    """

    num_warps: int | None
    num_stages: int | None
    tile: tuple[tuple[str, int], ...]
    current: bool = False
    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None
    occupancy: Occupancy | None = None
    waves: float | None = None
    failure: str | None = None


def limited_by(row: WhatIf) -> str:
    """The limit of the occupancy, or the reason for having none."""
    if row.failure:
        return f"does not compile: {row.failure}"
    if row.occupancy is None:
        return ""
    limiters = " and ".join(row.occupancy.limiters)
    return limiters if row.occupancy.blocks_per_sm else f"does not fit: {limiters}"
