"""Matrix products that a kernel cuts into more tiles than it has blocks.

On newer GPUs cuBLAS starts no more blocks than there are SMs, and each takes tile after tile. The
names of its kernels tell the tile, and where the trace has the shapes of tensors (see
facts/tensor_shapes.py), these tell how many tiles there are.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.analyses.wave_quantization.configurations import KEYS, Key
from traceview.facts.operations.gemm_names import Tile, tile
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.from_ranges import shaped_gemms
from traceview.facts.work.tensor_shapes import Gemm
from traceview.tables import picked
from traceview.trace import Trace, fact

# Several blocks compute one tile together.
_SHARED = re.compile("split_?k|stream_?k|_2cta", re.IGNORECASE)

# Far beyond any tensor, and a column holds it.
_MOST = 1 << 60


@dataclass(frozen=True)
class Tiled:
    """Launches of one configuration that compute a product in more tiles than it has blocks.

    `key` is that of the Configuration. Times are of all `calls` of the selected work, `median_ns`
    of one; `steady_calls` and `steady_ns` are without those of set-up.
    """

    key: Key
    blocks: int
    product: Gemm
    tile: Tile
    calls: int
    total_ns: int
    median_ns: int
    steady_calls: int
    steady_ns: int

    @property
    def tiles(self) -> int:
        return tiles(self.product, self.tile)


def tiles(product: Gemm, cut: Tile) -> int:
    """How many tiles cover the result. torch's rows are cuBLAS's columns: see Tile."""
    across, down = math.ceil(product.n / cut.rows), math.ceil(product.m / cut.columns)
    return product.batch * across * down


@fact
def tiled(trace: Trace) -> tuple[Tiled, ...]:
    """One of each configuration and product of the selected work, those with most time first."""
    told = shaped_gemms(trace)
    if told is None:
        return ()
    chosen = selected_operations(trace)[kernel_operations(trace)]
    inside = chosen[told.rows]
    rows, of = told.rows[inside], told.of[inside]
    kernels = trace.recorded("kernels").take(rows)
    names = kernels.texts("name")
    found = groups.group(names.codes, *(kernels[key] for key in KEYS), of)
    took = kernels.duration_ns
    figures = groups.stats(found, took)
    late = np.flatnonzero(~picked(kernels_in_warm_up(trace), rows))
    steady = groups.Groups(found.ids[late], found.first)
    of_steady = groups.count(steady), groups.sums(steady, took[late])
    times = (figures.calls, figures.total, figures.median, *of_steady)
    made = (
        _tiled((str(name), *key), told.gemms[number], *taken)
        for name, *key, number, taken in zip(
            names.take(found.first).decode(),
            *(kernels[key][found.first].tolist() for key in KEYS),
            of[found.first].tolist(),
            zip(*(each.tolist() for each in times), strict=True),
            strict=True,
        )
    )
    many = (each for each in made if each is not None and each.blocks < each.tiles < _MOST)
    return tuple(sorted(many, key=lambda each: -each.total_ns))


def _tiled(key: Key, product: Gemm, *times: int) -> Tiled | None:
    cut = tile(str(key[0]))
    if cut is None or not cut.rows or not cut.columns or _SHARED.search(str(key[0])):
        return None
    if max(product.batch, product.m, product.n, product.k) > _MOST:
        return None
    _, _, *grid = key[:5]
    return Tiled(key, math.prod(int(side) for side in grid), product, cut, *times)
