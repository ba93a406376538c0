"""Persistent GEMMs: kernels that cut a result into more tiles than they have blocks.

On newer GPUs cuBLAS launches no more blocks than there are SMs, and each computes tile after tile.
The names of its kernels have the tile size; shapes of tensors in the trace (see
facts/work/tensor_shapes.py) give the number of tiles.
"""

from __future__ import annotations

import math
import re

import numpy as np

from traceview import groups
from traceview.analyses.wave_quantization.configurations import KEYS, Sides
from traceview.facts.ranges.selection import selected_kernels
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.from_ranges import shaped_gemms
from traceview.facts.work.tensor_shapes import Gemm
from traceview.records import record
from traceview.tables import picked
from traceview.trace import Trace, fact
from traceview.vocabulary.libraries import Tile
from traceview.vocabulary.libraries import tile as tile_of

# Kernels whose blocks share a tile.
_SHARED = re.compile("split_?k|stream_?k|_2cta", re.IGNORECASE)

# Far beyond any tensor, and a column holds it.
_MOST = 1 << 60


@record
class PersistentGemm:
    """Launches of one configuration that compute one GEMM in more tiles than blocks.

    `row` is a row of kernels with that configuration. Times are of all `calls` of the selected
    work, `median_ns` of one; `steady_calls` and `steady_ns` leave out those of warm-up.
    """

    row: int
    blocks: int
    gemm: Gemm
    tile: Tile
    calls: int
    total_ns: int
    median_ns: int
    steady_calls: int
    steady_ns: int

    @property
    def tiles(self) -> int:
        """Tiles that cover the result."""
        return tiles(self.gemm, self.tile)


def tiles(gemm: Gemm, tile: Tile) -> int:
    """The tiles that cover the result of a GEMM. torch's rows are cuBLAS's columns: see Tile."""
    return gemm.batch * math.ceil(gemm.n / tile.rows) * math.ceil(gemm.m / tile.columns)


@fact
def persistent_gemms(trace: Trace) -> tuple[PersistentGemm, ...]:
    """One per configuration and GEMM of the selected work, longest total time first."""
    shaped = shaped_gemms(trace)
    if shaped is None:
        return ()
    chosen = selected_kernels(trace)
    inside = chosen[shaped.rows]
    rows, of = shaped.rows[inside], shaped.of[inside]
    kernels = trace.recorded("kernels").take(rows)
    names = kernels.texts("name")
    alike = groups.group(names.codes, *(kernels[key] for key in KEYS), of)
    duration_ns = kernels.duration_ns
    figures = groups.stats(alike, duration_ns)
    late = np.flatnonzero(~picked(kernels_in_warm_up(trace), rows))
    steady = groups.Groups(alike.ids[late], alike.first)
    of_steady = groups.count(steady), groups.sums(steady, duration_ns[late])
    times = (figures.calls, figures.total, figures.median, *of_steady)
    candidates = (
        _persistent_gemm(str(name), row, sides, shaped.gemms[number], *figures_of)
        for name, row, sides, number, figures_of in zip(
            names.take(alike.first).decode(),
            rows[alike.first].tolist(),
            zip(*(kernels[f"grid_{axis}"][alike.first].tolist() for axis in "xyz"), strict=True),
            of[alike.first].tolist(),
            zip(*(each.tolist() for each in times), strict=True),
            strict=True,
        )
    )
    several = (each for each in candidates if each and each.blocks < each.tiles < _MOST)
    return tuple(sorted(several, key=lambda each: -each.total_ns))


def _persistent_gemm(
    name: str, row: int, grid: Sides, gemm: Gemm, *times: int
) -> PersistentGemm | None:
    tile = tile_of(name)
    if tile is None or not tile.rows or not tile.columns or _SHARED.search(name):
        return None
    if max(gemm.batch, gemm.m, gemm.n, gemm.k) > _MOST:
        return None
    return PersistentGemm(row, math.prod(grid), gemm, tile, *times)
