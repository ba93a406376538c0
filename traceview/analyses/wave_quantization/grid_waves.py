"""Waves of the grids that ran, and the time that their last wave loses at most.

The wave model is that of hardware/waves.py: if all blocks take the same time, a launch takes its
number of waves, rounded up, times that of one, and block slots unused in the last wave are lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from traceview.analyses.wave_quantization.configurations import Configuration
from traceview.analyses.wave_quantization.gpu_limits import GpuLimits, UnknownLimits
from traceview.hardware import Occupancy, SmLimits, occupancy
from traceview.hardware.waves import Waves, waves_of

Verdict = Literal["step", "no step"]
"""Whether the times of a kernel rise by a step where a wave is full."""
# A kernel that shares the GPU for more of its time than this has others to fill its last wave.
_BESIDE = 0.5
# Some tail is left whatever the grid: with a smaller fraction unused, it counts as full.
LEAST_IDLE = 0.05
# With less of its predicted loss measured, a grid loses nothing.
_LEAST_SHOWN = 0.1
_MOST_KEPT = 4096
CONFIGURED = "shared memory config"


@dataclass(frozen=True)
class GridOccupancy:
    """The occupancy of a grid, and its waves.

    `limiter` is what keeps an SM from holding more blocks: a limiter of hardware/occupancy.py,
    CONFIGURED where the driver configured less shared memory than the SM has, or `clusters`.
    """

    blocks_per_sm: int
    theoretical_occupancy_pct: float
    limiter: str
    waves: Waves


@dataclass(frozen=True)
class Neighbours:
    """What a call loses at most, as measured on grids of the kernel that do equal work per block.

    `lost_ns` is the least that any of them allows. `blocks` is the size of the nearest smaller one
    that needs fewer waves, and `factor` the time of a call ÷ that of one of its calls; None
    without such a grid.
    """

    lost_ns: int
    blocks: int | None
    factor: float | None


@dataclass(frozen=True)
class LaunchedGrid:
    """A configuration that ran, its occupancy (None: unknown) and its measured verdict.

    `verdict` is that of the step into its last wave, else that of all grids of the kernel; None
    where their times do not tell. `measured` is what its neighbours show, where it has any.
    `shortest_ns` is the shortest kernel of the GPU in the trace, which no grid can undercut. A
    `persistent_gemm` computes several tiles per block: see gemm_waves.py.
    """

    configuration: Configuration
    occupancy: GridOccupancy | None
    shortest_ns: int
    persistent_gemm: bool
    verdict: Verdict | None = None
    measured: Neighbours | None = None

    @property
    def waves(self) -> Waves | None:
        """The waves of the grid; None where the occupancy is unknown."""
        return self.occupancy.waves if self.occupancy else None

    @property
    def concurrent(self) -> bool:
        """Whether other kernels run beside it for most of its time."""
        return self.configuration.beside_ns > _BESIDE * self.configuration.total_ns

    @property
    def lost_ns(self) -> int | None:
        """The time lost at most over all calls; None where none is claimed."""
        return self._lost(self.configuration.total_ns, self.configuration.calls)

    @property
    def steady_lost_ns(self) -> int | None:
        """The same of the calls after warm-up."""
        return self._lost(self.configuration.steady_ns, self.configuration.steady_calls)

    def _lost(self, time_ns: int, calls: int) -> int | None:
        """Of several waves, the fraction of unused block slots; of less than one, of idle SMs.

        Slots unused beside blocks of the same SM leave these more of it, so no time is lost.
        """
        waves = self.waves
        if waves is None or self.concurrent or self.persistent_gemm or self.verdict == "no step":
            return None
        predicted = self._predicted(waves, time_ns, calls)
        if predicted is None or self.measured is None:
            return predicted
        # The measurement wins: what a model predicts and no neighbour shows is not lost.
        measured = self.measured.lost_ns * calls
        return None if measured < _LEAST_SHOWN * predicted else min(predicted, measured)

    def _predicted(self, waves: Waves, time_ns: int, calls: int) -> int | None:
        if waves.whole > 1 or not waves.idle_fraction:
            return round(time_ns * waves.idle_fraction)
        if not waves.idle_sms:
            return None
        return round(max(time_ns - calls * self.shortest_ns, 0) * waves.idle_sms / waves.sm_count)


def occupancy_of(
    configuration: Configuration, known: GpuLimits | UnknownLimits
) -> GridOccupancy | None:
    """None where the SMs of the GPU are unknown, and for launches that fit on no SM."""
    of = configuration
    if isinstance(known, UnknownLimits) or of.blocks < 1 or of.threads < 1:
        return None
    if min(of.registers, of.static_bytes, of.dynamic_bytes) < 0:
        return None
    used = (of.threads, of.registers, of.static_bytes, of.dynamic_bytes, of.barriers)
    fits, limiter = _occupancy(known.limits, of.shared_config_bytes, *used)
    waves = waves_of(of.blocks, fits, min(of.green_sms or known.sm_count, known.sm_count))
    if waves is None:
        return None
    if of.clusters_at_once and of.clusters_at_once < waves.at_once:
        waves, limiter = replace(waves, at_once=of.clusters_at_once), "clusters"
    return GridOccupancy(fits.blocks_per_sm, fits.theoretical_occupancy_pct, limiter, waves)


@lru_cache(_MOST_KEPT)
def _occupancy(limits: SmLimits, config: int | None, *used: int) -> tuple[Occupancy, str]:
    """Occupancy and limiter with the configured shared memory; cached, as many grids share them."""
    most = occupancy(limits, *used)
    if not config or config >= limits.shared_bytes_per_sm:
        return most, most.limiter
    now = occupancy(replace(limits, shared_bytes_per_sm=config), *used)
    # What cannot hold one block is no configuration that the kernel ran with.
    if not 0 < now.blocks_per_sm < most.blocks_per_sm:
        return most, most.limiter
    return now, CONFIGURED
