"""Waves: how a grid of blocks fills a GPU, and what its last wave leaves unused.

One model for kernels of a trace and for compiled kernels. A wave is the number of blocks that the
GPU holds at once, `at_once`; waves are blocks ÷ at_once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from traceview.hardware.occupancy import Occupancy
from traceview.records import record


def filling_sizes(blocks: int, at_once: int) -> tuple[int, ...]:
    """The nearest grid sizes that leave no block slot unused: the one below, if any, and above."""
    down, up = blocks // at_once * at_once, -(-blocks // at_once) * at_once
    return (down, up) if 0 < down < up else (up,)


@record
class Waves:
    """The waves of one grid. `blocks` is the size of the grid, `at_once` that of a wave."""

    blocks: int
    at_once: int
    sm_count: int

    @property
    def waves(self) -> float:
        """Blocks ÷ blocks per wave."""
        return self.blocks / self.at_once

    @property
    def whole(self) -> int:
        """The number of waves, a partial last one counted as one."""
        return -(-self.blocks // self.at_once)

    @property
    def idle_fraction(self) -> float:
        """The tail effect, 1 − waves ÷ ceil(waves): the fraction of all block slots left unused."""
        return 1 - self.blocks / (self.whole * self.at_once)

    @property
    def fills(self) -> tuple[int, ...]:
        return filling_sizes(self.blocks, self.at_once)

    @property
    def unused_slots(self) -> int:
        """Block slots of the last wave that stay unused."""
        return self.whole * self.at_once - self.blocks

    @property
    def idle_sms(self) -> int:
        """SMs that get no block at all."""
        return max(self.sm_count - self.blocks, 0)


def waves_of(grid: int | Sequence[int], occupancy: Occupancy, sm_count: int) -> Waves | None:
    """The waves of a grid (its blocks, or its extents); None where no block fits on an SM."""
    blocks = grid if isinstance(grid, int) else math.prod(grid)
    if blocks < 1 or occupancy.blocks_per_sm < 1 or sm_count < 1:
        return None
    return Waves(blocks, occupancy.blocks_per_sm * sm_count, sm_count)
