"""The steady time of a device, divided by what it goes into: work of several kinds, idle time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_idle import lines, starvation
from traceview.facts.idle.gaps import device_work, gaps, steady_spans_ns
from traceview.facts.idle.gpu_limited import gpu_limited
from traceview.facts.idle.late_launches import late_idle
from traceview.facts.idle.unknown_idle import UnknownIdle, unknown_idle
from traceview.facts.operations.kernel_classes import (
    KernelClass,
    communication_operations,
    kernel_classes,
)
from traceview.facts.operations.operations import Kind, operations, operations_by_device
from traceview.facts.ranges import ranges
from traceview.facts.steps.warm_up import steady_operations
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, picked
from traceview.trace import Trace, fact
from traceview.vocabulary.activities import ACTIVITIES, CPU, DATA_LOADING, DATA_WAIT, Activity
from traceview.vocabulary.causes import CAUSE_NAMES, CAUSES, LAUNCH_LATE, IdleCause
from traceview.vocabulary.libraries import is_fp32_gemm_on_cuda_cores
from traceview.vocabulary.limits import Limit

COMPUTING = (KernelClass.GEMM, KernelClass.ATTENTION, KernelClass.CONVOLUTION)
"""Classes of kernels with much arithmetic per byte; those of most others move memory."""
UNJUDGED = (KernelClass.OTHER, KernelClass.AUTOTUNER, KernelClass.COMMUNICATION)
_LOADS = re.compile(
    r"(?i)(^|/)[^/]*(data_?load|load_?data|(get|next|load|fetch)_?batch|dataset|input_pipeline)"
    r"|(^|/)(data|load|loading|fetch)(?=/|$)"
)

"""Path patterns of ranges in which a program gets its data."""


@record
class LargestClass:
    """The class of kernels with most time, as a percentage of the steady time of all kernels.

    There is none where kernels are less than half of the busy time: most of it are copies, or
    CUDA graphs that were recorded as a whole and hide theirs.

    `fp32_on_cuda_cores` is True for GEMMs most of which multiply fp32 without tensor cores.
    """

    kind: KernelClass
    pct: float
    fp32_on_cuda_cores: bool


@record
class SteadyParts:
    """The steady time of one device (row in devices): `parts_ns` add up to `span_ns`.

    Copies and communication count where no other work runs beside them. `gpu_limited_ns` is the
    busy time on the critical path: in the rest the CPU could not have launched earlier. `starved`
    is True where the program waits for the DataLoader's workers again and again. `named_ns` are
    parts of the parts that have a name of their own (`apart`). `unknown` says
    how much work was lost where that leaves busy and idle time unknown.
    """

    device: int
    span_ns: int
    busy_ns: int
    gpu_limited_ns: int
    parts_ns: Mapping[Limit, int]
    largest: LargestClass | None
    starved: bool = False
    named_ns: Mapping[IdleCause | Activity, int] = field(default_factory=dict)
    unknown: UnknownIdle | None = None

    @property
    def busy_pct(self) -> float:
        return 100.0 * self.busy_ns / self.span_ns if self.span_ns else 0.0

    def named_pct(self, limit: Limit) -> list[tuple[float, str]]:
        """The shares of the span, in percent, of the named parts of a limit, and their names."""
        return [
            (100.0 * time_ns / max(self.span_ns, 1), named.apart)
            for named, time_ns in self.named_ns.items()
            if named.limit == limit
        ]

    def pct(self, *limits: Limit) -> float:
        """The share of the span that these parts take, in percent."""
        return 100.0 * sum(self.parts_ns.get(limit, 0) for limit in limits) / max(self.span_ns, 1)


@fact
def steady_parts(trace: Trace) -> SteadyParts | None:
    """The parts of the device with the longest steady time; None where no GPU work is selected."""
    spans = steady_spans_ns(trace)
    work = device_work(trace)
    if not spans:
        return None
    device = max(spans, key=lambda device: (spans[device], work[device].steady_ns))
    rows, ops = steady_rows(trace, device), operations(trace)
    kernels = rows[picked(ops.kind, rows) == Kind.KERNEL]
    classes = picked(kernel_classes(trace), picked(ops.row, kernels))
    took = picked(ops.end_ns, kernels) - picked(ops.start_ns, kernels)
    class_ns = np.bincount(classes, took, minlength=len(KernelClass)).astype(np.int64)
    # Kernels of unknown class follow the others; all compute where no class is known.
    compute_ns = sum(int(class_ns[kind]) for kind in COMPUTING)
    judged_ns = int(class_ns.sum()) - sum(int(class_ns[kind]) for kind in UNJUDGED)
    compute_fraction = compute_ns / judged_ns if 2 * judged_ns > int(class_ns.sum()) else 1.0
    parts = _work_parts(trace, rows, work[device].steady_ns, compute_fraction)
    idle, named = _idle_parts(trace, device)
    for limit, idle_ns in idle.items():
        parts[limit] = parts.get(limit, 0) + idle_ns
    steady = intervals.union(ops.start_ns[rows], ops.end_ns[rows])
    return SteadyParts(
        device,
        spans[device],
        work[device].steady_ns,
        intervals.intersection(gpu_limited(trace)[device], steady).total(),
        parts,
        _largest_class(trace, rows, class_ns, work[device].steady_ns),
        starvation.starved_devices(trace)[device],
        named,
        unknown_idle(trace).get(device),
    )


def steady_rows(trace: Trace, device: int) -> RowNumbers:
    """The selected operations of a device after warm-up, as rows of operations."""
    return _steady_by_device(trace).get(device, groups.NO_ROWS)


@fact
def _steady_by_device(trace: Trace) -> dict[int, RowNumbers]:
    steady = steady_operations(trace)
    return {
        device: rows[picked(steady, rows)] for device, rows in operations_by_device(trace).items()
    }


def _work_parts(
    trace: Trace, rows: Array, busy_ns: int, compute_fraction: float
) -> dict[Limit, int]:
    """Busy time of these operations by kind of work."""
    ops = operations(trace)
    start, end, of_kind = (picked(column, rows) for column in (ops.start_ns, ops.end_ns, ops.kind))
    communicating = picked(communication_operations(trace), rows)
    copying = ((of_kind == Kind.COPY) | (of_kind == Kind.SET)) & ~communicating

    def covered(chosen: Mask) -> int:
        return intervals.union(start[chosen], end[chosen]).total()

    without_copies_ns = covered(~copying)
    computing_ns = covered(~communicating & ~copying) if communicating.any() else without_copies_ns
    compute_ns = round(computing_ns * compute_fraction)
    return {
        "gpu-compute": compute_ns,
        "gpu-memory": computing_ns - compute_ns,
        "communication": without_copies_ns - computing_ns,
        "copies": busy_ns - without_copies_ns,
    }


def _largest_class(
    trace: Trace, rows: Array, time_ns: Integers, busy_ns: int
) -> LargestClass | None:
    """The class with most of the kernel time by class; `rows` are the operations of all."""
    if not time_ns.any() or 2 * int(time_ns.sum()) < busy_ns:
        return None
    kind = KernelClass(int(np.argmax(time_ns)))
    pct = 100.0 * int(time_ns[kind]) / int(time_ns.sum())
    fp32_ns = 0
    if kind is KernelClass.GEMM:
        ops, kernels = operations(trace), trace.recorded("kernels")
        row = ops.row[rows[ops.kind[rows] == Kind.KERNEL]]
        fp32 = kernels.texts("name").take(row).matching(is_fp32_gemm_on_cuda_cores)
        fp32_ns = int(kernels.duration_ns[row[fp32]].sum())
    return LargestClass(kind, pct, 2 * fp32_ns > int(time_ns[kind]))


def _idle_parts(
    trace: Trace, device: int
) -> tuple[dict[Limit, int], dict[IdleCause | Activity, int]]:
    """Steady idle time by the limit that its cause stands for, and of it the named parts."""
    every = gaps(trace)
    steady = (every.device == device) & ~every.one_time
    summed = np.bincount(every.cause[steady], every.idle_ns[steady], len(CAUSES)).astype(np.int64)
    idle_ns = dict(zip(CAUSES, summed.tolist(), strict=True))
    parts: dict[Limit, int] = {}
    for cause, time_ns in idle_ns.items():
        if time_ns:
            parts[cause.limit] = parts.get(cause.limit, 0) + time_ns
    named: dict[IdleCause | Activity, int] = {
        cause: time_ns for cause, time_ns in idle_ns.items() if cause.apart
    }
    # What samples show the CPU at instead, as in ACTIVITIES.
    samples, late_ns = lines.idle_samples(trace), idle_ns[CAUSES[LAUNCH_LATE]]
    late = (steady & (every.cause == LAUNCH_LATE))[samples.gap]
    spent = groups.added(samples.doing[late], samples.time_ns[late], len(ACTIVITIES)).tolist()
    spent_ns = {doing: time_ns for doing, time_ns in enumerate(spent) if doing != CPU}
    loading_ns = sum(spent_ns.pop(doing) for doing in (DATA_WAIT, DATA_LOADING))
    # Or it is in ranges that are named for loading data.
    sites, patterns = late_idle(trace), ranges.range_tree(trace).patterns
    named_rows = (sites.device == device) & (sites.pattern >= 0) & (sites.steady_ns > 0)
    rows = np.flatnonzero(named_rows)
    loads = patterns.with_name(lambda name: bool(_LOADS.search(name)))[sites.pattern[rows]]
    loading_ns = max(loading_ns, int(sites.steady_ns[rows[loads]].sum()))
    spent_ns = {DATA_LOADING: loading_ns, **spent_ns}
    for doing, time_ns in spent_ns.items():
        moved_ns = min(time_ns, late_ns)
        late_ns -= moved_ns
        activity = ACTIVITIES[doing]
        parts["cpu-launch"] = parts.get("cpu-launch", 0) - moved_ns
        parts[activity.limit] = parts.get(activity.limit, 0) + moved_ns
        if activity.apart:
            named[activity] = moved_ns
    return {limit: time_ns for limit, time_ns in parts.items() if time_ns}, named


# The steady time of one device, divided by class of work and by cause of idle time.
#
# The parts add up to the steady time exactly: of work that runs at once, that counts which
# started first. Communication counts where nothing computes, copies where neither runs, as in the
# verdict.

WHOLE_GRAPH, COPY, MEMSET = "graph", "copy", "memset"
_GRAPH = len(KernelClass)


@record
class TimePart:
    """Time of one kind. `name` is a class of kernels, graph, copy, memset, or a cause of idle."""

    kind: Literal["busy", "idle"]
    name: str
    time_ns: int


@record
class RunTime:
    """The time of one GPU after warm-up: `parts` add up to `steady_ns`.

    Busy parts come first, each kind in descending order. `run_ns` is the whole run, from the first
    start to the last end of anything recorded; `devices` counts the GPUs with steady time.
    """

    device_id: int
    devices: int
    run_ns: int
    steady_ns: int
    parts: tuple[TimePart, ...]


def run_time(trace: Trace, run_ns: int) -> RunTime | None:
    """The time of the device with the longest steady span; None where no GPU work is selected.

    `run_ns` is the duration of the recording.
    """
    of_gpu = _longest_steady(trace)
    return replace(of_gpu, run_ns=run_ns) if of_gpu else None


@fact
def _longest_steady(trace: Trace) -> RunTime | None:
    """`run_time`, of a run of unknown duration."""
    spans = steady_spans_ns(trace)
    if not spans:
        return None
    work = device_work(trace)
    device = max(spans, key=lambda device: (spans[device], work[device].steady_ns))
    busy = [TimePart("busy", *part) for part in _busy_ns(trace, device).items()]
    every = gaps(trace)
    steady = (every.device == device) & ~every.one_time
    idle_ns = groups.added(every.cause[steady], every.idle_ns[steady], len(CAUSE_NAMES))
    idle = [TimePart("idle", *part) for part in zip(CAUSE_NAMES, idle_ns.tolist(), strict=True)]
    ordered = sorted(busy + idle, key=lambda part: (part.kind, -part.time_ns))
    device_id = int(trace.devices["device_id"][device])
    parts = tuple(part for part in ordered if part.time_ns)
    return RunTime(device_id, len(spans), 0, spans[device], parts)


def _busy_ns(trace: Trace, device: int) -> dict[str, int]:
    """Steady busy time by kind of work; the sum is that of their union."""
    ops, rows = operations(trace), steady_rows(trace, device)
    communicating = communication_operations(trace)[rows]
    copying = (ops.kind[rows] == Kind.COPY) & ~communicating
    setting = (ops.kind[rows] == Kind.SET) & ~communicating
    chosen = ~(communicating | copying | setting)
    # Kernels by class, and whole graphs: what started first counts.
    computing = rows[chosen]
    labels, kernels = np.full(len(computing), _GRAPH), ops.kind[computing] == Kind.KERNEL
    labels[kernels] = kernel_classes(trace)[ops.row[computing[kernels]]]
    start, end = ops.start_ns[computing], ops.end_ns[computing]
    first_ns = end - start
    reached = np.maximum.accumulate(end[:-1])
    first_ns[1:] = np.maximum(end[1:] - np.maximum(start[1:], reached), 0)
    names = [*(kind.label for kind in KernelClass), WHOLE_GRAPH]
    times = dict(zip(names, groups.added(labels, first_ns, _GRAPH + 1).tolist(), strict=True))
    covered_ns = sum(times.values())
    added = ((KernelClass.COMMUNICATION.label, communicating), (COPY, copying), (MEMSET, setting))
    for name, more in added:
        chosen |= more
        if more.any():
            union = intervals.union(ops.start_ns[rows[chosen]], ops.end_ns[rows[chosen]])
            times[name] = union.total() - covered_ns
            covered_ns = union.total()
    return times
