"""Waves of the grids that ran, and the time that their last wave loses at most.

The wave model is that of hardware/occupancy.py: if all blocks take the same time, a launch takes
its number of waves, rounded up, times that of one, and block slots unused in the last are lost.
A trace may have as many grids as launches, so they are columns; a `LaunchedGrid` is one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from traceview.base import errors, groups
from traceview.base.hardware import SmLimits, limits_of
from traceview.base.hardware.occupancy import Waves
from traceview.base.records import record
from traceview.base.tables import Cell, Integers, Mask
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.traces.facts.launch_configurations import (
    LIMITERS,
    Configuration,
    Configurations,
    occupancies,
)
from traceview.traces.facts.work.peaks import Peaks, peaks
from traceview.traces.trace import Trace, fact

_OF_ROW = {
    "blocks_per_sm": "max_blocks_per_sm",
    "registers_per_sm": "max_registers_per_sm",
    "shared_bytes_per_sm": "max_shared_memory_per_sm_bytes",
    "opt_in_shared_bytes_per_block": "max_shared_memory_per_block_bytes",
}
"""Field of SmLimits, and the column in devices that takes precedence."""
_MAXWELL, _VOLTA, _HALVED = 5.0, 7.0, 6.0
"""From Maxwell on, registers and shared memory are allocated in the units of Volta; in the P100 by
two sub-partitions (cuda_occupancy.h of CUDA 13.0)."""


@record
class GpuLimits:
    """The number of SMs of a GPU, and the limits of each."""

    sm_count: int
    limits: SmLimits


@record
class UnknownLimits:
    """Why the SMs of a GPU are unknown, and the `--peak` options that give them."""

    reason: str
    options: tuple[str, ...]


@fact
def gpu_limits(trace: Trace) -> tuple[GpuLimits | UnknownLimits, ...]:
    """The limits of each row of devices.

    The trace's own GPU row takes precedence, and is all that is known of GPUs before Volta. The
    units in which registers and shared memory are allocated are not in it: they follow from the
    compute capability.
    """
    rows = zip(trace.devices.rows(), peaks(trace), strict=True)
    return tuple(_limits(row, known) for row, known in rows)


def _limits(row: Mapping[str, Cell], known: Peaks) -> GpuLimits | UnknownLimits:
    gpu = f"GPU {row['device_id']}"
    if "capability" not in known or "sms" not in known:
        lacking = tuple(name for name in ("capability", "sms") if name not in known)
        words = {"capability": "compute capability", "sms": "number of SMs"}
        missing = " and ".join(words[name] for name in lacking)
        return UnknownLimits(f"the trace does not have the {missing} of {gpu}", lacking)
    capability = known["capability"].value
    whole = all(row[column] is not None for column in (*_OF_ROW.values(), "max_warps_per_sm"))
    earlier = whole and _MAXWELL <= capability < _VOLTA
    try:
        limits = limits_of(f"{_VOLTA if earlier else capability:.1f}")
    except errors.InputError as error:
        return UnknownLimits(f"{error.what} ({gpu})", ("capability",))
    if earlier:
        parts = 2 if capability == _HALVED else limits.sub_partitions
        limits = replace(limits, compute_capability=f"{capability:.1f}", sub_partitions=parts)
    recorded: dict[str, Any] = {
        field: row[column] for field, column in _OF_ROW.items() if row[column] is not None
    }
    warps = row["max_warps_per_sm"]
    if isinstance(warps, int):
        recorded["threads_per_sm"] = warps * WARP_THREADS
    return GpuLimits(int(known["sms"].value), replace(limits, **recorded))


Verdict = Literal["step", "no step"]
"""Whether the times of a kernel rise by a step where a wave is full."""
VERDICTS: tuple[Verdict | None, ...] = (None, "step", "no step")
"""A column of verdicts holds indices into this."""
STEP, NO_STEP = 1, 2
# A kernel that shares the GPU for more of its time than this has others to fill its last wave.
_BESIDE = 0.5
# Any grid leaves some tail: with a smaller fraction unused than this, a grid counts as full.
LEAST_IDLE = 0.05
# A grid of whose predicted loss less than this fraction was measured loses nothing.
_LEAST_SHOWN = 0.1
# Far beyond the shared memory of any SM, and safe to add.
_MOST_BYTES = 1 << 60
CONFIGURED = "shared memory config"
_LIMITERS = (*LIMITERS, CONFIGURED, "clusters")


@record
class GridOccupancy:
    """The occupancy of a grid, and its waves.

    `limiter` is what keeps an SM from holding more blocks: a limiter of hardware/occupancy.py,
    CONFIGURED where the driver configured less shared memory than the SM has, or `clusters`.
    """

    blocks_per_sm: int
    theoretical_occupancy_pct: float
    limiter: str
    waves: Waves


@record
class GridColumns:
    """Grids and their waves, one entry each; `at_once` and `sm_count` are 1 where unknown.

    `occupancies` are the distinct occupancies, each of a grid of one block, and `occupancy` has the
    index of each grid's among them, −1 where unknown.
    """

    configurations: Configurations
    occupancies: Sequence[GridOccupancy]
    occupancy: Integers
    blocks: Integers
    at_once: Integers
    sm_count: Integers

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def known(self) -> Mask:
        return self.occupancy >= 0

    @cached_property
    def whole(self) -> Integers:
        """The number of waves, a partial last one counted as one."""
        return -(-self.blocks // self.at_once)

    @cached_property
    def idle_fraction(self) -> npt.NDArray[np.float64]:
        """The fraction of all block slots left unused."""
        slots = self.whole * self.at_once
        used = np.divide(self.blocks, slots, out=np.ones(len(self)), where=slots > 0)
        return 1 - used

    @cached_property
    def idle_sms(self) -> Integers:
        """SMs that get no block at all, of this kernel or of those that run beside it."""
        return np.maximum(self.sm_count - self.blocks - self.configurations.beside_blocks, 0)

    @cached_property
    def concurrent(self) -> Mask:
        """Whether other kernels run beside a grid for most of its time, and use all other SMs."""
        of = self.configurations
        return (of.beside_ns > _BESIDE * of.total_ns) & (self.idle_sms == 0)

    def occupancy_at(self, place: int) -> GridOccupancy | None:
        if self.occupancy[place] < 0:
            return None
        one_block = self.occupancies[int(self.occupancy[place])]
        waves = replace(one_block.waves, blocks=int(self.blocks[place]))
        return replace(one_block, waves=waves)


@record
class Neighbours:
    """The most a call loses, as measured on grids of the kernel with equal work per block.

    One entry per grid. `known` is False where no other grid gives a bound. `lost_ns` is the least
    bound of any other grid. `blocks` is the size of the nearest smaller grid that needs fewer
    waves, 0 without such a grid, and `factor` the time of a call ÷ the time of that grid's call.
    """

    known: Mask
    lost_ns: Integers
    blocks: Integers
    factor: npt.NDArray[np.float64]

    @classmethod
    def unknown(cls, count: int) -> Neighbours:
        none = np.zeros(count, np.int64)
        return cls(np.zeros(count, bool), none, none, np.zeros(count))


@record
class LaunchedGrid:
    """A configuration that ran, its occupancy (None: unknown) and its measured verdict.

    `verdict` is that of the step into its last wave, else that of all grids of the kernel; None
    where their times do not tell. `smaller_blocks` and `factor` are those of Neighbours, None
    without such a grid. A `persistent_gemm` computes several tiles per block: see gemm_waves.py.
    """

    configuration: Configuration
    occupancy: GridOccupancy | None
    persistent_gemm: bool
    concurrent: bool
    verdict: Verdict | None
    smaller_blocks: int | None
    factor: float | None

    @property
    def waves(self) -> Waves | None:
        """The waves of the grid; None where the occupancy is unknown."""
        return self.occupancy.waves if self.occupancy else None


@record
class LaunchedGrids(GridColumns):
    """The columns of LaunchedGrid. `verdict` holds indices into VERDICTS.

    `shortest_ns` is the shortest kernel of the GPU in the trace, at most 100 µs, which no grid can
    undercut.
    """

    shortest_ns: Integers
    persistent_gemm: Mask
    verdict: npt.NDArray[np.int8]
    measured: Neighbours

    def __getitem__(self, place: int) -> LaunchedGrid:
        smaller = int(self.measured.blocks[place]) if self.measured.known[place] else 0
        return LaunchedGrid(
            self.configurations[place],
            self.occupancy_at(place),
            bool(self.persistent_gemm[place]),
            bool(self.concurrent[place]),
            VERDICTS[self.verdict[place]],
            smaller or None,
            float(self.measured.factor[place]) if smaller else None,
        )

    @cached_property
    def lost_ns(self) -> Integers:
        """The time lost at most over all calls; −1 where none is claimed."""
        return self._lost(self.configurations.total_ns, self.configurations.calls)

    @cached_property
    def steady_lost_ns(self) -> Integers:
        """`lost_ns` of the calls after warm-up."""
        return self._lost(self.configurations.steady_ns, self.configurations.steady_calls)

    def _lost(self, time_ns: Integers, calls: Integers) -> Integers:
        """Lost time: the fraction of unused block slots or, below one wave, of idle SMs.

        Below one wave, unused slots leave more of their SM to its blocks, so no time is lost.
        """
        silent = ~self.known | self.concurrent | self.persistent_gemm | (self.verdict == NO_STEP)
        beyond = np.maximum(time_ns - calls * self.shortest_ns, 0)
        small = np.where(self.idle_sms > 0, np.rint(beyond * self.idle_sms / self.sm_count), -1)
        several = (self.whole > 1) | (self.idle_fraction == 0)
        predicted = np.where(several, np.rint(time_ns * self.idle_fraction), small).astype(np.int64)
        # The measurement wins: what a model predicts and no neighbour shows is not lost.
        shown = self.measured.lost_ns * calls
        refuted = self.measured.known & (shown < _LEAST_SHOWN * predicted)
        lost = np.where(self.measured.known, np.minimum(predicted, shown), predicted)
        return np.where(silent | (predicted < 0) | refuted, -1, lost)


def grid_columns(
    configurations: Configurations, limits: Sequence[GpuLimits | UnknownLimits]
) -> GridColumns:
    """The grids of configurations on GPUs of these limits, by row of devices."""
    of, count = configurations, len(configurations)
    # False for configurations that no kernel can have.
    used = (of.registers, of.static_bytes, of.dynamic_bytes)
    fits: Mask = (of.blocks > 0) & (of.threads > 0) & (np.min(used, axis=0) >= 0)
    blocks = of.blocks
    occupancy = np.full(count, -1, np.int64)
    at_once, sm_count = np.ones(count, np.int64), np.ones(count, np.int64)
    every: list[GridOccupancy] = []
    for known in dict.fromkeys(limits):
        if isinstance(known, UnknownLimits):
            continue
        is_alike = np.array([each == known for each in limits], bool)
        rows = np.flatnonzero(fits & is_alike[of.device])
        rows, *held = _held(of, rows, known)
        alike = groups.group(*held)
        occupancy[rows] = alike.ids + len(every)
        at_once[rows], sm_count[rows] = held[:2]
        firsts = zip(*(column[alike.first].tolist() for column in held), strict=True)
        every += [_occupancy(known.limits, *row) for row in firsts]
    return GridColumns(of, every, occupancy, blocks, at_once, sm_count)


def _held(of: Configurations, rows: Integers, known: GpuLimits) -> tuple[Integers, ...]:
    """The rows with a block that fits on an SM: blocks per wave, SMs, blocks and warps of an SM.

    The last column has indices into _LIMITERS.
    """
    per_sm = known.limits.shared_bytes_per_sm
    static, dynamic = (
        np.minimum(e[rows], _MOST_BYTES) for e in (of.static_bytes, of.dynamic_bytes)
    )
    used = (of.threads[rows], of.registers[rows], static + dynamic, of.barriers[rows])
    held = occupancies(known.limits, np.full(len(rows), per_sm), *used)
    blocks, limiter = held.blocks_per_sm, held.limiter
    config = of.shared_config_bytes[rows]
    configured = (config > 0) & (config < per_sm)
    if configured.any():
        now = occupancies(known.limits, np.where(configured, config, per_sm), *used)
        # The kernel cannot have run with a configuration that holds no block.
        fewer = (now.blocks_per_sm > 0) & (now.blocks_per_sm < blocks)
        blocks = np.where(fewer, now.blocks_per_sm, blocks)
        limiter = np.where(fewer, _LIMITERS.index(CONFIGURED), limiter)
    green = of.green_sms[rows]
    sms = np.where(green != 0, np.minimum(green, known.sm_count), known.sm_count)
    at_once, clusters = blocks * sms, of.clusters_at_once[rows]
    by_clusters = (clusters != 0) & (clusters < at_once)
    at_once = np.where(by_clusters, clusters, at_once)
    limiter = np.where(by_clusters, _LIMITERS.index("clusters"), limiter)
    warps = blocks * -(-used[0] // WARP_THREADS)
    runs = np.flatnonzero((blocks > 0) & (sms > 0))
    return tuple(each[runs] for each in (rows, at_once, sms, blocks, warps, limiter))


def _occupancy(
    limits: SmLimits, at_once: int, sm_count: int, blocks_per_sm: int, warps: int, limiter: int
) -> GridOccupancy:
    """The occupancy of a grid of one block."""
    occupancy_pct = 100.0 * warps / limits.warps_per_sm
    return GridOccupancy(
        blocks_per_sm, occupancy_pct, _LIMITERS[limiter], Waves(1, at_once, sm_count)
    )
