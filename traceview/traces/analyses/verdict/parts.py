"""The steady time of a device, divided by what it goes into: work of several kinds, idle time.

Also, for each series of steps, its steady time and that of a usual step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import UNEVEN, LoopTime
from traceview.base.records import record
from traceview.base.tables import Array, Integers, RowNumbers, picked
from traceview.base.vocabulary.activities import ACTIVITIES, CPU, DATA_LOADING, DATA_WAIT, Activity
from traceview.base.vocabulary.causes import CAUSES, LAUNCH_LATE, IdleCause, Limit
from traceview.base.vocabulary.libraries import is_fp32_gemm_on_cuda_cores
from traceview.traces.analyses.gpu_idle.line_sites import starved_devices
from traceview.traces.facts import operations, savings
from traceview.traces.facts.idle import cpu_activity, gaps, lines, step_parts
from traceview.traces.facts.idle.first_calls import after_warm_up, series
from traceview.traces.facts.kernel_classes import (
    KernelClass,
    communication_operations,
    kernel_classes,
)
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.steps.steps import (
    loop_names,
    pace,
    steady_operations,
    step_of_operations,
    steps,
    warm_up_end_ns,
)
from traceview.traces.trace import Trace, fact

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
    part of the busy time without which the run would be as much shorter. `starved`
    is True where the program waits for the DataLoader's workers again and again. `named_ns` are
    parts of the parts that have a name of their own (`apart`). `unknown` says
    how much work was lost where that leaves busy and idle time unknown. `busy_copies_ns` is the
    part of the copies in which the GPU is busy.
    """

    device: int
    span_ns: int
    busy_ns: int
    gpu_limited_ns: int
    parts_ns: Mapping[Limit, int]
    largest: LargestClass | None
    starved: bool = False
    named_ns: Mapping[IdleCause | Activity, int] = field(default_factory=dict)
    unknown: gaps.UnknownIdle | None = None
    busy_copies_ns: int = 0

    @property
    def busy_pct(self) -> float:
        return 100.0 * self.busy_ns / self.span_ns if self.span_ns else 0.0

    def named_pct(self, limit: Limit) -> list[tuple[float, str]]:
        """The shares of the span, in percent, of the named parts of a limit, and their names."""
        return [
            (100.0 * time_ns / max(self.span_ns, 1), each.apart)
            for each, time_ns in self.named_ns.items()
            if each.limit == limit
        ]

    def busy_part_pct(self, limit: Limit) -> float:
        """The share of the span in which the GPU communicates or copies, and does nothing else."""
        busy_ns = self.busy_copies_ns if limit == "copies" else 0
        busy_ns = self.parts_ns.get(limit, 0) if limit == "communication" else busy_ns
        return 100.0 * busy_ns / max(self.span_ns, 1)

    def pct(self, *limits: Limit) -> float:
        """The share of the span that these parts take, in percent."""
        return 100.0 * sum(self.parts_ns.get(each, 0) for each in limits) / max(self.span_ns, 1)


@fact
def steady_parts(trace: Trace) -> SteadyParts | None:
    """The parts of the device with the longest steady time; None where no GPU work is selected."""
    device = gaps.main_device(trace)
    if device < 0:
        return None
    busy_ns = gaps.device_work(trace)[device].steady_ns
    rows = steady_rows(trace, device)
    # Time of the kernels among these operations, by class.
    ops = operations.operations(trace)
    kernels = rows[picked(ops.kind, rows) == operations.Kind.KERNEL]
    kind = picked(kernel_classes(trace), picked(ops.row, kernels))
    took = picked(ops.end_ns, kernels) - picked(ops.start_ns, kernels)
    class_ns = np.bincount(kind, took, minlength=len(KernelClass)).astype(np.int64)
    # Fraction of the kernel time by class that goes into classes with much arithmetic.
    # Kernels of unknown class follow the others; all count as compute where no class is known.
    compute_ns = sum(int(class_ns[kind]) for kind in COMPUTING)
    judged_ns = int(class_ns.sum()) - sum(int(class_ns[kind]) for kind in UNJUDGED)
    work_ns = _work_parts(
        busy_by_kind(trace), compute_ns / judged_ns if 2 * judged_ns > int(class_ns.sum()) else 1.0
    )
    parts, idle = dict(work_ns), idle_by_kind(trace)
    for each, time_ns in idle.items():
        parts[each.limit] = parts.get(each.limit, 0) + time_ns
    return SteadyParts(
        device,
        gaps.steady_spans_ns(trace)[device],
        busy_ns,
        min(savings.gpu_limited_ns(trace), busy_ns),
        parts,
        _largest_class(trace, rows, class_ns, busy_ns),
        starved_devices(trace)[device],
        {each: time_ns for each, time_ns in idle.items() if each.apart},
        gaps.unknown_idle(trace).get(device),
        work_ns["copies"],
    )


def steady_rows(trace: Trace, device: int) -> RowNumbers:
    """The steady operations of a device."""
    rows = operations.operations_by_device(trace).get(device, groups.NO_ROWS)
    return rows[picked(steady_operations(trace), rows)]


WHOLE_GRAPH, COPY, MEMSET = "graph", "copy", "memset"


@fact
def busy_by_kind(trace: Trace) -> dict[str, int]:
    """Steady busy time of the main device by class of kernels, whole graphs, memsets and copies.

    Of work that runs at once, kernels count before memsets, communication and copies, in this
    order, and of equals what started first: the sum is the time of their union. What began during
    warm-up and still runs, such as one long kernel, hides what runs beside it.
    """
    ops, device = operations.operations(trace), gaps.main_device(trace)
    steady = steady_rows(trace, device)
    busy = intervals.union(ops.start_ns[steady], ops.end_ns[steady])
    rows = operations.operations_by_device(trace).get(device, groups.NO_ROWS)
    rows = rows[intervals.overlap(busy, ops.start_ns[rows], ops.end_ns[rows]) > 0]
    names = [*(kind.label for kind in KernelClass), WHOLE_GRAPH, MEMSET, COPY]
    start, end, kind = ops.start_ns[rows], ops.end_ns[rows], ops.kind[rows]
    label = len(KernelClass) + np.array([0, 2, 1, 0])[kind]
    label[kind == operations.Kind.KERNEL] = kernel_classes(trace)[
        ops.row[rows[kind == operations.Kind.KERNEL]]
    ]
    precedence = np.array([0, 3, 1, 0])[kind]
    communicating = communication_operations(trace)[rows]
    label[communicating], precedence[communicating] = KernelClass.COMMUNICATION, 2
    own_ns = intervals.exclusive_ns(start, end, precedence, busy)
    return dict(zip(names, groups.added(label, own_ns, len(names)).tolist(), strict=True))


def _work_parts(busy_ns: Mapping[str, int], compute_fraction: float) -> dict[Limit, int]:
    """Busy time by the limit that its kind of work stands for."""
    communication_ns = busy_ns[KernelClass.COMMUNICATION.label]
    copies_ns, computing_ns = busy_ns[COPY], sum(busy_ns.values())
    computing_ns -= communication_ns + copies_ns
    compute_ns = round((computing_ns - busy_ns[MEMSET]) * compute_fraction)
    return {
        "gpu-compute": compute_ns,
        "gpu-memory": computing_ns - compute_ns,
        "communication": communication_ns,
        "copies": copies_ns,
    }


def _largest_class(
    trace: Trace, rows: Array, time_ns: Integers, busy_ns: int
) -> LargestClass | None:
    """The class with most of the kernel time by class; `rows` are the operations of all."""
    if not time_ns.any() or 2 * int(time_ns.sum()) < busy_ns:
        return None
    kind = KernelClass(int(np.argmax(time_ns)))
    pct = 100.0 * int(time_ns[kind]) / int(time_ns.sum())
    fp32 = kind is KernelClass.GEMM and 2 * _fp32_gemm_ns(trace, rows) > int(time_ns[kind])
    return LargestClass(kind, pct, fp32)


def _fp32_gemm_ns(trace: Trace, rows: Array) -> int:
    ops = operations.operations(trace)
    chosen = np.zeros(len(ops), bool)
    chosen[rows] = True
    kernels = trace.recorded("kernels").take(chosen[operations.kernel_operations(trace)])
    names = kernels.texts("name")
    used = groups.different(names.codes[names.codes >= 0]).tolist()
    gemms = [code for code in used if is_fp32_gemm_on_cuda_cores(str(names.values[code]))]
    return int(kernels.duration_ns[np.isin(names.codes, gemms)].sum())


@fact
def idle_by_kind(trace: Trace) -> dict[IdleCause | Activity, int]:
    """Steady idle time of the main device by cause; what is late behind an activity, by that."""
    every, device = gaps.gaps(trace), gaps.main_device(trace)
    idle_ns: dict[IdleCause | Activity, int] = dict(
        zip(CAUSES, every.by_cause(every.steady(device)).tolist(), strict=True)
    )
    late_ns, spent_ns = idle_ns[CAUSES[LAUNCH_LATE]], _late_ns(trace, device)
    loading_ns = sum(spent_ns.pop(doing) for doing in (DATA_WAIT, DATA_LOADING))
    # Steady launch-late idle time in ranges that are named for loading data.
    late, patterns = cpu_activity.late_idle(trace), range_tree(trace).patterns
    own = np.flatnonzero((late.device == device) & (late.pattern >= 0) & (late.steady_ns > 0))
    loading = patterns.with_name(late.pattern[own], lambda name: bool(_LOADS.search(name)))
    spent_ns = {DATA_LOADING: max(loading_ns, int(late.steady_ns[own[loading]].sum())), **spent_ns}
    for doing, time_ns in spent_ns.items():
        idle_ns[ACTIVITIES[doing]] = min(time_ns, late_ns)
        late_ns -= idle_ns[ACTIVITIES[doing]]
    idle_ns[CAUSES[LAUNCH_LATE]] = late_ns
    return {each: time_ns for each, time_ns in idle_ns.items() if time_ns}


def _late_ns(trace: Trace, device: int) -> dict[int, int]:
    """Steady launch-late idle time by what samples show the CPU at instead, as in ACTIVITIES."""
    every, samples = gaps.gaps(trace), lines.idle_samples(trace)
    own = every.steady(device, LAUNCH_LATE)[samples.gap]
    spent = np.bincount(samples.doing[own], samples.time_ns[own], len(ACTIVITIES)).astype(np.int64)
    return {doing: int(time_ns) for doing, time_ns in enumerate(spent.tolist()) if doing != CPU}


@record
class MainLoop:
    """The series of steps that takes most of the time: its steps, and how long steady ones take.

    `mean_ns` is that of which savings are stated where the steps are uneven. Of the `steps`,
    `warm_up` are left out of both.
    """

    steps: int
    median_ns: int | None
    mean_ns: int | None = None
    warm_up: int = 0

    @property
    def is_uneven(self) -> bool:
        """Whether a step takes much longer on average than a usual one does."""
        return (self.mean_ns or 0) > UNEVEN * (self.median_ns or 0)


def main_loop(trace: Trace) -> MainLoop:
    """The series of selected steps that takes most of the time; no steps where there is none."""
    every = series(trace)
    if not every:
        return MainLoop(0, None)
    steady = after_warm_up(trace, every[0])
    lossy = _lossy(trace, steady)
    mean_ns = round(_total_ns(trace, lossy) / len(lossy))
    steps, warm_up = len(every[0]), len(every[0]) - len(steady)
    return MainLoop(steps, _median(_usual_ns(trace, steady)), mean_ns, warm_up)


@fact
def loop_times(trace: Trace) -> tuple[LoopTime, ...]:
    """The steady steps of each series, that with most time first."""
    steady = [after_warm_up(trace, rows) for rows in series(trace)]
    lossy = [_lossy(trace, rows) for rows in steady]
    # The devices that run work of the steps of each loop: one pass over the operations.
    loop = np.full(len(steps(trace)) + 1, -1)
    for number, rows in enumerate(lossy):
        loop[rows] = number
    # The last one is of operations outside all steps.
    of_operations = loop[step_of_operations(trace)]
    rows = np.flatnonzero(of_operations >= 0)
    of_operations, device = of_operations[rows], operations.operations(trace).device[rows]
    first = groups.group(of_operations, device).first
    used = groups.rows_of(of_operations[first])
    devices = [
        frozenset(device[first[used.get(number, groups.NO_ROWS)]].tolist())
        for number in range(len(lossy))
    ]
    return tuple(
        _loop_time(trace, rows, _median(_usual_ns(trace, all_steady)), used)
        for rows, all_steady, used in zip(lossy, steady, devices, strict=True)
    )


def _lossy(trace: Trace, rows: Integers) -> Integers:
    # No time is lost in the first step, which is warm-up in any case.
    later = rows[steps(trace).cpu_start_ns[rows] >= warm_up_end_ns(trace)]
    return later if len(later) else rows


def _loop_time(trace: Trace, rows: Integers, median_ns: int, devices: frozenset[int]) -> LoopTime:
    timed, total_ns = pace(trace), _total_ns(trace, rows)
    return LoopTime(
        intervals.union(timed.begin_ns[rows], timed.end_ns[rows]),
        total_ns,
        median_ns,
        devices,
        _name(trace, rows),
        round(total_ns / len(rows)),
        len(rows),
    )


def _name(trace: Trace, rows: Integers) -> str:
    """The name of the loop of some steps of a series, or of all of its loops if it has several."""
    of_each = rows[groups.group(pace(trace).loop[rows]).first].tolist()
    names = {loop_names(trace)[row] or "" for row in of_each}
    if len(names) == 1:
        return names.pop()
    tree = range_tree(trace)
    return tree.patterns[int(tree.path_pattern[tree.path[steps(trace).range[rows[0]]]])]


def _total_ns(trace: Trace, rows: Integers) -> int:
    """The time of steps, without first uses and compilation."""
    return int((pace(trace).duration_ns[rows] - step_parts.step_parts(trace).once_ns[rows]).sum())


def _usual_ns(trace: Trace, rows: Integers) -> Integers:
    """Durations of steps; without first uses and compilation where these are most of a step."""
    duration_ns, once_ns = pace(trace).duration_ns[rows], step_parts.step_parts(trace).once_ns[rows]
    mostly_once = 2 * _median(once_ns) > _median(duration_ns)
    return duration_ns - once_ns if mostly_once else duration_ns


def _median(values: Integers) -> int:
    return round(float(np.median(values)))
