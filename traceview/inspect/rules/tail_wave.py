"""A grid that leaves much of the GPU idle: too few blocks, or a last wave that is mostly empty."""

from __future__ import annotations

from collections.abc import Iterator

from traceview import units
from traceview.findings import Evidence, Finding, Severity, Subject
from traceview.hardware import Occupancy
from traceview.hardware.waves import Waves, waves_of
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.occupancy import SmCount
from traceview.ptx.model import Compiled

_LEAST_IDLE = 0.1
_LARGE_IDLE = 0.25


def tail_wave(kernel: KernelContext) -> Iterator[Finding]:
    """A grid smaller than the GPU, or one whose last wave is mostly idle.

    The idle fraction is of the block slots of all waves, assuming that all blocks take equally
    long; no time is claimed. A grid between one block per SM and a whole wave is not reported, as
    persistent kernels have one.
    """
    compiled, occupancy, sms = kernel.compiled, kernel.occupancy, kernel.sms
    if occupancy is None or sms is None or compiled.grid is None:
        return
    waves = waves_of(compiled.grid, occupancy, sms.count)
    if waves is None:
        return
    if waves.idle_sms:
        yield _too_small(waves, sms, compiled)
    elif waves.waves > 1 and waves.idle_fraction >= _LEAST_IDLE:
        yield _last_wave(waves, occupancy, sms, compiled)


def _too_small(waves: Waves, sms: SmCount, compiled: Compiled) -> Finding:
    return Finding(
        "low",
        "The grid has only {blocks:block}, so {idle_sms} of {sm_count} SMs "
        f"{'stays' if waves.idle_sms == 1 else 'stay'} idle",
        "Launch more blocks: use a smaller tile or split the longest dimension. A larger input "
        "launches more, too",
        subject=Subject("kernel", compiled.name),
        evidence=Evidence(
            {
                "blocks": waves.blocks,
                "idle_sms": waves.idle_sms,
                "sm_count": sms.count,
                "sm_count_assumed": sms.assumed is not None,
            },
            basis=f"the grid of the launch on {sms.described}",
        ),
    )


def _last_wave(waves: Waves, occupancy: Occupancy, sms: SmCount, compiled: Compiled) -> Finding:
    severity: Severity = "low" if waves.idle_fraction >= _LARGE_IDLE else "info"
    return Finding(
        severity,
        "The grid runs in {waves} waves: {idle_pct} of the block slots stay unused, all of "
        "them in the last wave. {unused_slots:more block|more blocks} would fill it",
        "Choose a tile size that gives whole waves, or use a persistent kernel",
        subject=Subject("kernel", compiled.name),
        evidence=Evidence(
            {
                "waves": waves.waves,
                "idle_pct": 100 * waves.idle_fraction,
                "unused_slots": waves.unused_slots,
                "blocks": waves.blocks,
                "blocks_per_wave": waves.at_once,
                "blocks_per_sm": occupancy.blocks_per_sm,
                "sm_count": sms.count,
                "sm_count_assumed": sms.assumed is not None,
            },
            basis=f"{units.counted(waves.blocks, 'block')}, "
            f"{units.count(occupancy.blocks_per_sm)} at once on each of {sms.described}",
        ),
    )
