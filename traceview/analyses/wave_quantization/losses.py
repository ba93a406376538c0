"""Time that fuller waves of blocks, or of tiles, could save per kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from traceview.analyses.wave_quantization.configurations import Configuration
from traceview.analyses.wave_quantization.gemm_waves import TileWaves, tile_waves
from traceview.analyses.wave_quantization.grid_waves import LEAST_IDLE, LaunchedGrid
from traceview.analyses.wave_quantization.launched_grids import launched_grids
from traceview.facts.idle.gaps import busy, steady_span_ns
from traceview.facts.idle.gpu_limited import claimable_ns, kernels_named
from traceview.findings import severity_of
from traceview.trace import Trace, fact

Part = TypeVar("Part")


@dataclass(frozen=True)
class Loss(Generic[Part]):
    """The time that one kernel loses at most, without its launches of warm-up.

    `parts` are its grids, or its GEMMs, the costliest first. Grids are either all of several waves
    or all of less than one. `limited_ns` is the kernel's time on the critical path.
    """

    lost_ns: int
    parts: tuple[Part, ...]
    limited_ns: int | None = None

    @property
    def saved_ns(self) -> int:
        """What the program gains at most: elsewhere the GPU would only wait longer."""
        return self.lost_ns if self.limited_ns is None else min(self.lost_ns, self.limited_ns)


@fact
def grid_losses(trace: Trace) -> tuple[Loss[LaunchedGrid], ...]:
    """Losses of grids, by kernel, the greatest first."""
    losses = ranked_losses(
        (
            (
                each.configuration.device,
                (each.waves.whole > 1, each.configuration.family),
                lost,
                each,
            )
            for each in launched_grids(trace)
            if each.waves
            and (lost := each.steady_lost_ns)
            and each.waves.idle_fraction >= LEAST_IDLE
        ),
        _busy_ns(trace),
    )
    return _on_path(trace, ((loss, [p.configuration for p in loss.parts]) for loss in losses))


@fact
def tile_losses(trace: Trace) -> tuple[Loss[TileWaves], ...]:
    """Losses of persistent GEMMs, by kernel, the greatest first."""
    losses = ranked_losses(
        (
            (each.grid.configuration.device, each.grid.configuration.label, lost, each)
            for each in tile_waves(trace)
            if (lost := each.steady_lost_ns) and each.idle_fraction >= LEAST_IDLE
        ),
        _busy_ns(trace),
    )
    return _on_path(trace, ((loss, [p.grid.configuration for p in loss.parts]) for loss in losses))


def _on_path(
    trace: Trace, losses: Iterable[tuple[Loss[Part], Sequence[Configuration]]]
) -> tuple[Loss[Part], ...]:
    """The losses worth a finding, with the time of their kernels on the critical path."""
    on_path, span_ns = [], steady_span_ns(trace)
    for loss, kernels in losses:
        if severity_of(loss.lost_ns, span_ns):
            device, names = kernels[0].device, (kernel.name for kernel in kernels)
            limited_ns = claimable_ns(trace, device, kernels_named(trace, device, names))
            on_path.append(replace(loss, limited_ns=limited_ns))
    return tuple(on_path)


def _busy_ns(trace: Trace) -> dict[int, int]:
    return {device: covered.total() for device, covered in busy(trace).items()}


def ranked_losses(
    lost: Iterable[tuple[int, object, int, Part]], busy_ns: Mapping[int, int]
) -> tuple[Loss[Part], ...]:
    """Losses by device and kernel, from (device, kernel, lost ns, part) of each part.

    Launches may overlap in part, so the sum of a kernel is capped by the busy time of its device.
    """
    kernels: dict[tuple[int, object], list[tuple[int, Part]]] = defaultdict(list)
    for device, kernel, lost_ns, part in lost:
        kernels[device, kernel].append((lost_ns, part))
    losses = []
    for (device, _), parts in kernels.items():
        ranked = sorted(parts, key=lambda pair: -pair[0])
        total_ns = min(sum(lost_ns for lost_ns, _ in ranked), busy_ns[device])
        losses.append(Loss(total_ns, tuple(part for _, part in ranked)))
    return tuple(sorted(losses, key=lambda loss: -loss.lost_ns))
