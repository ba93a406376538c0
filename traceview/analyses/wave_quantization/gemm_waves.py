"""Tile waves of a persistent GEMM.

Each block takes the next tile until none is left. With as many blocks as the GPU holds at once, all
take one tile per wave, and in the last wave some get none. The grid of such a kernel is a single
wave of blocks, which shows nothing of this. SMs without a block stay idle in every tile wave.
"""

from __future__ import annotations

import math

from traceview.analyses.wave_quantization.gemm_tiles import PersistentGemm, persistent_gemms
from traceview.analyses.wave_quantization.grid_waves import LaunchedGrid
from traceview.analyses.wave_quantization.launched_grids import launched_grids
from traceview.hardware.waves import filling_sizes
from traceview.records import record
from traceview.trace import Trace, fact


@record
class TileWaves:
    """The tile waves of a persistent GEMM, launched as `grid` on a GPU of `sm_count` SMs."""

    gemm: PersistentGemm
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
    grids = launched_grids(trace)
    of_kernel = grids.configurations.of_kernel
    candidates = ((gemm, int(of_kernel[gemm.row])) for gemm in persistent_gemms(trace))
    return tuple(
        TileWaves(gemm, grids[place], int(grids.sm_count[place]))
        for gemm, place in candidates
        if place >= 0 and grids.known[place] and grids.whole[place] == 1
    )
