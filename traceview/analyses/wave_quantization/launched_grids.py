"""The grids that ran, and the sweeps among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from traceview import groups
from traceview.analyses.wave_quantization.configurations import (
    Configuration,
    configurations,
    every_configuration,
)
from traceview.analyses.wave_quantization.gemm_tiles import persistent_gemms
from traceview.analyses.wave_quantization.gpu_limits import gpu_limits
from traceview.analyses.wave_quantization.grid_waves import LaunchedGrid, occupancy_of
from traceview.analyses.wave_quantization.sweeps import GridSweep, sweeps_of
from traceview.trace import Trace, fact


@fact
def launched_grids(trace: Trace) -> tuple[LaunchedGrid, ...]:
    """Every configuration of the selected kernels, longest total time first.

    Grids that ran outside the selection count as measurements of those inside.
    """
    by_family = {sweep.grids[0].configuration.family: sweep for sweep in _every_sweep(trace)}
    return tuple(
        _measured(each, by_family.get(each.configuration.family))
        for each in _grids(trace, configurations(trace))
    )


def _grids(trace: Trace, found: Iterable[Configuration]) -> Iterator[LaunchedGrid]:
    limits, shortest_ns = gpu_limits(trace), _shortest_ns(trace)
    persistent = {gemm.key for gemm in persistent_gemms(trace)}
    for each in found:
        occupancy = occupancy_of(each, limits[each.device])
        # More tiles than blocks show it only where all blocks run at once.
        one_wave = occupancy is not None and occupancy.waves.whole == 1
        is_persistent = one_wave and each.key in persistent
        yield LaunchedGrid(each, occupancy, shortest_ns[each.device], is_persistent)


@fact
def _every_sweep(trace: Trace) -> tuple[GridSweep, ...]:
    """The sweeps of all kernels, whatever is selected."""
    return tuple(sweeps_of(_grids(trace, every_configuration(trace))))


def _measured(grid: LaunchedGrid, sweep: GridSweep | None) -> LaunchedGrid:
    """The grid with what its sweep shows of it."""
    if sweep is None or grid.waves is None or grid.waves.at_once != sweep.at_once:
        return grid if sweep is None else replace(grid, verdict=sweep.verdict)
    verdict = sweep.verdict_of(grid.configuration.blocks)
    return replace(grid, verdict=verdict, measured=sweep.neighbours_of(grid))


def _shortest_ns(trace: Trace) -> dict[int, int]:
    """The shortest kernel of each GPU."""
    kernels = trace.recorded("kernels")
    return {
        device: int(kernels.duration_ns[kernels["device"] == device].min())
        for device in groups.different(kernels["device"]).tolist()
    }


@fact
def sweeps(trace: Trace) -> tuple[GridSweep, ...]:
    """The sweeps of which some grid is selected, longest total time first."""
    chosen = {each.family for each in configurations(trace)}
    found = [s for s in _every_sweep(trace) if s.grids[0].configuration.family in chosen]
    return tuple(
        sorted(found, key=lambda sweep: -sum(each.configuration.total_ns for each in sweep.grids))
    )
