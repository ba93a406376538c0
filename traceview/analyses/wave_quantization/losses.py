"""Time that fuller waves of blocks or tiles, or fuller warps, could save per kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.analyses.wave_quantization import configurations, gemm_waves, sweeps
from traceview.analyses.wave_quantization.grid_waves import LEAST_IDLE, LaunchedGrid, LaunchedGrids
from traceview.facts.idle.gaps import busy, steady_span_ns
from traceview.facts.idle.gpu_limited import claimable_ns, kernels_named
from traceview.findings import severity_of
from traceview.hardware import occupancy
from traceview.records import record
from traceview.tables import Integers
from traceview.trace import Trace, fact
from traceview.vocabulary.amounts import WARP_THREADS

Part = TypeVar("Part")
# With fewer lanes idle, larger blocks are not a sure gain.
_LEAST_LANES = 0.25
_LARGER_BLOCK = 256


@record
class Loss(Generic[Part]):
    """The time that one kernel loses at most, without its launches of warm-up.

    `worst` is the costliest of its `parts` grids, or GEMMs. Grids are either all of several waves
    or all of less than one. `early_calls` are the launches of warm-up, `steady_ns` the time of the
    others, and `limited_ns` the kernel's time on the critical path.
    """

    lost_ns: int
    worst: Part
    parts: int
    early_calls: int
    steady_ns: int
    limited_ns: int | None = None

    @property
    def saved_ns(self) -> int:
        """The most the program gains: off the critical path the GPU would only wait longer."""
        return self.lost_ns if self.limited_ns is None else min(self.lost_ns, self.limited_ns)


@fact
def grid_losses(trace: Trace) -> tuple[Loss[LaunchedGrid], ...]:
    """Losses of grids, by kernel, the greatest first."""
    grids = sweeps.launched_grids(trace)
    lost = grids.steady_lost_ns
    rows = np.flatnonzero((lost > 0) & (grids.idle_fraction >= LEAST_IDLE))
    return _by_kernel(trace, grids, rows, lost)


def block_losses(trace: Trace) -> tuple[Loss[LaunchedGrid], ...]:
    """Losses of blocks of part of a warp, by kernel, the greatest first.

    Grids that leave SMs idle are left out: giving those SMs blocks comes first.
    """
    grids = sweeps.launched_grids(trace)
    of = grids.configurations
    fills = grids.known & (grids.idle_sms == 0) & ~grids.concurrent & (of.steady_ns > 0)
    lanes_idle = idle_lanes(of.threads)
    rows = np.flatnonzero(fills & (lanes_idle >= _LEAST_LANES))
    lost = np.zeros(len(grids), np.int64)
    limits = configurations.gpu_limits(trace)
    for row in rows.tolist():
        known, grid = limits[int(of.device[row])], grids[row]
        if not isinstance(known, configurations.GpuLimits):
            continue
        # The threads that an SM holds, as a fraction of those of larger blocks.
        held = 1 - float(lanes_idle[row])
        if grid.occupancy is not None and full_of_blocks(grid):
            registers = grid.configuration.registers
            larger = occupancy(known.limits, _LARGER_BLOCK, registers).theoretical_occupancy_pct
            held_pct = grid.occupancy.theoretical_occupancy_pct
            held *= min(held_pct / larger, 1.0) if larger else 1.0
        lost[row] = round(int(of.steady_ns[row]) * (1 - held))
    return _by_kernel(trace, grids, rows, lost)


def idle_lanes(threads: Integers) -> npt.NDArray[np.float64]:
    """The fraction of the lanes of their warps that blocks of so many threads leave idle."""
    lanes = np.maximum(-(-threads // WARP_THREADS), 1) * WARP_THREADS
    idle: npt.NDArray[np.float64] = 1 - threads / lanes
    return idle


def full_of_blocks(grid: LaunchedGrid) -> bool:
    """Whether SMs wait for blocks to end although they could hold more threads."""
    held = grid.occupancy
    return held is not None and held.limiter == "blocks" and held.waves.whole > 1


def _by_kernel(
    trace: Trace, grids: LaunchedGrids, rows: Integers, lost: Integers
) -> tuple[Loss[LaunchedGrid], ...]:
    """The losses of these grids by kernel, grids of one wave apart from those of several."""
    of = grids.configurations
    by = groups.group(of.family[rows], grids.whole[rows] > 1)
    totals = capped_losses(groups.sums(by, lost[rows]), of.device[rows[by.first]], _busy_ns(trace))
    early = groups.sums(by, (of.calls - of.steady_calls)[rows])
    steady_ns = groups.sums(by, of.steady_ns[rows])
    # The costliest grid of each group, the first of equal ones.
    order = np.lexsort((rows, -lost[rows], by.ids))
    worst = rows[order[groups.opens(by.ids[order])]]
    figures = (groups.count(by), early, steady_ns)
    first = np.argsort(by.first, kind="stable")
    ranked = first[groups.most_first(totals[first])]
    span_ns = steady_span_ns(trace)
    worth = takewhile(lambda place: severity_of(int(totals[place]), span_ns), ranked.tolist())
    losses = [
        Loss(int(totals[place]), grids[worst[place]], *(int(figure[place]) for figure in figures))
        for place in worth
    ]
    return _on_path(trace, ((loss, [loss.worst.configuration]) for loss in losses))


@fact
def tile_losses(trace: Trace) -> tuple[Loss[gemm_waves.TileWaves], ...]:
    """Losses of persistent GEMMs, by kernel, the greatest first."""
    kernels: dict[tuple[int, str], list[gemm_waves.TileWaves]] = defaultdict(list)
    for waves in gemm_waves.tile_waves(trace):
        if waves.steady_lost_ns and waves.idle_fraction >= LEAST_IDLE:
            kernels[waves.grid.configuration.device, waves.grid.configuration.label].append(waves)
    busy_ns, losses = _busy_ns(trace), []
    for (device, _), parts in kernels.items():
        loss = Loss(
            min(sum(part.steady_lost_ns or 0 for part in parts), int(busy_ns[device])),
            max(parts, key=lambda part: part.steady_lost_ns or 0),
            len(parts),
            sum(part.gemm.calls - part.gemm.steady_calls for part in parts),
            sum(part.gemm.steady_ns for part in parts),
        )
        losses.append((loss, [part.grid.configuration for part in parts]))
    return _on_path(trace, sorted(losses, key=lambda pair: -pair[0].lost_ns))


def _on_path(
    trace: Trace, losses: Iterable[tuple[Loss[Part], Sequence[configurations.Configuration]]]
) -> tuple[Loss[Part], ...]:
    """The losses worth a finding, with the time of their kernels on the critical path."""
    on_path, span_ns = [], steady_span_ns(trace)
    for loss, kernels in losses:
        if severity_of(loss.lost_ns, span_ns):
            device, names = kernels[0].device, (kernel.name for kernel in kernels)
            limited_ns = claimable_ns(trace, device, kernels_named(trace, device, names))
            on_path.append(replace(loss, limited_ns=limited_ns))
    return tuple(on_path)


def _busy_ns(trace: Trace) -> Integers:
    """Busy time of each row of devices."""
    result = np.zeros(len(trace.devices), np.int64)
    for device, covered in busy(trace).items():
        result[device] = covered.total()
    return result


def capped_losses(lost_ns: Integers, device: Integers, busy_ns: Integers) -> Integers:
    """Losses of kernels, capped at the busy time of their device, as launches may overlap."""
    return np.minimum(lost_ns, busy_ns[device])
