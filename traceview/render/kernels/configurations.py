"""The table of `traceview ptx --what-if`: occupancy at other warps, stages and tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from traceview.analyses.base import TableSpec
from traceview.inspect.kernel_report import KernelReport, WhatIf, limited_by
from traceview.tables import Cell, Column

WHAT_IF = TableSpec(
    "what_if",
    "One row per configuration, each compiled; > is the kernel as it is",
    (
        Column("now", "text", "> for the kernel as it is"),
        Column("warps", "int64", "warps per block"),
        Column("stages", "int64", "software pipeline stages", nullable=True),
        Column("tile", "text", "tile sizes"),
        Column("registers", "int64", "registers per thread", nullable=True),
        Column("shared_bytes", "int64", "shared memory per block", nullable=True),
        Column("occupancy_pct", "float64", "theoretical occupancy", nullable=True),
        Column("limited_by", "text", "what limits the occupancy", prose=True),
        Column("blocks_per_sm", "int64", "blocks that an SM holds at once", nullable=True),
        Column("waves", "float64", "grid ÷ blocks that the GPU holds at once", nullable=True),
        Column("spill_bytes", "int64", "spilled per thread", nullable=True),
    ),
    brief=(
        *("now", "warps", "stages", "tile", "registers", "shared_bytes"),
        *("occupancy_pct", "limited_by"),
    ),
)


def what_if_rows(kernel: KernelReport) -> Iterator[dict[str, Cell]]:
    """A row per configuration."""
    for row in kernel.what_if:
        occupancy = row.occupancy
        yield {
            "now": ">" if row.current else "",
            "warps": row.num_warps,
            "stages": row.num_stages,
            "tile": tile_text(row),
            "registers": row.registers,
            "shared_bytes": row.shared_memory_bytes,
            "blocks_per_sm": occupancy.blocks_per_sm if occupancy else None,
            "occupancy_pct": occupancy.theoretical_occupancy_pct if occupancy else None,
            "waves": row.waves,
            "spill_bytes": row.spill_bytes,
            "limited_by": limited_by(row).replace(" and ", ", "),
        }


def tile_text(row: WhatIf) -> str:
    """The sizes of a tile, `64×128`, or a single one with its name, `BLOCK=64`."""
    if len(row.tile) == 1:
        name, size = row.tile[0]
        return f"{name}={size}"
    return "×".join(str(size) for _, size in row.tile)


def what_if_spec(kernel: KernelReport) -> TableSpec:
    """The TableSpec; it explains the sizes of a tile that has several."""
    names = [name for name, _ in kernel.what_if[0].tile] if kernel.what_if else []
    if len(names) < 2:
        return WHAT_IF
    return replace(WHAT_IF, meaning=f"{WHAT_IF.meaning}. tile: {'×'.join(names)}")
