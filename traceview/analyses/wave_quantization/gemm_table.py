"""The table of persistent GEMMs and their tile waves."""

from __future__ import annotations

from collections.abc import Sequence

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.analyses.wave_quantization.gemm_waves import TileWaves
from traceview.facts.operations.hosts import HOST, gpu_cells
from traceview.tables import Cell, Column, Table
from traceview.trace import Trace

TILES = TableSpec(
    "tiles",
    "persistent GEMMs, whose blocks compute several tiles each; most time lost first",
    (
        Column("short_name", "text", "base name of the kernel"),
        Column("label", "text", "base name, with what distinguishes it from others of that name"),
        Column("batch", "int64", "GEMMs per call"),
        Column("m", "int64", "rows of the result"),
        Column("n", "int64", "columns of the result"),
        Column("k", "int64", "inner dimension"),
        Column("tile", "text", "rows × columns of the result per tile"),
        Column("tiles", "int64", "tiles that cover the result"),
        Column("blocks", "int64", "blocks of the grid"),
        Column("rounds", "float64", "tile waves: tiles ÷ blocks"),
        Column("tail_idle_pct", "float64", "tile slots, over all waves, that stay unused"),
        Column(
            "tail_loss_ns",
            "int64",
            "at most, over all calls: time × that percentage; absent beside other kernels",
            nullable=True,
        ),
        Column("tiles_to_fill", "text", "nearest numbers of tiles that fill whole waves"),
        Column("calls", "int64", "launches"),
        Column("total_ns", "int64", "GPU time of all calls"),
        Column("median_ns", "int64", "median time per call"),
        Column("name", "text", "demangled, whole"),
        Column("device_id", "int64", "GPU"),
        HOST,
    ),
    brief=(
        *("label", "m", "n", "k", "tiles", "blocks", "rounds", "tail_idle_pct", "tail_loss_ns"),
        *("total_ns", "tiles_to_fill", "batch", "tile"),
    ),
    adds=("calls", "total_ns", "tail_loss_ns"),
    rare=True,
)


def table(trace: Trace, waves: Sequence[TileWaves]) -> Table:
    """The rows of TILES, most time lost first."""
    ranked = sorted(waves, key=lambda each: (-(each.lost_ns or 0), -each.gemm.total_ns))
    rows = ({**_row(each), **gpu_cells(trace, each.grid.configuration.device)} for each in ranked)
    return Table.from_rows(TILES.columns, rows)


def _row(each: TileWaves) -> dict[str, Cell]:
    of, kernel = each.gemm, each.grid.configuration
    return {
        "short_name": kernel.short_name,
        "label": kernel.label,
        "batch": of.gemm.batch,
        "m": of.gemm.m,
        "n": of.gemm.n,
        "k": of.gemm.k,
        "tile": f"{of.tile.columns}x{of.tile.rows}",
        "tiles": of.tiles,
        "blocks": of.blocks,
        "rounds": of.tiles / of.blocks,
        "tail_idle_pct": 100 * each.idle_fraction,
        "tail_loss_ns": each.lost_ns,
        "tiles_to_fill": units.either(each.fills),
        "calls": of.calls,
        "total_ns": of.total_ns,
        "median_ns": of.median_ns,
        "name": kernel.name,
    }
