"""What kernels could save at most if their blocks filled the GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from traceview.facts.idle import busy
from traceview.facts.waves import LEAST_IDLE, Launched, launched
from traceview.trace import Trace, fact


@dataclass(frozen=True)
class Loss:
    """What a fuller GPU could save at most of one kernel, in all its grids that leave much empty.

    Work of set-up is not at stake: a longer run has no more of it.

    `grids` are those, the costliest first: all of several waves, or all of less than one.
    """

    at_stake_ns: int
    grids: tuple[Launched, ...]


@fact
def losses(trace: Trace) -> tuple[Loss, ...]:
    """By kernel, the greatest first.

    Of a grid of less than a wave only SMs without a block count: see Launched.lost_ns.
    """
    most = {device: covered.total() for device, covered in busy(trace).items()}
    kinds: dict[tuple[object, ...], list[tuple[int, Launched]]] = defaultdict(list)
    for each in launched(trace):
        stake = each.steady_lost_ns
        if each.waves and stake and each.waves.idle >= LEAST_IDLE:
            kinds[each.waves.whole > 1, *each.of.family].append((stake, each))
    found = [_loss(grids, most) for grids in kinds.values()]
    return tuple(sorted(found, key=lambda loss: -loss.at_stake_ns))


def _loss(grids: list[tuple[int, Launched]], most: Mapping[int, int]) -> Loss:
    ranked = sorted(grids, key=lambda pair: -pair[0])
    device = ranked[0][1].of.device
    # Where launches overlap in part, their sum may be more than the GPU was busy at all.
    at_stake = min(sum(stake for stake, _ in ranked), most[device])
    return Loss(at_stake, tuple(each for _, each in ranked))
