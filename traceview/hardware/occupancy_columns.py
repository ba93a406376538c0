"""The occupancy of many launches at once, as columns, by the model of occupancy.py.

A trace may have as many launch configurations as launches. What a limit allows depends on one or
two uses of a block, of which there are few, so each limit is computed once per distinct use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np

from traceview import groups
from traceview.hardware.limits import SmLimits
from traceview.hardware.occupancy import Limiter, by_barriers, by_registers, by_shared, by_warps
from traceview.records import record
from traceview.tables import Integers
from traceview.vocabulary.amounts import WARP_THREADS

LIMITERS: tuple[Limiter, ...] = get_args(Limiter)
# More blocks than any other limit allows.
_NO_LIMIT = 1 << 40


@record
class Occupancies:
    """Columns of Occupancy; `limiter` has the index into LIMITERS of the first limiter of each."""

    blocks_per_sm: Integers
    limiter: Integers


def occupancies(
    limits: SmLimits,
    shared_bytes_per_sm: Integers,
    block_threads: Integers,
    registers: Integers,
    shared_bytes: Integers,
    barriers: Integers,
) -> Occupancies:
    """The occupancy of each launch on SMs with these limits and `shared_bytes_per_sm`.

    Blocks have at least one thread, and no use is negative.
    """
    warps = -(-block_threads // WARP_THREADS)
    allowed = np.stack(
        [
            _once(lambda threads: by_warps(limits, threads), block_threads),
            np.full(len(warps), limits.blocks_per_sm),
            _once(lambda count, each: by_registers(limits, count, each), warps, registers),
            _once(
                lambda most, used: by_shared(limits, most, used), shared_bytes_per_sm, shared_bytes
            ),
            _once(lambda used: by_barriers(limits, used), barriers),
        ]
    )
    blocks: Integers = allowed.min(axis=0)
    return Occupancies(blocks, allowed.argmin(axis=0))


def _once(blocks: Callable[..., int | None], *uses: Integers) -> Integers:
    """The blocks that a limit allows for each launch, computed once per distinct use."""
    alike = groups.group(*uses)
    rows = zip(*(use[alike.first].tolist() for use in uses), strict=True)
    allowed = (blocks(*row) for row in rows)
    values = [_NO_LIMIT if each is None else each for each in allowed]
    result: Integers = np.array(values, np.int64)[alike.ids]
    return result
