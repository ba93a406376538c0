"""Tile waves of a persistent GEMM.

Each block takes the next tile until none is left. With as many blocks as the GPU holds at once, all
take one tile per wave, and in the last wave some get none. The grid of such a kernel is a single
wave of blocks, which shows nothing of this. SMs without a block stay idle in every tile wave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.analyses.wave_quantization import gemm_tiles, sweeps
from traceview.analyses.wave_quantization.grid_waves import LaunchedGrid
from traceview.facts.operations.hosts import HOST, gpu_cells
from traceview.hardware.waves import filling_sizes
from traceview.records import record
from traceview.tables import Cell, Column, Table
from traceview.trace import Trace, fact


@record
class TileWaves:
    """The tile waves of a persistent GEMM, launched as `grid` on a GPU of `sm_count` SMs."""

    gemm: gemm_tiles.PersistentGemm
    grid: LaunchedGrid
    sm_count: int

    @property
    def whole(self) -> int:
        """The number of tile waves, a partial last one counted as one."""
        return math.ceil(self.gemm.tiles / self.gemm.blocks)

    @property
    def last_tiles(self) -> int:
        """Tiles of the last wave."""
        return self.gemm.tiles - (self.whole - 1) * self.gemm.blocks

    @property
    def slots(self) -> int:
        """Tiles of a full wave: equally many on each SM, mostly one."""
        return math.ceil(self.gemm.blocks / self.sm_count) * self.sm_count

    @property
    def idle_fraction(self) -> float:
        """The fraction of all tile slots, over all waves, left unused."""
        return 1 - self.gemm.tiles / (self.whole * self.slots)

    @property
    def fills(self) -> tuple[int, ...]:
        return filling_sizes(self.gemm.tiles, self.slots)

    @property
    def lost_ns(self) -> int | None:
        """At most, over all calls: time × idle fraction; None for kernels that overlap others."""
        return None if self.grid.concurrent else round(self.gemm.total_ns * self.idle_fraction)

    @property
    def steady_lost_ns(self) -> int | None:
        """`lost_ns` of the calls after warm-up."""
        return None if self.grid.concurrent else round(self.gemm.steady_ns * self.idle_fraction)


@fact
def tile_waves(trace: Trace) -> tuple[TileWaves, ...]:
    """The tile waves of each persistent GEMM of known occupancy, longest total time first."""
    grids = sweeps.launched_grids(trace)
    of_kernel = grids.configurations.of_kernel
    candidates = ((gemm, int(of_kernel[gemm.row])) for gemm in gemm_tiles.persistent_gemms(trace))
    return tuple(
        TileWaves(gemm, grids[place], int(grids.sm_count[place]))
        for gemm, place in candidates
        if place >= 0 and grids.known[place] and grids.whole[place] == 1
    )


# The table of persistent GEMMs and their tile waves.

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
    rows: list[dict[str, Cell]] = []
    for wave in sorted(waves, key=lambda wave: (-(wave.lost_ns or 0), -wave.gemm.total_ns)):
        of, kernel = wave.gemm, wave.grid.configuration
        rows.append(
            {
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
                "tail_idle_pct": 100 * wave.idle_fraction,
                "tail_loss_ns": wave.lost_ns,
                "tiles_to_fill": units.either(wave.fills),
                "calls": of.calls,
                "total_ns": of.total_ns,
                "median_ns": of.median_ns,
                "name": kernel.name,
                **gpu_cells(trace, kernel.device),
            }
        )
    return Table.from_rows(TILES.columns, rows)
