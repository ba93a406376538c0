"""The grids that ran, and the sweeps among them."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.wave_quantization.configurations import (
    Configurations,
    configurations,
    every_configuration,
)
from traceview.analyses.wave_quantization.gemm_tiles import persistent_gemms
from traceview.analyses.wave_quantization.gpu_limits import gpu_limits
from traceview.analyses.wave_quantization.grid_waves import (
    GridColumns,
    LaunchedGrids,
    grid_columns,
)
from traceview.analyses.wave_quantization.sweeps import GridSweeps, sweeps_of
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact

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
        grids = grid_columns(configurations(trace), gpu_limits(trace))
    sweep = found.of_family[_family(trace, grids.configurations)]
    verdict, measured = found.verdicts_of(grids, sweep), found.neighbours_of(grids, sweep)
    return LaunchedGrids(
        grids.configurations,
        grids.occupancies,
        grids.occupancy,
        grids.blocks,
        grids.at_once,
        grids.sm_count,
        _shortest_ns(trace)[grids.configurations.device],
        _persistent(trace, grids),
        verdict,
        measured,
    )


def _family(trace: Trace, of: Configurations) -> Integers:
    """The family of configurations, numbered as in every_configuration."""
    every = every_configuration(trace)
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
    mask: Mask = is_gemm[kernel.ids] & grids.known & (grids.whole == 1)
    return mask


@fact
def every_sweep(trace: Trace) -> GridSweeps:
    """The sweeps of all kernels, whatever is selected."""
    grids = grid_columns(every_configuration(trace), gpu_limits(trace))
    return sweeps_of(grids, _persistent(trace, grids))


def _shortest_ns(trace: Trace) -> Integers:
    """The shortest kernel of each row of devices, at most MOST_OVERHEAD_NS.

    Where only long kernels ran, the shortest does not show what any kernel takes: a program of one
    kernel in one block would lose nothing.
    """
    kernels = trace.recorded("kernels")
    result = np.full(len(trace.devices), MOST_OVERHEAD_NS)
    np.minimum.at(result, kernels["device"], kernels.duration_ns)
    return result


@fact
def selected_sweeps(trace: Trace) -> Integers:
    """The sweeps of every_sweep with a selected grid, longest total time first."""
    sweeps = every_sweep(trace)
    chosen = np.zeros(len(sweeps), bool)
    sweep = sweeps.of_family[_family(trace, configurations(trace))]
    chosen[sweep[sweep >= 0]] = True
    order = groups.most_first(sweeps.total_ns)
    return order[chosen[order]]
