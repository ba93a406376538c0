"""What matrix products lose because their tiles do not fill the last round of blocks.

Each block takes the next tile until none is left: with as many blocks as the GPU holds at once, all
take one in each round, and in the last round some have none. A grid of such blocks is one wave, and
shows nothing of it. SMs without a block stay empty in every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from traceview.analyses.wave_quantization.gemm_tiles import Tiled, tiled
from traceview.analyses.wave_quantization.waves import Launched, Waves, launched
from traceview.trace import Trace, fact


@dataclass(frozen=True)
class Rounds:
    """A product in more tiles than blocks; `waves` are those of its grid, one."""

    of: Tiled
    launched: Launched
    waves: Waves

    @property
    def whole(self) -> int:
        """Rounds, the last one counted as a whole."""
        return math.ceil(self.of.tiles / self.of.blocks)

    @property
    def in_last(self) -> int:
        """Tiles of the last round."""
        return self.of.tiles - (self.whole - 1) * self.of.blocks

    @property
    def places(self) -> int:
        """Blocks that as many on each SM would be: one on each, mostly."""
        sms = self.waves.sm_count
        return math.ceil(self.of.blocks / sms) * sms

    @property
    def idle(self) -> float:
        """Share of all places, over all rounds, that has no tile."""
        return 1 - self.of.tiles / (self.whole * self.places)

    @property
    def fills(self) -> tuple[int, ...]:
        """The nearest numbers of tiles that leave no place empty: down, if there is one, and up."""
        down = self.of.tiles // self.places * self.places
        return (down, down + self.places) if down else (self.places,)

    @property
    def lost_ns(self) -> int | None:
        """At most, over all calls: the time × that share; None beside other kernels."""
        return None if self.launched.concurrent else round(self.of.total_ns * self.idle)

    @property
    def steady_lost_ns(self) -> int | None:
        """The same of the calls after set-up."""
        return None if self.launched.concurrent else round(self.of.steady_ns * self.idle)


@fact
def rounds(trace: Trace) -> tuple[Rounds, ...]:
    """Of each configuration and product of which that is known, those with most time first."""
    by_key: dict[object, Launched] = {each.of.key: each for each in launched(trace)}
    told = ((each, by_key[each.key]) for each in tiled(trace))
    return tuple(
        Rounds(each, grid, grid.waves)
        for each, grid in told
        if grid.waves and grid.waves.whole == 1
    )
