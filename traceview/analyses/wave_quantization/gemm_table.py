"""Matrix products whose blocks take tile after tile: the part of wave-quantization on rounds."""

from __future__ import annotations

from collections.abc import Sequence

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.analyses.wave_quantization.gemm_waves import Rounds
from traceview.analyses.wave_quantization.losses import Loss
from traceview.facts.operations.hosts import HOST, gpu_cells
from traceview.findings import Finding, Severity, shortened
from traceview.tables import Cell, Column, Table
from traceview.trace import Trace

TILES = TableSpec(
    "tiles",
    "matrix products whose blocks take tile after tile; most time lost first",
    (
        Column("short_name", "text", "base name of the kernel"),
        Column("label", "text", "base name, and what tells it from others"),
        Column("batch", "int64", "products in a call"),
        Column("m", "int64", "rows of the result"),
        Column("n", "int64", "columns of the result"),
        Column("k", "int64", "length of the sums"),
        Column("tile", "text", "rows × columns of the result that a block computes at a time"),
        Column("tiles", "int64", "that cover the result"),
        Column("blocks", "int64", "blocks of the grid"),
        Column("rounds", "float64", "tiles ÷ blocks"),
        Column("tail_idle_pct", "float64", "places for tiles, over all rounds, that stay empty"),
        Column(
            "tail_loss_ns",
            "int64",
            "at most, all calls: time × that share; absent beside other kernels",
            nullable=True,
        ),
        Column("tiles_to_fill", "text", "nearest numbers of tiles that fill rounds"),
        Column("calls", "int64", "times it ran"),
        Column("total_ns", "int64", "time on the GPU, all calls"),
        Column("median_ns", "int64", "median of a call"),
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


def table(trace: Trace, found: Sequence[Rounds]) -> Table:
    ranked = sorted(found, key=lambda each: (-(each.lost_ns or 0), -each.of.total_ns))
    rows = ({**_tile_row(each), **gpu_cells(trace, each.launched.of.device)} for each in ranked)
    return Table.from_rows(TILES.columns, rows)


def _tile_row(each: Rounds) -> dict[str, Cell]:
    of, grid = each.of, each.launched.of
    return {
        "short_name": grid.short_name,
        "label": grid.label,
        "batch": of.product.batch,
        "m": of.product.m,
        "n": of.product.n,
        "k": of.product.k,
        "tile": f"{of.tile.columns}x{of.tile.rows}",
        "tiles": of.tiles,
        "blocks": of.blocks,
        "rounds": of.tiles / of.blocks,
        "tail_idle_pct": 100 * each.idle,
        "tail_loss_ns": each.lost_ns,
        "tiles_to_fill": units.either(each.fills),
        "calls": of.calls,
        "total_ns": of.total_ns,
        "median_ns": of.median_ns,
        "name": grid.name,
    }


def finding(loss: Loss[Rounds], severity: Severity | None) -> Finding | None:
    """Tiles instead of blocks; otherwise as a finding on waves."""
    if severity is None:
        return None
    worst, others = loss.parts[0], len(loss.parts) - 1
    total = units.duration(sum(each.of.steady_ns for each in loss.parts))
    alike = f", and {units.counted(others, 'other product')} of it too" if others else ""
    message = (
        f"{shortened(worst.launched.of.label)} {_last_round(worst)}{alike}: "
        f"up to {units.duration(loss.at_stake_ns)} of {total} is lost"
    )
    action = (
        f"Try sizes near these whose tiles fill the rounds, {units.either(worst.fills, ',')} "
        f"instead of {worst.of.tiles:,}: another batch, sequence length or width, padded where "
        "it pays."
    )
    return Finding(severity, message, action, loss.at_stake_ns)


def _last_round(worst: Rounds) -> str:
    of = worst.of
    batch = f"{of.product.batch:,} products of " if of.product.batch > 1 else ""
    return (
        f"cuts {batch}{of.product.m:,} × {of.product.n:,} into {of.tiles:,} tiles of "
        f"{of.tile.columns} × {of.tile.rows} for {of.blocks:,} blocks: the last of "
        f"{worst.whole:,} rounds has {units.counted(worst.in_last, 'tile')}, "
        f"{units.percent(100 * worst.idle)} of all places stay empty"
    )
