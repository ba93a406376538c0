"""Launch configurations: launches of a kernel equal in grid, block, registers, shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview import groups
from traceview.errors import TraceviewError
from traceview.facts.code.gathered import gathered_code
from traceview.facts.kernel_names.kernel_labels import kernel_labels
from traceview.facts.operations.concurrency import shared_ns
from traceview.facts.operations.kernel_classes import communication_kernels
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.tables import Array, Integers, Mask, constant, null_of, picked
from traceview.trace import Trace, fact

Sides = tuple[int, int, int]
Key = tuple[str | int, ...]
# Far beyond any grid, and safe to multiply with a time.
_MOST_BLOCKS = 1 << 60
_NAMES = ("name", "short_name")
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


@dataclass(frozen=True)
class Configuration:
    """Equal launches of the selected work. Times are of all `calls`, `median_ns` of one.

    `device` is a row in devices, `label` as in kernel_labels. `shared_config_bytes` is the shared
    memory per SM that the driver configured, `clusters_at_once` the blocks that the GPU holds at
    once as its clusters allow, `green_sms` the SMs of the green context; None where unknown or
    without one. `barriers` are those of a block, 0 without code. `beside_ns` is the time in which
    another kernel ran on the GPU. `steady_calls` and `steady_ns` leave out the launches of warm-up.
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
    shared_config_bytes: int | None
    clusters_at_once: int | None
    green_sms: int | None
    barriers: int
    calls: int
    total_ns: int
    median_ns: int
    beside_ns: int
    steady_calls: int
    steady_ns: int

    @property
    def key(self) -> Key:
        """Name and values of KEYS."""
        numbers = (self.registers, self.static_bytes, self.dynamic_bytes)
        return (self.name, self.device, *self.grid, *self.block, *numbers)

    @property
    def blocks(self) -> int:
        return min(math.prod(self.grid), _MOST_BLOCKS)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def family(self) -> tuple[object, ...]:
        """Key of the configurations that differ in the grid alone."""
        shared = (self.static_bytes, self.dynamic_bytes)
        return (self.device, self.green_sms, self.name, self.block, self.registers, *shared)


@fact
def configurations(trace: Trace) -> tuple[Configuration, ...]:
    """Configurations of the selected kernels, longest total time first."""
    return _configurations_of(trace, selected_operations(trace)[kernel_operations(trace)])


@fact
def every_configuration(trace: Trace) -> tuple[Configuration, ...]:
    """Configurations of all kernels, whatever is selected, longest total time first."""
    if not trace.selection:
        return configurations(trace)
    return _configurations_of(trace, constant(True, len(kernel_operations(trace)), bool))


def _configurations_of(trace: Trace, chosen: Mask) -> tuple[Configuration, ...]:
    """One of each. Communication takes few SMs on purpose: left out."""
    chosen = chosen & ~communication_kernels(trace)
    kernels, labels = trace.recorded("kernels").take(chosen), kernel_labels(trace).take(chosen)
    barriers = picked(_barriers(trace), chosen)
    keys = (kernels[key] for key in (*KEYS, *_MAYBE_ABSENT))
    found = groups.group(kernels.texts("name").codes, *keys, barriers)
    duration_ns = kernels.duration_ns
    figures = groups.stats(found, duration_ns)
    beside = groups.sums(found, shared_ns(trace)[chosen])
    early = np.flatnonzero(picked(kernels_in_warm_up(trace), chosen))
    in_warm_up = groups.Groups(found.ids[early], found.first)
    later = (
        figures.calls - groups.count(in_warm_up),
        figures.total - groups.sums(in_warm_up, duration_ns[early]),
    )
    rows = found.first[order := np.argsort(-figures.total, kind="stable")]
    texts = [each.take(rows).decode() for each in (*map(kernels.texts, _NAMES), labels)]
    numbers = [kernels[key][rows].tolist() for key in KEYS]
    numbers += [_known(kernels[key][rows]) for key in _MAYBE_ABSENT]
    sums = (figures.calls, figures.total, figures.median, beside, *later)
    columns = (*texts, *numbers, barriers[rows].tolist(), *(each[order].tolist() for each in sums))
    return tuple(_configuration(*each) for each in zip(*columns, strict=True))


def _known(values: Array) -> list[int | None]:
    """The values, None where absent."""
    null = null_of(values.dtype)
    return [None if value == null else value for value in values.tolist()]


def _configuration(name: Any, short: Any, label: Any, *numbers: Any) -> Configuration:
    device, gx, gy, gz, bx, by, bz, registers, static, dynamic, config, *others = numbers
    cluster, clusters, green_sms, barriers, *figures = others
    return Configuration(
        device,
        str(name),
        str(short),
        str(label),
        (gx, gy, gz),
        (bx, by, bz),
        registers,
        static,
        dynamic,
        config,
        cluster * clusters if cluster and clusters and cluster > 1 else None,
        green_sms,
        barriers,
        *figures,
    )


def _barriers(trace: Trace) -> Integers:
    """Named barriers per block for each row of kernels, the most of its gathered variants.

    No table of a recording has them: a kernel without code counts as without barriers.
    """
    total = len(trace.recorded("kernels"))
    if "kernel_code" not in trace.tables:
        return constant(0, total, np.int64)
    result = np.zeros(total, np.int64)
    from traceview.ptx.sass import cubin as cubin_file

    for each in gathered_code(trace).launched:
        try:
            resources = cubin_file.resources(each.compiled.cubin) if each.compiled.cubin else {}
        except TraceviewError:
            continue
        if each.compiled.name in resources:
            for run in each.runs:
                most = np.maximum(result[run.rows], resources[each.compiled.name].barriers)
                result[run.rows] = most
    return result
