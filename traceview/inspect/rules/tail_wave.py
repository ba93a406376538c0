"""The last wave of a grid, which may leave most of the GPU without work."""

from __future__ import annotations

import math
from collections.abc import Iterator

from traceview.hardware import Occupancy
from traceview.inspect.kernel_report import Finding, Severity
from traceview.inspect.occupancy import Sms, waves_of
from traceview.ptx.model import Compiled

_LEAST_IDLE = 0.1
_LARGE_IDLE = 0.25


def tail_findings(
    compiled: Compiled, occupancy: Occupancy | None, sms: Sms | None
) -> Iterator[Finding]:
    """A grid too small for the GPU, or one whose last wave is mostly idle.

    The share is of the slots for blocks over all waves, as if all blocks took as long: no time is
    claimed. Between one block an SM and a whole wave nothing is said: persistent kernels are so.
    """
    waves = waves_of(compiled, occupancy, sms)
    if waves is None or sms is None or occupancy is None or compiled.grid is None:
        return
    blocks = math.prod(compiled.grid)
    if 0 < blocks < sms.count:
        yield _too_small(blocks, sms)
    elif waves > 1:
        yield from _last_wave(blocks, waves, occupancy, sms)


def _too_small(blocks: int, sms: Sms) -> Finding:
    few = "1 block leaves" if blocks == 1 else f"{blocks:,} blocks leave"
    return Finding(
        "low",
        f"The grid is smaller than the GPU: its {few} {sms.count - blocks:,} of {sms.count:,} SMs "
        "without work",
        "Make more blocks of the same work: a smaller tile, or a split of the longest dimension; "
        "with a larger input this may go away by itself",
        f"the grid of the launch on {sms.said}",
    )


def _last_wave(blocks: int, waves: float, occupancy: Occupancy, sms: Sms) -> Iterator[Finding]:
    whole = math.ceil(waves)
    idle = 1 - waves / whole
    if idle < _LEAST_IDLE:
        return
    room = occupancy.blocks_per_sm * sms.count
    fill = whole * room - blocks
    severity: Severity = "low" if idle >= _LARGE_IDLE else "info"
    yield Finding(
        severity,
        f"The grid makes {waves:.2f} waves: {100 * idle:.0f} % of the {whole} × {room:,} places "
        f"for blocks stay empty, all in the last wave ({fill:,} more blocks would fill it)",
        "Choose a tile that makes whole waves, or a persistent kernel that shares the work out",
        f"{blocks:,} blocks, {occupancy.blocks_per_sm:,} at once on each of {sms.said}",
    )
