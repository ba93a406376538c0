"""Sweeps: kernels that ran with several grids, and whether their times rise in steps.

Where a wave is full, one more block costs a whole wave if waves are what counts: the time rises by
a step. Otherwise it rises with the number of blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median_low
from typing import Literal

from traceview.analyses.wave_quantization.grid_waves import (
    LEAST_IDLE,
    LaunchedGrid,
    Neighbours,
    Verdict,
)

Measured = Literal["step", "no step", "level", "rises"]
"""The verdict of two grids; within one wave, whether the time stays level or rises."""
TOLERANCE = 0.10
# Two grids tell steps from a steady rise where the two predict times that differ by so much.
_TELLING = 0.20
# Grids differ in size by no more than this factor where one measures the loss of the other.
_NEAR = 2.0
_MOST_NEAR = 8


@dataclass(frozen=True)
class Step:
    """Two neighbouring grids of a sweep: the ratio of times that waves predict, and the measured.

    Ratios are of the larger grid's time to the smaller one's. `verdict` is None where the two do
    not tell steps from a steady rise, or where their blocks cannot have done equal work.
    """

    predicted: float
    measured: float
    verdict: Measured | None


@dataclass(frozen=True)
class GridSweep:
    """A kernel that ran with several numbers of blocks, in ascending order.

    `steps` has one entry less than `grids`. `wave_ns` is the measured time of one wave.
    """

    grids: tuple[LaunchedGrid, ...]
    steps: tuple[Step, ...]
    at_once: int
    wave_ns: int

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of most steps across a wave; else `no step` if times rise within waves."""
        verdicts = Counter(step.verdict for step in self.steps)
        if verdicts["step"] or verdicts["no step"]:
            return "step" if verdicts["step"] > verdicts["no step"] else "no step"
        return "no step" if verdicts["rises"] > verdicts["level"] else None

    @cached_property
    def _blocks(self) -> list[int]:
        return [each.configuration.blocks for each in self.grids]

    def verdict_of(self, blocks: int) -> Verdict | None:
        """That of the step into the last wave of a grid, else that of the whole sweep."""
        place = bisect_left(self._blocks, blocks)
        if 0 < place < len(self.grids) and self._blocks[place] == blocks:
            verdict = self.steps[place - 1].verdict
            if verdict == "step" or verdict == "no step":
                return verdict
        return self.verdict

    def neighbours_of(self, grid: LaunchedGrid) -> Neighbours | None:
        """What the other grids of the sweep show of the loss of one; None if they show nothing.

        At the time per block of grids that fill their waves, the grid would take as much less as
        it loses. And a grid of fewer waves takes less time by at least the whole loss, as that is
        what the last wave costs.
        """
        own, waves = grid.configuration, grid.waves
        place = bisect_left(self._blocks, own.blocks)
        near = self.grids[max(place - _MOST_NEAR, 0) : place + _MOST_NEAR + 1]
        equal = [(each.configuration, each.waves) for each in near if _equal_work(each, grid)]
        if waves is None:
            return None
        fewer = [of for of, its in equal if its and its.whole < waves.whole]
        full = [of for of, its in equal if its and its.idle_fraction < LEAST_IDLE]
        lost = [own.median_ns - own.blocks * of.median_ns / of.blocks for of in full]
        lost += [own.median_ns - of.median_ns for of in fewer]
        if not lost:
            return None
        below = max(fewer, key=lambda of: of.blocks, default=None)
        least = max(round(min(lost)), 0)
        if below is None:
            return Neighbours(least, None, None)
        return Neighbours(least, below.blocks, own.median_ns / below.median_ns)


def _equal_work(one: LaunchedGrid, other: LaunchedGrid) -> bool:
    """Whether two grids of about one size took times that equal work per block explains."""
    if not one.waves or not other.waves or one.waves.blocks == other.waves.blocks:
        return False
    below, above = sorted((one, other), key=lambda each: each.configuration.blocks)
    steady = above.configuration.blocks / below.configuration.blocks
    if steady > _NEAR or not below.waves or not above.waves:
        return False
    # Old traces have whole microseconds: a short kernel takes none.
    if not below.configuration.median_ns:
        return False
    predicted = above.waves.whole / below.waves.whole
    measured = above.configuration.median_ns / below.configuration.median_ns
    return explained(predicted, steady, measured)


def explained(predicted: float, steady: float, measured: float) -> bool:
    """Whether a ratio of times lies between what waves predict and a steady rise with blocks."""
    low, high = sorted((predicted, steady))
    return low * (1 - TOLERANCE) <= measured <= high * (1 + TOLERANCE)


def sweeps_of(launched: Iterable[LaunchedGrid]) -> Iterator[GridSweep]:
    """The sweeps among these grids; kernels that overlap others and persistent GEMMs are left out.

    Grids of one sweep differ in their number of blocks alone.
    """
    families: dict[tuple[object, ...], list[LaunchedGrid]] = defaultdict(list)
    for each in launched:
        measurable = each.waves and each.configuration.median_ns > 0
        if measurable and not each.concurrent and not each.persistent_gemm:
            families[each.configuration.family].append(each)
    for members in families.values():
        grids = tuple(_one_of_each_size(members))
        if len(grids) > 1:
            first = grids[0].waves
            assert first
            steps = tuple(_step(below, above) for below, above in pairwise(grids))
            yield GridSweep(grids, steps, first.at_once, _wave_ns(grids))


def _one_of_each_size(members: Iterable[LaunchedGrid]) -> list[LaunchedGrid]:
    """Of grids with equally many blocks in different shapes, the one with most calls."""
    by_size: dict[tuple[int, int], LaunchedGrid] = {}
    for each in members:
        assert each.waves
        key = each.waves.at_once, each.configuration.blocks
        if key not in by_size or by_size[key].configuration.calls < each.configuration.calls:
            by_size[key] = each
    usual = median_low(sorted(at_once for at_once, _ in by_size))
    return [each for (at_once, _), each in sorted(by_size.items()) if at_once == usual]


def _wave_ns(grids: Iterable[LaunchedGrid]) -> int:
    """The time of one wave, from grids of whole waves where there are any."""
    times = [
        (each.waves.idle_fraction, each.configuration.median_ns // each.waves.whole)
        for each in grids
        if each.waves
    ]
    full = [time_ns for idle, time_ns in times if idle < LEAST_IDLE]
    return median_low(full or [time_ns for _, time_ns in times])


def _step(below: LaunchedGrid, above: LaunchedGrid) -> Step:
    assert below.waves
    assert above.waves
    predicted = above.waves.whole / below.waves.whole
    measured = above.configuration.median_ns / below.configuration.median_ns
    steady = above.configuration.blocks / below.configuration.blocks
    return Step(predicted, measured, step_verdict(predicted, steady, measured))


def step_verdict(predicted: float, steady: float, measured: float) -> Measured | None:
    """Whether a measured ratio of times is what waves predict, or a steady rise with the blocks.

    None where the two predict much the same, and where the measured one is beyond both, because
    then the blocks did other work.
    """
    if abs(predicted - steady) <= _TELLING * predicted:
        return None
    if not explained(predicted, steady, measured):
        return None
    agrees = abs(measured - predicted) <= TOLERANCE * predicted
    if predicted > 1:
        return "step" if agrees else "no step"
    return "level" if agrees else "rises"
