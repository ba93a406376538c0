"""How many waves a launch takes, what of the last one is idle, and what the times say to that.

A GPU holds so many blocks of a kernel at once: a wave. If all blocks take the same time, whatever
else runs on their SM, a launch takes its number of waves, rounded up, times that of one; what the
last wave leaves empty is lost. Where a kernel ran with several grids, their times tell whether it
is so: they rise by a step where a wave is full, or they do not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from typing import Literal

from traceview import groups
from traceview.analyses.wave_quantization.configurations import Configuration, configurations
from traceview.analyses.wave_quantization.gemm_tiles import tiled
from traceview.analyses.wave_quantization.sm_limits import Sms, sms
from traceview.hardware import Occupancy, SmLimits, occupancy
from traceview.trace import Trace, fact

Verdict = Literal["step", "no step"]
"""Whether the times of a kernel rise by a step where a wave is full."""
Seen = Literal["step", "no step", "level", "rises"]
"""The same of two grids; within one wave, whether the time stays level or rises."""
TOLERANCE = 0.10
# Two grids tell steps from a steady rise where the two predict times that differ by so much.
_TELLING = 0.20
# A kernel that shares the GPU for more of its time than this has others to fill its last wave.
_BESIDE = 0.5
# Some tail is left whatever the grid: with less than this share empty, it counts as full.
LEAST_IDLE = 0.05
_MOST_KEPT = 4096
CONFIGURED = "shared memory config"


@dataclass(frozen=True)
class Waves:
    """The waves of a configuration. `at_once` blocks are on the GPU together.

    `limiter` is what keeps an SM (or, for clusters, the GPU) from holding more; a configuration
    of shared memory that the driver chose smaller than the SM has is one of its own.
    """

    sm_count: int
    blocks: int
    blocks_per_sm: int
    theoretical_occupancy_pct: float
    limiter: str
    at_once: int

    @property
    def waves(self) -> float:
        return self.blocks / self.at_once

    @property
    def whole(self) -> int:
        """Waves, the last one counted as a whole."""
        return -(-self.blocks // self.at_once)

    @property
    def idle(self) -> float:
        """Share of all places for blocks, over all waves, that stays empty in the last one."""
        return 1 - self.blocks / (self.whole * self.at_once)

    @property
    def fills(self) -> tuple[int, ...]:
        """The nearest numbers of blocks without an idle place: down, if there is one, and up."""
        up = self.whole * self.at_once
        down = (self.blocks // self.at_once) * self.at_once
        return (down, up) if 0 < down < up else (up,)

    @property
    def empty_sms(self) -> int:
        """SMs without any block."""
        return max(self.sm_count - self.blocks, 0)

    @property
    def persistent(self) -> bool:
        """Whether the same number of blocks is on each SM, all in one wave."""
        return self.blocks % self.sm_count == 0 and self.blocks <= self.at_once


@dataclass(frozen=True)
class Launched:
    """A configuration with its waves (None: not known), and what its times say of them.

    `verdict` is that of its family: None where the trace does not hold grids that tell.
    `shortest_ns` is the shortest kernel of its GPU in the trace: less, no grid can make of it.
    Where `takes_tiles`, a block computes one tile after the other, and facts/rounds.py tells more.
    """

    of: Configuration
    waves: Waves | None
    shortest_ns: int
    takes_tiles: bool
    verdict: Verdict | None = None

    @property
    def concurrent(self) -> bool:
        return self.of.beside_ns > _BESIDE * self.of.total_ns

    @property
    def lost_ns(self) -> int | None:
        """At most, over all calls; None where that is not claimed."""
        return self._lost(self.of.total_ns, self.of.calls)

    @property
    def steady_lost_ns(self) -> int | None:
        """The same of the calls after set-up."""
        return self._lost(self.of.steady_ns, self.of.steady_calls)

    def _lost(self, time_ns: int, calls: int) -> int | None:
        """Of several waves, the share of places left empty; of less than one, that of empty SMs.

        Empty places beside blocks of the same SM leave these more of it: they are no lost time.
        """
        waves = self.waves
        if waves is None or self.concurrent or self.takes_tiles or self.verdict == "no step":
            return None
        if waves.whole > 1 or not waves.idle:
            return round(time_ns * waves.idle)
        if not waves.empty_sms:
            return None
        return round(max(time_ns - calls * self.shortest_ns, 0) * waves.empty_sms / waves.sm_count)


@dataclass(frozen=True)
class Step:
    """Two neighbouring grids of a kernel: what waves predict of their times, and what was.

    Ratios are of the larger grid's time to the smaller one's. `seen` is None where the two do
    not tell steps from a steady rise, or where their blocks cannot have done the same work.
    """

    below: Launched
    above: Launched
    predicted: float
    measured: float
    seen: Seen | None


@dataclass(frozen=True)
class Sweep:
    """A kernel that ran with several numbers of blocks, in their order."""

    grids: tuple[Launched, ...]
    steps: tuple[Step, ...]
    at_once: int
    wave_ns: int
    """Time of a wave, by the measured times."""


@fact
def launched(trace: Trace) -> tuple[Launched, ...]:
    """Every configuration of the selected kernels, those with most time first."""
    known, shortest = sms(trace), _shortest_ns(trace)
    takers = {each.key for each in tiled(trace)}
    plain = [
        Launched(
            each, waves_of(each, known[each.device]), shortest[each.device], each.key in takers
        )
        for each in configurations(trace)
    ]
    verdicts = {sweep.grids[0].of.family: _verdict(sweep) for sweep in _sweeps(plain)}
    told = ((each, verdicts.get(each.of.family)) for each in plain)
    return tuple(replace(each, verdict=verdict) if verdict else each for each, verdict in told)


def _shortest_ns(trace: Trace) -> dict[int, int]:
    """The shortest kernel of each GPU."""
    kernels = trace.recorded("kernels")
    took = kernels.duration_ns
    devices = groups.different(kernels["device"]).tolist()
    return {device: int(took[kernels["device"] == device].min()) for device in devices}


@fact
def sweeps(trace: Trace) -> tuple[Sweep, ...]:
    """Kernels that ran with several grids, those with most time first."""
    found = _sweeps(launched(trace))
    return tuple(sorted(found, key=lambda sweep: -sum(each.of.total_ns for each in sweep.grids)))


def waves_of(configuration: Configuration, known: object) -> Waves | None:
    """None where the GPU's SMs are not known, or where nothing of it would fit on one."""
    of = configuration
    if not isinstance(known, Sms) or of.blocks < 1 or of.threads < 1:
        return None
    if min(of.registers, of.static_bytes, of.dynamic_bytes) < 0:
        return None
    used = (of.threads, of.registers, of.static_bytes, of.dynamic_bytes, of.barriers)
    fits, limiter = _occupancy(known.limits, of.shared_config_bytes, *used)
    if not fits.blocks_per_sm:
        return None
    at_once = fits.blocks_per_sm * known.count
    if of.clusters_at_once and of.clusters_at_once < at_once:
        at_once, limiter = of.clusters_at_once, "clusters"
    return Waves(
        known.count,
        of.blocks,
        fits.blocks_per_sm,
        fits.theoretical_occupancy_pct,
        limiter,
        at_once,
    )


@lru_cache(_MOST_KEPT)
def _occupancy(limits: SmLimits, config: int | None, *used: int) -> tuple[Occupancy, str]:
    """Grids alike in all but their size ask the same."""
    most = occupancy(limits, *used)
    if not config or config >= limits.shared_bytes_per_sm:
        return most, most.limiter
    now = occupancy(replace(limits, shared_bytes_per_sm=config), *used)
    # What cannot hold one block is no configuration that it ran with.
    if not 0 < now.blocks_per_sm < most.blocks_per_sm:
        return most, most.limiter
    return now, CONFIGURED


def _sweeps(found: Iterable[Launched]) -> Iterator[Sweep]:
    families: dict[tuple[object, ...], list[Launched]] = defaultdict(list)
    for each in found:
        if each.waves and each.of.median_ns > 0 and not each.concurrent and not each.takes_tiles:
            families[each.of.family].append(each)
    for members in families.values():
        grids = tuple(_one_of_each_size(members))
        if len(grids) > 1:
            yield _sweep(grids)


def _one_of_each_size(members: Iterable[Launched]) -> list[Launched]:
    """Of grids with as many blocks in another shape, that with most calls."""
    by_size: dict[tuple[int, int], Launched] = {}
    for each in members:
        assert each.waves
        key = each.waves.at_once, each.of.blocks
        if key not in by_size or by_size[key].of.calls < each.of.calls:
            by_size[key] = each
    usual = median_low(sorted(at_once for at_once, _ in by_size))
    return [each for (at_once, _), each in sorted(by_size.items()) if at_once == usual]


def _sweep(grids: tuple[Launched, ...]) -> Sweep:
    first = grids[0].waves
    assert first
    steps = tuple(_step(below, above) for below, above in pairwise(grids))
    return Sweep(grids, steps, first.at_once, _wave_ns(grids))


def _wave_ns(grids: Iterable[Launched]) -> int:
    """What one wave took, by the grids that fill theirs, where there are any."""
    shares = [
        (each.waves.idle, each.of.median_ns // each.waves.whole) for each in grids if each.waves
    ]
    full = [share for idle, share in shares if idle < LEAST_IDLE]
    return median_low(full or [share for _, share in shares])


def _step(below: Launched, above: Launched) -> Step:
    assert below.waves
    assert above.waves
    predicted = above.waves.whole / below.waves.whole
    measured = above.of.median_ns / below.of.median_ns
    steady = above.of.blocks / below.of.blocks
    return Step(below, above, predicted, measured, _told(predicted, steady, measured))


def _told(predicted: float, steady: float, measured: float) -> Seen | None:
    if abs(predicted - steady) <= _TELLING * predicted:
        return None
    low, high = sorted((predicted, steady))
    # Beyond both, the blocks did other work: the two launches cannot be compared.
    if not low * (1 - TOLERANCE) <= measured <= high * (1 + TOLERANCE):
        return None
    agrees = abs(measured - predicted) <= TOLERANCE * predicted
    if predicted > 1:
        return "step" if agrees else "no step"
    return "level" if agrees else "rises"


def _verdict(sweep: Sweep) -> Verdict | None:
    """By most pairs with a step between them; else, if times rise within waves, there is none."""
    seen = Counter(step.seen for step in sweep.steps)
    if seen["step"] or seen["no step"]:
        return "step" if seen["step"] > seen["no step"] else "no step"
    return "no step" if seen["rises"] > seen["level"] else None
