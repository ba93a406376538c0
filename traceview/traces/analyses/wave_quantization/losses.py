"""Time that fuller waves of blocks or tiles, or fuller warps, could save per kernel."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals, units
from traceview.base.findings import severity_of
from traceview.base.hardware import SmLimits, occupancy
from traceview.base.hardware.occupancy import filling_sizes
from traceview.base.records import record
from traceview.base.tables import Cell, Integers, Table, TableSpec, column_list
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.traces.analyses.wave_quantization import sweeps
from traceview.traces.facts import grid_waves, launch_configurations, savings
from traceview.traces.facts.grid_waves import LaunchedGrid
from traceview.traces.facts.idle import gaps, page_migrations
from traceview.traces.facts.kernel_classes import KernelClass, KernelOwner, classify, owner_of
from traceview.traces.facts.operations import HOST, gpu_cells
from traceview.traces.rules import of_kernels, steady
from traceview.traces.trace import Trace, fact

# Tile waves of a persistent GEMM.
#
# Each block takes the next tile until none is left. With as many blocks as the GPU holds at once,
# all take one tile per wave, and in the last wave some get none. The grid of such a kernel is a
# single wave of blocks, which shows nothing of this. SMs without a block stay idle in every tile
# wave.


@record
class TileWaves:
    """The tile waves of a persistent GEMM, launched as `grid` on a GPU of `sm_count` SMs."""

    gemm: sweeps.PersistentGemm
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
    candidates = ((gemm, int(of_kernel[gemm.row])) for gemm in sweeps.persistent_gemms(trace))
    return tuple(
        TileWaves(gemm, grids[place], int(grids.sm_count[place]))
        for gemm, place in candidates
        if place >= 0 and grids.known[place] and grids.whole[place] == 1
    )


TILES = TableSpec(
    "tiles",
    "persistent GEMMs, whose blocks compute several tiles each; most time lost first",
    column_list(f"""
        short_name text: base name of the kernel
        label text: base name, with what distinguishes it from others of that name
        batch int64: GEMMs per call
        m int64: rows of the result
        n int64: columns of the result
        k int64: inner dimension
        tile text: rows × columns of the result per tile
        tiles int64: tiles that cover the result
        blocks int64: blocks of the grid
        rounds float64: tile waves: tiles ÷ blocks
        tail_idle_pct float64: tile slots, over all waves, that stay unused
        tail_loss_ns int64?: at most, over all calls: time × that percentage; absent beside other
            kernels
        tiles_to_fill text: nearest numbers of tiles that fill whole waves
        calls int64: launches
        total_ns int64: GPU time of all calls
        median_ns int64: median time per call
        name text: demangled, whole
        device_id int64: GPU
        {HOST}
    """),
    brief=(
        "label m n k tiles blocks rounds tail_idle_pct tail_loss_ns total_ns tiles_to_fill batch "
        "tile"
    ),
    adds="calls total_ns tail_loss_ns",
    rare=True,
)


def tile_table(trace: Trace) -> Table:
    """The rows of TILES, most time lost first."""
    ranked = sorted(tile_waves(trace), key=lambda each: (-(each.lost_ns or 0), -each.gemm.total_ns))
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


Part = TypeVar("Part")
# With fewer lanes idle, larger blocks are not a sure gain.
_LEAST_LANES = 0.25
_LARGER_BLOCK = 256
_FAULTING = 0.1
"""Pages moved for 26 to 47 % of the time of four public kernels that page faults held up, and for
0.4 % of that of two that one thread ran."""
_FIRST_PAGE_NS = 1_000_000
"""The first page of a kernel comes within this time: after 0.44 ms of the 0.47 that 4,096 additions
take (a public recording)."""


@record
class Loss(Generic[Part]):
    """The time that one kernel loses at most, without its launches of warm-up.

    `worst` is the costliest of its `parts` grids, or GEMMs. Grids are either all of several waves
    or all of less than one. Kernels with `few_warps` are one loss, their labels in `kernels`.
    `early_calls` are the launches of warm-up, `steady_ns` the time of the others, and `gain` what
    the program gains if each of these takes the same part of its time less.
    """

    lost_ns: int
    worst: Part
    parts: int
    early_calls: int
    steady_ns: int
    gain: savings.Gain | None = None
    kernels: tuple[str, ...] = ()

    @property
    def saved_ns(self) -> int:
        """The time that the program gains."""
        return self.lost_ns if self.gain is None else self.gain.saved_ns


@fact
def grid_losses(trace: Trace) -> tuple[Loss[grid_waves.LaunchedGrid], ...]:
    """Losses of grids, by kernel, the greatest first."""
    grids = sweeps.launched_grids(trace)
    lost = _beside_faults(trace, grids)
    rows = np.flatnonzero((lost > 0) & (grids.idle_fraction >= grid_waves.LEAST_IDLE))
    return _by_kernel(trace, grids, rows, lost)


def _beside_faults(trace: Trace, grids: grid_waves.LaunchedGrids) -> Integers:
    """The losses of grids, those in which pages of unified memory move apart: −1 for none.

    Blocks wait for pages then, whatever the grid: its SMs have their part of the rest of the time,
    and which blocks are in the last wave says nothing.
    """
    kernels, of = trace.recorded("kernels"), grids.configurations
    moving = np.zeros(len(of), np.int64)
    for device, moved in page_migrations.fault_times(trace).items():
        rows = np.flatnonzero((kernels["device"] == device) & (of.of_kernel >= 0))
        start, end = kernels["start_ns"][rows], kernels["end_ns"][rows]
        shared = intervals.overlap(moved, start, end)
        # Until its first page is there, a kernel waits for it.
        first = np.append(moved.start, np.iinfo(np.int64).max)
        first = first[np.searchsorted(moved.start, start)]
        waits = (first < end) & (first - start <= _FIRST_PAGE_NS)
        shared += np.where(waits, first - start, 0)
        moving += groups.added(of.of_kernel[rows], shared, len(of))
    share = moving / np.maximum(of.total_ns, 1)
    lost = np.rint(grids.steady_lost_ns * (1 - np.minimum(share, 1))).astype(np.int64)
    return np.where((grids.whole > 1) & (share >= _FAULTING), -1, lost)


def block_losses(trace: Trace) -> tuple[Loss[grid_waves.LaunchedGrid], ...]:
    """Losses of blocks of part of a warp, by kernel, the greatest first.

    Grids that leave SMs idle are left out: giving those SMs blocks comes first.
    """
    grids = sweeps.launched_grids(trace)
    of = grids.configurations
    fills = grids.known & (grids.idle_sms == 0) & ~grids.concurrent & (of.steady_ns > 0)
    rows = np.flatnonzero(fills & (idle_lanes(of.threads) >= _LEAST_LANES))
    lost = np.zeros(len(grids), np.int64)
    limits = grid_waves.gpu_limits(trace)
    for row in rows.tolist():
        known = limits[int(of.device[row])]
        if isinstance(known, grid_waves.GpuLimits):
            lost[row] = round(int(of.steady_ns[row]) * (1 - _of_threads(grids[row], known.limits)))
    return _by_kernel(trace, grids, rows, lost)


def idle_lanes(threads: Integers) -> npt.NDArray[np.float64]:
    """The fraction of the lanes of their warps that blocks of so many threads leave idle."""
    lanes = np.maximum(-(-threads // WARP_THREADS), 1) * WARP_THREADS
    return 1 - threads / lanes


def full_of_blocks(grid: grid_waves.LaunchedGrid) -> bool:
    """Whether SMs wait for blocks to end although they could hold more threads."""
    held = grid.occupancy
    return held is not None and held.limiter == "blocks" and held.waves.whole > 1


def _of_threads(grid: grid_waves.LaunchedGrid, limits: SmLimits) -> float:
    """The threads of a grid that an SM holds, as a fraction of those of larger blocks."""
    of = grid.configuration
    lanes = 1 - float(idle_lanes(np.array([of.threads]))[0])
    if grid.occupancy is None or not full_of_blocks(grid):
        return lanes
    larger = occupancy(limits, _LARGER_BLOCK, of.registers).theoretical_occupancy_pct
    held = grid.occupancy.theoretical_occupancy_pct
    return lanes * min(held / larger, 1.0) if larger else lanes


_FEW_WARPS_PCT = 25.0
"""Of those of an SM. Kernels of 99 blocks of 8 warps and of 128 of 4, of 64 on each of 132 SMs,
move a tenth of what the memory does, or less (a public program, recorded on an H200)."""


def few_warps(grid: grid_waves.LaunchedGrid) -> tuple[int, int] | None:
    """Warps of a block and of an SM, where the program's kernel gives none more than one block.

    None where the SMs with a block have warps enough. A kernel of one warp may be a delay.
    """
    of, held = grid.configuration, grid.occupancy
    own = owner_of(of.name) is KernelOwner.PROGRAM and of.threads > WARP_THREADS
    if held is None or not own or not 1 < of.blocks <= held.waves.sm_count:
        return None
    if classify(of.name) in (KernelClass.GEMM, KernelClass.ATTENTION):
        # Their pipeline inside a warp hides latency, not other warps.
        return None
    warps = -(-of.threads // WARP_THREADS)
    most = round(100 * warps * held.blocks_per_sm / max(held.theoretical_occupancy_pct, 1))
    return (warps, most) if 100 * warps <= _FEW_WARPS_PCT * most else None


def _by_kernel(
    trace: Trace, grids: grid_waves.LaunchedGrids, rows: Integers, lost: Integers
) -> tuple[Loss[grid_waves.LaunchedGrid], ...]:
    """The losses of these grids by kernel, grids of one wave apart from those of several.

    Kernels with few warps are one loss, as one change mends all.
    """
    of = grids.configurations
    family = of.family[rows].astype(np.int64)
    small = np.flatnonzero((grids.idle_sms[rows] > 0) & (grids.blocks[rows] > 1))
    for own in groups.rows_of(family[small]).values():
        if few_warps(grids[rows[small[own[0]]]]):
            family[small[own]] = -1 - of.device[rows[small[own]]]
    by = groups.group(family, grids.whole[rows] > 1)
    totals = capped_losses(groups.sums(by, lost[rows]), of.device[rows[by.first]], _busy_ns(trace))
    early = groups.sums(by, (of.calls - of.steady_calls)[rows])
    steady_ns = groups.sums(by, of.steady_ns[rows])
    # The costliest grid of each group, the first of equal ones.
    order = np.lexsort((rows, -lost[rows], by.ids))
    worst = rows[order[groups.opens(by.ids[order])]]
    parts = groups.count(by)
    first = np.argsort(by.first, kind="stable")
    ranked = first[groups.most_first(totals[first])]
    span_ns = gaps.steady_span_ns(trace)
    worth = takewhile(lambda place: severity_of(int(totals[place]), span_ns), ranked.tolist())
    losses = []
    for place in worth:
        figures = int(totals[place]), int(early[place]), int(steady_ns[place])
        of_kernels = rows[order[by.ids[order] == place]]
        of_kernels = of_kernels[np.sort(groups.group(of.family[of_kernels]).first)]
        each = [of[row] for row in of_kernels.tolist()]
        labels = tuple(one.label for one in each)
        loss = Loss(figures[0], grids[worst[place]], int(parts[place]), *figures[1:])
        losses.append((replace(loss, kernels=labels), each))
    return _gaining(trace, losses)


@fact
def tile_losses(trace: Trace) -> tuple[Loss[TileWaves], ...]:
    """Losses of persistent GEMMs, by kernel, the greatest first."""
    kernels: dict[tuple[int, str], list[TileWaves]] = defaultdict(list)
    for each in tile_waves(trace):
        if each.steady_lost_ns and each.idle_fraction >= grid_waves.LEAST_IDLE:
            kernels[each.grid.configuration.device, each.grid.configuration.label].append(each)
    busy_ns = _busy_ns(trace)
    losses = [
        (_tile_loss(parts, int(busy_ns[device])), [part.grid.configuration for part in parts])
        for (device, _), parts in kernels.items()
    ]
    return _gaining(trace, sorted(losses, key=lambda each: -each[0].lost_ns))


def _tile_loss(parts: Sequence[TileWaves], busy_ns: int) -> Loss[TileWaves]:
    lost_ns = min(sum(each.steady_lost_ns or 0 for each in parts), busy_ns)
    worst = max(parts, key=lambda each: each.steady_lost_ns or 0)
    early_calls = sum(each.gemm.calls - each.gemm.steady_calls for each in parts)
    steady_ns = sum(each.gemm.steady_ns for each in parts)
    return Loss(lost_ns, worst, len(parts), early_calls, steady_ns)


def _gaining(
    trace: Trace, losses: Iterable[tuple[Loss[Part], Sequence[launch_configurations.Configuration]]]
) -> tuple[Loss[Part], ...]:
    """The losses worth a finding, with what the program gains without them."""
    result, span_ns = [], gaps.steady_span_ns(trace)
    kernels = trace.recorded("kernels")
    for loss, of in losses:
        if severity_of(loss.lost_ns, span_ns):
            names = list({each.name for each in of})
            chosen = kernels.texts("name").isin(names) & (kernels["device"] == of[0].device)
            rows = steady(trace, chosen)
            duration_ns = kernels.duration_ns[rows]
            part = min(loss.lost_ns / max(int(duration_ns.sum()), 1), 1.0)
            less_ns: Integers = np.ceil(duration_ns * part).astype(np.int64)
            gain = of_kernels(trace, rows, savings.faster(less_ns)).at_most(loss.lost_ns)
            result.append(replace(loss, gain=gain))
    return tuple(result)


def _busy_ns(trace: Trace) -> Integers:
    """Busy time of each row of devices."""
    result = np.zeros(len(trace.devices), np.int64)
    for device, covered in gaps.busy(trace).items():
        result[device] = covered.total()
    return result


def capped_losses(lost_ns: Integers, device: Integers, busy_ns: Integers) -> Integers:
    """Losses of kernels, capped at the busy time of their device, as launches may overlap."""
    return np.minimum(lost_ns, busy_ns[device])
