"""Occupancy of a kernel at other warps, stages and tiles, each one compiled.

The neighbours of the configuration: half and twice the warps, one stage less and more where Triton
pipelines a loop, half and twice each tile, and pairs of these. Whether results stay the same with
another tile is not checked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import combinations, product

from traceview.base import units
from traceview.base.errors import TimeUpError, TraceviewError
from traceview.base.hardware.occupancy import waves_of
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.kernel_report import SmCount, WhatIf, occupancy_of
from traceview.kernels.inspect.recompilations import Recompile
from traceview.kernels.inspect.rules.remedies import named_as_tile
from traceview.kernels.ptx.model import Argument, Compiled, Resources
from traceview.kernels.toolchain.listings import code_of

MOST_CONFIGURATIONS = 24
TIME_S = 30.0
"""Time limit of the configurations of one kernel."""
_MOST_WARPS, _MOST_TILES = 32, 3
_LEAST_TILE = 16
_PIPELINED = re.compile(r"\bscf\.for\b")
_LONGEST_FAILURE = 120


def what_if(
    compiled: Compiled,
    recompile: Recompile,
    sms: SmCount | None,
    *,
    time_s: float = TIME_S,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[tuple[WhatIf, ...], tuple[str, ...]]:
    """The configuration and its neighbours, sorted by tile, stages and warps, with notes.

    Neighbours with one change are compiled first, until `time_s` is over.
    """
    rows = [_measured(compiled, sms, current=True)]
    changes, ends = neighbours(compiled), clock() + time_s
    tried = 0
    for change, following in zip(changes, (*changes[1:], None), strict=False):
        if clock() > ends:
            break
        try:
            rows.append(_tried(compiled, change, following, recompile, sms))
        except TimeUpError:
            break
        tried += 1
    ordered = sorted(rows, key=lambda row: (row.tile, row.num_stages or 0, row.num_warps or 0))
    left = len(changes) - tried
    late = f"what-if: {units.counted(left, 'configuration')} not compiled within {time_s:g} s"
    return tuple(ordered), (late,) if left else ()


def neighbours(compiled: Compiled) -> tuple[Change, ...]:
    """The configurations to compile: single changes, then pairs, at most MOST_CONFIGURATIONS."""
    axes = [axis for axis in (_warps(compiled), _stages(compiled), *_tiles(compiled)) if axis]
    single = [change for axis in axes for change in axis]
    pairs = [
        Change(
            constexprs=one.constexprs + other.constexprs,
            num_warps=one.num_warps or other.num_warps,
            num_stages=one.num_stages or other.num_stages,
        )
        for first, second in combinations(axes, 2)
        for one, other in product(first, second)
    ]
    return tuple((single + pairs)[:MOST_CONFIGURATIONS])


def _warps(compiled: Compiled) -> list[Change]:
    now = compiled.num_warps or 0
    return [Change(num_warps=n) for n in (now // 2, 2 * now) if 1 <= n <= _MOST_WARPS]


def _stages(compiled: Compiled) -> list[Change]:
    """Neighbouring numbers of stages, which matter only if Triton pipelines a loop."""
    now = compiled.num_stages or 0
    if not now or not _PIPELINED.search(compiled.stages.get("ttgir", "")):
        return []
    return [Change(num_stages=n) for n in (now - 1, now + 1) if n >= 1]


def _tiles(compiled: Compiled) -> Iterator[list[Change]]:
    for argument in list(filter(_is_tile, compiled.arguments))[:_MOST_TILES]:
        now = int(argument.value or 0)
        sizes = [size for size in (now // 2, 2 * now) if size >= _LEAST_TILE]
        yield [Change(constexprs=((argument.name, size),)) for size in sizes]


def _is_tile(argument: Argument) -> bool:
    value = argument.value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if argument.type != "constexpr" or not whole or not named_as_tile(argument.name):
        return False
    size = int(value or 0)
    return size >= _LEAST_TILE and size & (size - 1) == 0


def _tried(
    compiled: Compiled,
    change: Change,
    following: Change | None,
    recompile: Recompile,
    sms: SmCount | None,
) -> WhatIf:
    try:
        return _measured(recompile(change, following), sms)
    except TimeUpError:
        raise
    except TraceviewError as error:
        values = dict(change.constexprs)
        return WhatIf(
            change.num_warps or compiled.num_warps,
            change.num_stages or compiled.num_stages,
            tuple((name, values.get(name, size)) for name, size in _tile(compiled)),
            failure=_reason(error),
        )


def _reason(error: TraceviewError) -> str:
    """The compiler's message, without the prefix that names the kernel and the change."""
    return (
        error.what.rpartition("does not compile with ")[2].partition(": ")[2][:_LONGEST_FAILURE]
        or error.what[:_LONGEST_FAILURE]
    )


def _tile(compiled: Compiled) -> tuple[tuple[str, int], ...]:
    return tuple((a.name, int(a.value or 0)) for a in compiled.arguments if _is_tile(a))


def _measured(compiled: Compiled, sms: SmCount | None, *, current: bool = False) -> WhatIf:
    code = code_of(compiled, sass=False, ptxas=False)
    occupancy, resources = occupancy_of(compiled, code)[0], code.resources
    waves = None
    if compiled.grid and occupancy and sms:
        waves = waves_of(compiled.grid, occupancy, sms.count)
    return WhatIf(
        compiled.num_warps,
        compiled.num_stages,
        _tile(compiled),
        current,
        resources.registers if resources else None,
        resources.spill_bytes if resources else None,
        _shared(compiled, resources),
        occupancy,
        waves.waves if waves else None,
    )


def _shared(compiled: Compiled, resources: Resources | None) -> int | None:
    static = resources.static_shared_bytes if resources else None
    known = [b for b in (static, compiled.dynamic_shared_bytes) if b is not None]
    return sum(known) if known else None
