"""What kernels could save at most if their blocks, or the tiles of these, filled the GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from traceview.analyses.wave_quantization.gemm_waves import Rounds, rounds
from traceview.analyses.wave_quantization.waves import LEAST_IDLE, Launched, launched
from traceview.facts.idle.gaps import busy
from traceview.trace import Trace, fact

WorkEstimate = TypeVar("WorkEstimate")


@dataclass(frozen=True)
class Loss(Generic[WorkEstimate]):
    """What a fuller GPU could save at most of one kernel, in all that leaves much empty.

    Work of set-up is not at stake: a longer run has no more of it.

    `parts` are those grids or products, the costliest first; of grids all are of several waves, or
    all of less than one.
    """

    at_stake_ns: int
    parts: tuple[WorkEstimate, ...]


@fact
def losses(trace: Trace) -> tuple[Loss[Launched], ...]:
    """Of grids, by kernel, the greatest first.

    Of a grid of less than a wave only SMs without a block count: see Launched.lost_ns.
    """
    return _ranked(
        trace,
        (
            (each.of.device, (each.waves.whole > 1, each.of.family), stake, each)
            for each in launched(trace)
            if each.waves and (stake := each.steady_lost_ns) and each.waves.idle >= LEAST_IDLE
        ),
    )


@fact
def round_losses(trace: Trace) -> tuple[Loss[Rounds], ...]:
    """Of products whose blocks take several tiles, by kernel, the greatest first."""
    return _ranked(
        trace,
        (
            (each.launched.of.device, each.launched.of.label, stake, each)
            for each in rounds(trace)
            if (stake := each.steady_lost_ns) and each.idle >= LEAST_IDLE
        ),
    )


def _ranked(
    trace: Trace, stakes: Iterable[tuple[int, object, int, WorkEstimate]]
) -> tuple[Loss[WorkEstimate], ...]:
    """By device and kernel, from what is at stake in each part of one."""
    most = {device: covered.total() for device, covered in busy(trace).items()}
    kernels: dict[tuple[int, object], list[tuple[int, WorkEstimate]]] = defaultdict(list)
    for device, kernel, stake, part in stakes:
        kernels[device, kernel].append((stake, part))
    found = []
    for (device, _), lost in kernels.items():
        ranked = sorted(lost, key=lambda pair: -pair[0])
        # Where launches overlap in part, their sum may be more than the GPU was busy at all.
        at_stake = min(sum(stake for stake, _ in ranked), most[device])
        found.append(Loss(at_stake, tuple(part for _, part in ranked)))
    return tuple(sorted(found, key=lambda loss: -loss.at_stake_ns))
