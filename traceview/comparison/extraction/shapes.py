"""Launch configurations of the parts of a run, and the widths and types that they work with."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.load_widths.bounds import width_bounds
from traceview.analyses.wave_quantization.configurations import single_launches
from traceview.analyses.wave_quantization.gpu_limits import gpu_limits
from traceview.analyses.wave_quantization.grid_waves import GridColumns, grid_columns
from traceview.comparison.extraction.work import window_work
from traceview.comparison.figures import KernelShape
from traceview.facts.operations.operations import Kind, operations
from traceview.groups import Groups
from traceview.records import record
from traceview.tables import Array, Integers
from traceview.trace import Trace, fact
from traceview.vocabulary.amounts import NAME_CHARACTERS
from traceview.vocabulary.libraries import tile
from traceview.vocabulary.number_types import TYPES, first_type

_SIDES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def shapes_of(trace: Trace, by: Groups) -> list[KernelShape | None]:
    """The launch configuration of each part; None for what is not a kernel."""
    work, ops = window_work(trace), operations(trace)
    kernels = np.flatnonzero(ops.kind[work.rows] == Kind.KERNEL)
    result: list[KernelShape | None] = [None] * by.size
    row = ops.row[work.rows[kernels]].astype(np.int64)
    usual = _usual_rows(trace, by.ids[kernels], row)
    grids = grid_columns(
        single_launches(trace, np.array([row for _, row in usual], np.int64)), gpu_limits(trace)
    )
    for place, (part, _) in enumerate(usual):
        result[part] = _shape(trace, grids, place)
    return result


def _usual_rows(trace: Trace, part: Integers, row: Integers) -> list[tuple[int, int]]:
    """Each part that has kernels, with a row of kernels of its most frequent configuration."""
    if not len(row):
        return []
    kernels = trace.recorded("kernels")
    by = groups.group(part, *(kernels[side][row] for side in _SIDES))
    owner = part[by.first]
    order = np.lexsort((groups.count(by), owner))
    last = order[np.append(owner[order][1:] != owner[order][:-1], True)]
    return list(zip(owner[last].tolist(), row[by.first[last]].tolist(), strict=True))


def _shape(trace: Trace, grids: GridColumns, place: int) -> KernelShape:
    configuration, widths = grids.configurations[place], _widths(trace)
    row, held = int(grids.configurations.row[place]), grids.occupancy_at(place)
    return KernelShape(
        grid=configuration.grid,
        block=configuration.block,
        registers=configuration.registers,
        shared_bytes=configuration.static_bytes + configuration.dynamic_bytes,
        waves=held.waves.waves if held else None,
        load_bits=int(widths.load_bits[row]) or None,
        dtype=_dtype(configuration.name),
        store_bits=int(widths.store_bits[row]) or None,
    )


def _dtype(name: str) -> str | None:
    """The type in the name of a library's kernel, such as fp32 or bf16; None without one."""
    gemm_tile = tile(name)
    inputs = gemm_tile.inputs if gemm_tile else None
    short_name = TYPES.get(inputs, inputs) if inputs else first_type(name[:NAME_CHARACTERS])
    return short_name or None


@record
class _Widths:
    """Bits per thread per instruction for each row of kernels, 0 where unknown."""

    load_bits: Array
    store_bits: Array


@fact
def _widths(trace: Trace) -> _Widths:
    """Widths of the accesses that move most bytes; the narrowest of variants that fit a launch."""
    loads, stores = (np.zeros(len(trace.recorded("kernels")), np.int64) for _ in range(2))
    for bound in width_bounds(trace) if "kernel_code" in trace.tables else ():
        for bits, main in ((loads, bound.widths.loads), (stores, bound.widths.stores)):
            width = main.bits if main else 0
            for run in bound.code.runs if width else ():
                before = bits[run.rows]
                bits[run.rows] = np.where(before > 0, np.minimum(before, width), width)
    return _Widths(loads, stores)
