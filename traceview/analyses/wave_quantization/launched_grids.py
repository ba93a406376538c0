"""The grids that ran, and the sweeps among them."""

from __future__ import annotations

from dataclasses import replace

from traceview import groups
from traceview.analyses.wave_quantization.configurations import configurations
from traceview.analyses.wave_quantization.gemm_tiles import persistent_gemms
from traceview.analyses.wave_quantization.gpu_limits import gpu_limits
from traceview.analyses.wave_quantization.grid_waves import LaunchedGrid, occupancy_of
from traceview.analyses.wave_quantization.sweeps import Sweep, sweeps_of
from traceview.trace import Trace, fact


@fact
def launched_grids(trace: Trace) -> tuple[LaunchedGrid, ...]:
    """Every configuration of the selected kernels, longest total time first."""
    limits, shortest_ns = gpu_limits(trace), _shortest_ns(trace)
    persistent = {gemm.key for gemm in persistent_gemms(trace)}
    grids = [
        LaunchedGrid(
            each,
            occupancy_of(each, limits[each.device]),
            shortest_ns[each.device],
            each.key in persistent,
        )
        for each in configurations(trace)
    ]
    verdicts = {sweep.grids[0].configuration.family: sweep.verdict for sweep in sweeps_of(grids)}
    return tuple(replace(each, verdict=verdicts.get(each.configuration.family)) for each in grids)


def _shortest_ns(trace: Trace) -> dict[int, int]:
    """The shortest kernel of each GPU."""
    kernels = trace.recorded("kernels")
    return {
        device: int(kernels.duration_ns[kernels["device"] == device].min())
        for device in groups.different(kernels["device"]).tolist()
    }


@fact
def sweeps(trace: Trace) -> tuple[Sweep, ...]:
    """The sweeps of the selected kernels, longest total time first."""
    found = sweeps_of(launched_grids(trace))
    return tuple(
        sorted(found, key=lambda sweep: -sum(each.configuration.total_ns for each in sweep.grids))
    )
