"""The grids that ran, the tiles of persistent GEMMs, and kernels that ran with several grids.

Where a wave is full, one more block costs a whole wave if waves are what counts: the time rises by
a step. Otherwise it rises with the number of blocks.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import numpy as np
import numpy.typing as npt

from traceview.base import groups
from traceview.base.groups import Groups
from traceview.base.records import record
from traceview.base.tables import Integers, Mask, picked
from traceview.base.vocabulary.libraries import Tile
from traceview.base.vocabulary.libraries import tile as tile_of
from traceview.traces.facts import launch_configurations, operations
from traceview.traces.facts.grid_waves import (
    LEAST_IDLE,
    NO_STEP,
    STEP,
    GridColumns,
    LaunchedGrids,
    Neighbours,
    gpu_limits,
    grid_columns,
)
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.steps.steps import kernels_in_warm_up
from traceview.traces.facts.work.from_ranges import Gemm, shaped_gemms
from traceview.traces.trace import Trace, fact

# Persistent GEMMs: kernels that cut a result into more tiles than they have blocks.
#
# On newer GPUs cuBLAS launches no more blocks than there are SMs, and each computes tile after
# tile. The names of its kernels have the tile size; shapes of tensors in the trace (see
# facts/work/from_ranges.py) give the number of tiles.

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
    chosen = selected_operations(trace)[operations.kernel_operations(trace)]
    inside = chosen[shaped.rows]
    rows, of = shaped.rows[inside], shaped.of[inside]
    kernels = trace.recorded("kernels").take(rows)
    names = kernels.texts("name")
    alike = groups.group(names.codes, *(kernels[key] for key in launch_configurations.KEYS), of)
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
    name: str, row: int, grid: launch_configurations.Sides, gemm: Gemm, *times: int
) -> PersistentGemm | None:
    tile = tile_of(name)
    if tile is None or not tile.rows or not tile.columns or _SHARED.search(name):
        return None
    if max(gemm.batch, gemm.m, gemm.n, gemm.k) > _MOST:
        return None
    return PersistentGemm(row, math.prod(grid), gemm, tile, *times)


Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]
Measured = Literal["step", "no step", "level", "rises"]
"""The verdict of two grids; within one wave, whether the time stays level or rises."""
MEASURED: tuple[Measured | None, ...] = (None, "step", "no step", "level", "rises")
"""A column of verdicts holds indices into this."""
_LEVEL, _RISES = 3, 4
TOLERANCE = 0.10
# Two grids tell steps from a steady rise where the two predict times that differ by so much.
_TELLING = 0.20
# Grids differ in size by no more than this factor where one measures the loss of the other.
_NEAR = 2.0
_MOST_NEAR = 8


@record
class GridSweeps:
    """Kernels that ran with several numbers of blocks; one entry per sweep.

    `rows` are the grids of all sweeps, in ascending order of blocks within each, and `sweep` the
    sweep of each of them; `first` and `end` are where a sweep begins and ends in `rows`.
    `predicted` and `measured` are ratios of a grid's time to that of the grid before it, as waves
    predict and as measured. `verdict`, an index into MEASURED, is that of the step between the two:
    None where they do not tell steps from a steady rise, where their blocks cannot have done equal
    work, and for the first grid.
    `overall` is the verdict of a whole sweep, `wave_ns` the measured time of a wave. `of_family`
    has the sweep of each family of configurations, −1 for none.
    """

    grids: GridColumns
    rows: Integers
    sweep: Integers
    first: Integers
    end: Integers
    predicted: Floats
    measured: Floats
    verdict: Codes
    overall: Codes
    at_once: Integers
    wave_ns: Integers
    total_ns: Integers
    of_family: Integers

    def __len__(self) -> int:
        return len(self.first)

    def verdicts_of(self, grids: GridColumns, sweep: Integers) -> Codes:
        """The verdict of each grid, from its sweep, as an index into VERDICTS.

        It is the verdict of the step into the grid's last wave, else of the whole sweep.
        """
        if not len(self):
            return np.zeros(len(grids), np.int8)
        place, within = self._places(grids, sweep)
        last = np.minimum(place, len(self.rows) - 1)
        exact = within & (place > self.first[sweep]) & (place < self.end[sweep])
        exact &= self.grids.blocks[self.rows[last]] == grids.blocks
        step = np.where(exact, self.verdict[last], 0)
        decided = (step == STEP) | (step == NO_STEP)
        overall = np.where(sweep >= 0, self.overall[sweep], 0)
        return np.where(decided, step, overall).astype(np.int8)

    def neighbours_of(self, grids: GridColumns, sweep: Integers) -> Neighbours:
        """The loss of each grid, as shown by the other grids of its sweep.

        The loss is at most the time beyond that of grids that fill their waves, at equal time per
        block. It is also at most the time beyond a grid of fewer waves, as that is the cost of the
        last wave.
        """
        if not len(self):
            return Neighbours.unknown(len(grids))
        place, within = self._places(grids, sweep)
        own_blocks = grids.blocks.astype(np.float64)
        own_ns = grids.configurations.median_ns.astype(np.float64)
        least = np.full(len(grids), np.inf)
        below, below_ns = np.zeros(len(grids), np.int64), np.ones(len(grids))
        for offset in range(-_MOST_NEAR, _MOST_NEAR + 1):
            near = place + offset
            in_sweep = within & (near >= self.first[sweep]) & (near < self.end[sweep])
            row = self.rows[np.where(in_sweep, near, 0)]
            in_sweep &= _equal_work(self.grids, row, grids)
            ns = self.grids.configurations.median_ns[row].astype(np.float64)
            full = in_sweep & (self.grids.idle_fraction[row] < LEAST_IDLE)
            lost = own_ns - own_blocks * ns / np.maximum(self.grids.blocks[row], 1)
            least = np.where(full, np.minimum(least, lost), least)
            fewer = in_sweep & (self.grids.whole[row] < grids.whole)
            least = np.where(fewer, np.minimum(least, own_ns - ns), least)
            nearest = fewer & (self.grids.blocks[row] > below)
            below = np.where(nearest, self.grids.blocks[row], below)
            below_ns = np.where(nearest, ns, below_ns)
        known = np.isfinite(least)
        lost_ns = np.maximum(np.rint(np.where(known, least, 0)), 0).astype(np.int64)
        return Neighbours(known, lost_ns, below, own_ns / below_ns)

    def _places(self, grids: GridColumns, sweep: Integers) -> tuple[Integers, Mask]:
        """The index of each grid in `rows`, by its sweep and size; whether waves are comparable."""
        of_rows, of_grids = self.grids.blocks[self.rows], grids.blocks
        sizes, rank = np.unique(np.concatenate([of_rows, of_grids]), return_inverse=True)
        key = self.sweep * len(sizes) + rank[: len(of_rows)]
        place = np.searchsorted(key, sweep * len(sizes) + rank[len(of_rows) :])
        return place, (sweep >= 0) & grids.known & (grids.at_once == self.at_once[sweep])


def _equal_work(ones: GridColumns, row: Integers, others: GridColumns) -> Mask:
    """Whether equal work per block explains the times of two grids of about the same size."""
    smaller = ones.blocks[row] < others.blocks

    def ratio(one: Integers, other: Integers) -> tuple[Floats, Mask]:
        """The figure of the larger grid ÷ that of the smaller, and whether there is one."""
        below, above = np.where(smaller, one, other), np.where(smaller, other, one)
        return np.divide(above, below, out=np.zeros(len(row)), where=below != 0), below != 0

    steady, _ = ratio(ones.blocks[row], others.blocks)
    predicted, _ = ratio(ones.whole[row], others.whole)
    # Old traces have whole microseconds: a short kernel takes none.
    took = ones.configurations.median_ns[row], others.configurations.median_ns
    measured, takes_time = ratio(*took)
    differ = others.known & (ones.blocks[row] != others.blocks) & takes_time
    return differ & (steady <= _NEAR) & explained_by_waves(predicted, steady, measured)


def explained_by_waves(predicted: Floats, steady: Floats, measured: Floats) -> Mask:
    """Whether ratios of times lie between what waves predict and a steady rise with blocks."""
    low, high = np.minimum(predicted, steady), np.maximum(predicted, steady)
    return (low * (1 - TOLERANCE) <= measured) & (measured <= high * (1 + TOLERANCE))


def sweeps_of(grids: GridColumns, persistent: Mask) -> GridSweeps:
    """The sweeps among these grids; kernels that overlap others and persistent GEMMs are left out.

    Grids of one sweep differ in their number of blocks alone. Sweeps are in the order of their
    first grids.
    """
    of = grids.configurations
    measurable = grids.known & (of.median_ns > 0) & ~grids.concurrent
    rows = _one_of_each_size(grids, np.flatnonzero(measurable & ~persistent))
    family = of.family[rows]
    several = np.bincount(family, minlength=1)[family] > 1
    rows, family = rows[several], family[several]
    leads = groups.group(family)
    earliest = np.full(leads.size, len(grids))
    np.minimum.at(earliest, leads.ids, rows)
    number = np.empty(leads.size, np.int64)
    number[np.argsort(earliest)] = np.arange(leads.size)
    order = np.argsort(number[leads.ids], kind="stable")
    rows, sweep = rows[order], number[leads.ids][order]
    of_family = np.full(int(of.family.max(initial=-1)) + 2, -1)
    of_family[of.family[rows]] = sweep
    return _sweeps(grids, rows, sweep, of_family)


def _sweeps(grids: GridColumns, rows: Integers, sweep: Integers, of_family: Integers) -> GridSweeps:
    size = np.bincount(sweep).astype(np.int64)
    end = np.cumsum(size)
    first = end - size

    def ratio(values: Integers) -> Floats:
        """The figure of each grid ÷ that of the one before it."""
        return np.append(1.0, values[1:] / values[:-1])[: len(values)]

    predicted, measured = ratio(grids.whole[rows]), ratio(grids.configurations.median_ns[rows])
    verdict = step_verdicts(predicted, ratio(grids.blocks[rows]), measured)
    verdict[first] = 0
    # Blocks that each have an SM to themselves wait for no other: where more of them take longer,
    # they did other work.
    alone = grids.blocks[rows] < grids.sm_count[rows]
    verdict[(verdict == _RISES) & alone] = 0
    leads = Groups(sweep, first)
    total_ns = groups.sums(leads, grids.configurations.total_ns[rows])
    # The verdict of most steps across a wave; else `no step` if times rise within waves.
    step, no_step, level, rises = (
        groups.count(leads, verdict == code) for code in (STEP, NO_STEP, _LEVEL, _RISES)
    )
    across = np.where(step > no_step, STEP, NO_STEP)
    within = np.where(rises > level, NO_STEP, 0)
    overall = np.where(step + no_step > 0, across, within).astype(np.int8)
    # The time of one wave, from grids of whole waves where there are any: a lower median.
    full = grids.idle_fraction[rows] < LEAST_IDLE
    counts = full | (groups.count(leads, full) == 0)[leads.ids]
    of = Groups(leads.ids[counts], leads.first)
    counted = groups.count(of)
    middle = np.cumsum(counted) - counted + (counted - 1) // 2
    time_ns = grids.configurations.median_ns[rows] // grids.whole[rows]
    wave_ns = groups.ordered(of, time_ns[counts])[middle]
    figures = (overall, grids.at_once[rows[first]], wave_ns, total_ns, of_family)
    return GridSweeps(grids, rows, sweep, first, end, predicted, measured, verdict, *figures)


def _one_of_each_size(grids: GridColumns, rows: Integers) -> Integers:
    """One grid of each number of blocks per family: of several shapes, the one with most calls.

    Only grids with the family's usual number of blocks per wave, in ascending order of blocks.
    """
    of = grids.configurations
    family, at_once, blocks = of.family[rows], grids.at_once[rows], grids.blocks[rows]
    order = np.lexsort((-of.calls[rows], blocks, at_once, family))
    rows, family, at_once = rows[order], family[order], at_once[order]
    kept = groups.opens(family, at_once, blocks[order])
    rows, family, at_once = rows[kept], family[kept], at_once[kept]
    leads = groups.group(family)
    usual = at_once[leads.first + (groups.count(leads) - 1) // 2]
    return rows[at_once == usual[leads.ids]]


def step_verdicts(predicted: Floats, steady: Floats, measured: Floats) -> Codes:
    """Whether measured ratios of times are what waves predict, or a steady rise with the blocks.

    A verdict is an index into MEASURED: None where both predictions are nearly equal, and where the
    measured ratio is beyond both, because then the blocks did other work.
    """
    tells = np.abs(predicted - steady) > _TELLING * predicted
    tells &= explained_by_waves(predicted, steady, measured)
    agrees = np.abs(measured - predicted) <= TOLERANCE * predicted
    across = np.where(agrees, STEP, NO_STEP)
    within = np.where(agrees, _LEVEL, _RISES)
    return np.where(tells, np.where(predicted > 1, across, within), 0).astype(np.int8)


# No kernel takes longer than this to start and end: most take 1 to 5 µs.
MOST_OVERHEAD_NS = 100_000


@fact
def launched_grids(trace: Trace) -> LaunchedGrids:
    """Every configuration of the selected kernels, longest total time first.

    Grids that ran outside the selection count as measurements of those inside.
    """
    found = every_sweep(trace)
    grids = found.grids
    if trace.selection:
        grids = grid_columns(launch_configurations.configurations(trace), gpu_limits(trace))
    sweep = found.of_family[_family(trace, grids.configurations)]
    verdict, measured = found.verdicts_of(grids, sweep), found.neighbours_of(grids, sweep)
    # Where only long kernels ran, the shortest does not show what any kernel takes: a program of
    # one kernel in one block would lose nothing.
    kernels, shortest_ns = trace.recorded("kernels"), np.full(len(trace.devices), MOST_OVERHEAD_NS)
    np.minimum.at(shortest_ns, kernels["device"], kernels.duration_ns)
    return LaunchedGrids(
        grids.configurations,
        grids.occupancies,
        grids.occupancy,
        grids.blocks,
        grids.at_once,
        grids.sm_count,
        shortest_ns[grids.configurations.device],
        _persistent(trace, grids),
        verdict,
        measured,
    )


def _family(trace: Trace, of: launch_configurations.Configurations) -> Integers:
    """The family of configurations, numbered as in every_configuration."""
    every = launch_configurations.every_configuration(trace)
    return every.family[every.of_kernel[of.row]]


def _persistent(trace: Trace, grids: GridColumns) -> Mask:
    """True for persistent GEMMs."""
    result = np.zeros(len(grids), bool)
    gemms = np.array([gemm.row for gemm in persistent_gemms(trace)], np.int64)
    if not len(gemms):
        return result
    of = grids.configurations
    places = of.of_kernel[gemms]
    # Whatever the driver configured of shared memory, the kernel is the same.
    sides = (each[:, axis] for each in (of.grid, of.block) for axis in range(3))
    used = (of.registers, of.static_bytes, of.dynamic_bytes)
    kernel = groups.group(of.device, of.name.codes, *sides, *used)
    is_gemm = np.zeros(kernel.size, bool)
    is_gemm[kernel.ids[places[places >= 0]]] = True
    # More tiles than blocks show it only where all blocks run at once.
    return is_gemm[kernel.ids] & grids.known & (grids.whole == 1)


@fact
def every_sweep(trace: Trace) -> GridSweeps:
    """The sweeps of all kernels, whatever is selected."""
    grids = grid_columns(launch_configurations.every_configuration(trace), gpu_limits(trace))
    return sweeps_of(grids, _persistent(trace, grids))


@fact
def selected_sweeps(trace: Trace) -> Integers:
    """The sweeps of every_sweep with a selected grid, longest total time first."""
    sweeps = every_sweep(trace)
    chosen = np.zeros(len(sweeps), bool)
    sweep = sweeps.of_family[_family(trace, launch_configurations.configurations(trace))]
    chosen[sweep[sweep >= 0]] = True
    order = groups.most_first(sweeps.total_ns)
    return order[chosen[order]]
