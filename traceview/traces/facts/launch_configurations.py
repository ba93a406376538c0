"""Launch configurations: launches of a kernel equal in grid, block and memory; their occupancy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cached_property
from typing import Any, get_args

import numpy as np

from traceview.base import errors, groups
from traceview.base.groups import Groups
from traceview.base.hardware.occupancy import (
    Limiter,
    SmLimits,
    by_barriers,
    by_registers,
    by_shared,
    by_warps,
)
from traceview.base.records import record
from traceview.base.tables import (
    Array,
    ColumnRecord,
    Integers,
    Mask,
    RowNumbers,
    Table,
    Texts,
    constant,
    null_of,
    picked,
    row_numbers,
)
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.traces.facts import code, copies, kernel_classes
from traceview.traces.facts.operations import kernel_operations
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.steps.steps import kernels_in_warm_up
from traceview.traces.trace import Trace, fact

Sides = tuple[int, int, int]
# Far beyond any grid, and safe to multiply with a time.
_MOST_BLOCKS = 1 << 60
KEYS = (
    "device",
    *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
    "registers_per_thread",
    "static_shared_memory_bytes",
    "dynamic_shared_memory_bytes",
)
"""Columns of kernels that are equal within a configuration, as is the name."""
_MAYBE_ABSENT = (
    *("shared_memory_config_bytes", "cluster_blocks", "max_active_clusters", "sm_count"),
)


@record
class Configuration:
    """Equal launches of the selected work. Times are of all `calls`, `median_ns` of one.

    `device` is a row in devices, `label` as in kernel_labels. `shared_config_bytes` is the shared
    memory per SM that the driver configured, `clusters_at_once` the blocks that the GPU holds at
    once as its clusters allow, `green_sms` the SMs of the green context; 0 where unknown or
    without one. `barriers` are those of a block, 0 without code. `beside_ns` is the time in which
    another kernel ran on the GPU, and `beside_blocks` the blocks of such kernels, on average over
    all of its time. `steady_calls` and `steady_ns` leave out the launches of warm-up.
    """

    device: int
    name: str
    short_name: str
    label: str
    grid: Sides
    block: Sides
    registers: int
    static_bytes: int
    dynamic_bytes: int
    shared_config_bytes: int
    clusters_at_once: int
    green_sms: int
    barriers: int
    calls: int
    total_ns: int
    median_ns: int
    beside_ns: int
    beside_blocks: int
    steady_calls: int
    steady_ns: int

    @property
    def blocks(self) -> int:
        return min(math.prod(self.grid), _MOST_BLOCKS)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


@record
class Configurations(ColumnRecord):
    """Columns of Configuration, one entry each, longest total time first.

    `grid` and `block` have three columns. `row` is a row of kernels with that configuration, and
    `of_kernel` the configuration of each row of kernels, −1 for those left out.
    """

    row: Integers
    of_kernel: RowNumbers
    device: Integers
    name: Texts
    short_name: Texts
    label: Texts
    grid: Integers
    block: Integers
    registers: Integers
    static_bytes: Integers
    dynamic_bytes: Integers
    shared_config_bytes: Integers
    clusters_at_once: Integers
    green_sms: Integers
    barriers: Integers
    calls: Integers
    total_ns: Integers
    median_ns: Integers
    beside_ns: Integers
    beside_blocks: Integers
    steady_calls: Integers
    steady_ns: Integers

    def __getitem__(self, place: int) -> Configuration:
        texts = {name: str(getattr(self, name)[place] or "") for name in _TEXTS}
        numbers = {name: int(getattr(self, name)[place]) for name in _NUMBERS}
        grid, block = (tuple(sides[place].tolist()) for sides in (self.grid, self.block))
        return Configuration(grid=grid, block=block, **texts, **numbers)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Configuration]:
        return map(self.__getitem__, range(len(self)))

    @property
    def blocks(self) -> Integers:
        """Blocks of each grid."""
        return _product(self.grid)

    @property
    def threads(self) -> Integers:
        """Threads of a block of each grid."""
        return _product(self.block)

    @cached_property
    def family(self) -> Integers:
        """A number for each set of configurations that differ in the grid alone."""
        sides = (self.block[:, axis] for axis in range(3))
        used = (self.registers, self.static_bytes, self.dynamic_bytes)
        return groups.group(self.device, self.green_sms, self.name.codes, *sides, *used).ids


_TEXTS = ("name", "short_name", "label")
_FIGURES = (
    "calls",
    "total_ns",
    "median_ns",
    "beside_ns",
    "beside_blocks",
    "steady_calls",
    "steady_ns",
)
_NUMBERS = tuple(
    each.name for each in fields(Configuration) if each.name not in (*_TEXTS, "grid", "block")
)


def _product(sides: Integers) -> Integers:
    whole = sides.astype(np.float64).prod(axis=1) < _MOST_BLOCKS
    return np.where(whole, sides.prod(axis=1), _MOST_BLOCKS)


@fact
def configurations(trace: Trace) -> Configurations:
    """Configurations of the selected kernels."""
    return _configurations_of(trace, selected_operations(trace)[kernel_operations(trace)])


@fact
def every_configuration(trace: Trace) -> Configurations:
    """Configurations of all kernels, whatever is selected."""
    if not trace.selection:
        return configurations(trace)
    return _configurations_of(trace, constant(True, len(kernel_operations(trace)), bool))


def single_launches(trace: Trace, rows: Integers) -> Configurations:
    """The configuration of each of these rows of kernels, without times, barriers and label."""
    kernels = trace.recorded("kernels")
    zeros = np.zeros(len(rows), np.int64)
    figures: dict[str, Any] = dict.fromkeys(_FIGURES, zeros)
    return Configurations(
        row=rows,
        of_kernel=row_numbers(zeros),
        **_recorded(kernels, rows),
        label=Texts.of([None] * len(rows)),
        barriers=zeros,
        **figures,
    )


def _configurations_of(trace: Trace, chosen: Mask) -> Configurations:
    """The distinct configurations of the chosen kernels.

    Communication is left out, as it takes few SMs on purpose."""
    used = chosen & ~kernel_classes.communication_kernels(trace)
    # Avoids a copy where the mask leaves nothing out.
    kernels = trace.recorded("kernels").take(used)
    own = row_numbers(np.flatnonzero(used))
    labels = kernel_classes.kernel_labels(trace).take(own)
    barriers = picked(_barriers(trace), own)
    keys = (kernels[key] for key in (*KEYS, *_MAYBE_ABSENT))
    alike = groups.group(kernels.texts("name").codes, *keys, barriers)
    duration_ns = kernels.duration_ns
    figures = groups.stats(alike, duration_ns)
    beside = groups.sums(alike, copies.shared_ns(trace)[own])
    blocks = groups.sums(alike, copies.blocks_beside(trace)[own]) // np.maximum(figures.calls, 1)
    early = np.flatnonzero(picked(kernels_in_warm_up(trace), own))
    in_warm_up = groups.Groups(alike.ids[early], alike.first)
    order = groups.most_first(figures.total)
    rows = alike.first[order]
    return Configurations(
        row=own[rows].astype(np.int64),
        of_kernel=_of_kernel(trace, own, alike, order),
        **_recorded(kernels, rows),
        label=labels.take(rows),
        barriers=barriers[rows].astype(np.int64),
        calls=figures.calls[order],
        total_ns=figures.total[order],
        median_ns=figures.median[order],
        beside_ns=beside[order],
        beside_blocks=blocks[order],
        steady_calls=(figures.calls - groups.count(in_warm_up))[order],
        steady_ns=(figures.total - groups.sums(in_warm_up, duration_ns[early]))[order],
    )


def _of_kernel(trace: Trace, chosen: RowNumbers, alike: Groups, order: Integers) -> RowNumbers:
    result = np.full(len(trace.recorded("kernels")), -1, np.int32)
    place = np.empty(alike.size, np.int32)
    place[order] = np.arange(alike.size)
    result[chosen] = place[alike.ids]
    return result


def _recorded(kernels: Table, rows: Integers) -> dict[str, Any]:
    """The columns of the configurations that the kernel table has."""
    known = {key: _known(kernels[key][rows]) for key in (*KEYS, *_MAYBE_ABSENT)}
    clusters = known["cluster_blocks"] * known["max_active_clusters"]
    return {
        "device": known["device"],
        "name": kernels.texts("name").take(rows),
        "short_name": kernels.texts("short_name").take(rows),
        "grid": np.stack([known[f"grid_{axis}"] for axis in "xyz"], axis=1),
        "block": np.stack([known[f"block_{axis}"] for axis in "xyz"], axis=1),
        "registers": known["registers_per_thread"],
        "static_bytes": known["static_shared_memory_bytes"],
        "dynamic_bytes": known["dynamic_shared_memory_bytes"],
        "shared_config_bytes": known["shared_memory_config_bytes"],
        "clusters_at_once": np.where(known["cluster_blocks"] > 1, clusters, 0),
        "green_sms": known["sm_count"],
    }


def _known(values: Array) -> Integers:
    """The values, 0 where absent."""
    return np.where(values == null_of(values.dtype), 0, values).astype(np.int64)


def _barriers(trace: Trace) -> Integers:
    """Named barriers per block for each row of kernels: the maximum of its gathered variants.

    No table of a recording has them: a kernel without code counts as without barriers.
    """
    total = len(trace.recorded("kernels"))
    if "kernel_code" not in trace.tables:
        return constant(0, total, np.int64)
    result = np.zeros(total, np.int64)
    from traceview.kernels.ptx import cubin as cubin_file

    for each in code.gathered_code(trace).launched:
        try:
            resources = cubin_file.resources(each.compiled.cubin) if each.compiled.cubin else {}
        except errors.TraceviewError:
            continue
        if each.compiled.name in resources:
            for run in each.runs:
                most = np.maximum(result[run.rows], resources[each.compiled.name].barriers)
                result[run.rows] = most
    return result


# The occupancy of many launches at once, as columns, by the model of occupancy.py.
#
# A trace may have as many launch configurations as launches. What a limit allows depends on one
# or two uses of a block, of which there are few, so each limit is computed once per distinct use.

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
                lambda most, used: by_shared(limits, most, used),
                shared_bytes_per_sm,
                shared_bytes,
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
    return np.array(values, np.int64)[alike.ids]
