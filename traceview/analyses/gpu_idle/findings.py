"""Findings of `gpu-idle`: one per cause, for the GPU that lost most by it.

GPUs that idle at the same time lose the time of the program once. So the time at stake is that of
one GPU, and a share of its own steady time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from traceview import groups, intervals
from traceview.analyses.framework_wording import (
    early_uploads,
    fewer_launches,
    memory_pool,
    other_threads,
)
from traceview.analyses.gpu_idle.cpu_parts import CpuPart, CpuParts, divided, gaps_of
from traceview.analyses.gpu_idle.details import (
    BackToBack,
    back_to_back,
    lone_gap,
    longest_launch_site,
    longest_wait_site,
)
from traceview.analyses.gpu_idle.host_work import in_host_functions, in_jit
from traceview.analyses.gpu_idle.line_sites import (
    NOT_COUNTED,
    OFF_CPU_ACTIONS,
    OFF_CPU_LOST,
    LineSite,
    longest_line,
    samples_of,
)
from traceview.analyses.gpu_idle.starvation import starved
from traceview.analyses.gpu_wording import gpu_name, gpu_subject
from traceview.analyses.graph_wording import AS_WHOLE
from traceview.analyses.lost_time import lost_in
from traceview.facts.idle.causes import (
    ALLOCATION,
    CAUSES,
    COMPILATION,
    COPY_WAIT,
    DEPENDENCY,
    GRAPH_LAUNCH,
    JIT_COMPILE,
    LAUNCH_LATE,
    MODULE_LOAD,
    PROFILER,
    SYNC_DRAIN,
    UNKNOWN,
)
from traceview.facts.idle.cpu_activity import OFF_CPU, OUTSIDE_CUDA, QUEUE_FULL
from traceview.facts.idle.gaps import device_work, every_gap, gaps, steady_spans_ns
from traceview.facts.idle.late_launches import LateSite, late_idle
from traceview.facts.memory.allocation_calls import recurring
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.ranges.selection import selected_calls, selected_windows
from traceview.facts.samples.stack_lines import CPU, DATA_WAIT
from traceview.findings import SEVERITIES, Evidence, Finding, Severity, severity_of, share_pct
from traceview.tables import Cell, Mask
from traceview.trace import Trace

LOST = {
    LAUNCH_LATE: "waiting for the CPU to launch work",
    SYNC_DRAIN: "after synchronizations outside the selected ranges",
    DEPENDENCY: "with work already queued",
    COPY_WAIT: "waiting for memory copies",
    GRAPH_LAUNCH: "while the CPU launched, instantiated or uploaded the next CUDA graph",
    JIT_COMPILE: "while the driver compiled PTX",
    MODULE_LOAD: "while the CPU loaded GPU code",
    ALLOCATION: "while the CPU allocated or freed memory",
    PROFILER: "while the profiler held the CPU up",
    UNKNOWN: "before work whose launch call was not recorded",
}
"""How the GPU lost the time, by cause, behind `The GPU sat idle for 147 ms (135 gaps)`."""
BUILD_FOR_GPU = (
    "Build the code for this GPU (nvcc -gencode, TORCH_CUDA_ARCH_LIST), so that the driver does "
    "not compile PTX when the program runs, and keep its cache (CUDA_CACHE_MAXSIZE)."
)
ACTIONS = {
    JIT_COMPILE: BUILD_FOR_GPU,
    SYNC_DRAIN: "Look at sync-stalls of the whole recording: that synchronization is outside the "
    "selected ranges.",
    DEPENDENCY: "Look at what the work waited for: another stream or an event. Short gaps "
    "between kernels of one stream go away with fusion or a CUDA graph.",
    GRAPH_LAUNCH: "Instantiate and upload CUDA graphs before the loop, and launch the next one "
    "while the last still runs.",
    MODULE_LOAD: "Warm up before the loop, so that code is loaded there (or set "
    "CUDA_MODULE_LOADING=EAGER).",
    PROFILER: "Record with fewer options; this time is the profiler's own.",
    UNKNOWN: "Record the CUDA API too (--trace=cuda), so that the launch calls are known.",
}
GENERAL = (LAUNCH_LATE, DEPENDENCY)
"""Causes whose idle time is that of many launches: one remedy seldom wins all of it."""
KEEP_STREAM_FREE = (
    "Keep host functions (cudaLaunchHostFunc, host nodes of graphs) short, or put them on a stream "
    "of their own: the work behind them waits until the CPU has run them."
)
NEARLY_ALL, _GOOD_PART = 0.75, 0.25
IF_REPEATED = "Check whether every step does this. If so, "
MAY_BE_ONCE = {
    LAUNCH_LATE: ".",
    COPY_WAIT: ".",
    GRAPH_LAUNCH: ".",
    ALLOCATION: "; a pool that first grows does it once.",
}
"""Causes of which one gap may be all there is, and how the advice for it ends."""
NODES = (
    " The graphs were recorded node by node, which makes each graph launch several times as long."
)


@dataclass
class Wording:
    """Message and action of a finding while they are put together, with their evidence values."""

    template: str
    remedy: str
    values: dict[str, Cell] = field(default_factory=dict)

    def add(self, sentence: str, **values: Cell) -> None:
        """Append a sentence, which starts with a blank, and its values."""
        self.template += sentence
        self.values.update(values)


def idle_findings(trace: Trace) -> tuple[Finding, ...]:
    """Steady idle time by cause.

    `sync-stalls` reports idle time after selected synchronizations, `memory` that of allocation in
    the loop.
    """
    return (*_by_cause(trace), *_one_time(trace), *_without_work(trace))


def action_for(trace: Trace, cause: int) -> str:
    """What to do about idle time of a cause, in the terms of the program's framework."""
    if cause == LAUNCH_LATE:
        return (
            f"Launch less often ({fewer_launches(trace)}), or take the CPU work between launches "
            "out of the loop."
        )
    if cause == COPY_WAIT:
        return (
            f"{early_uploads(trace)}, on a stream of its own; copy on the GPU itself where that is "
            "possible."
        )
    if cause == ALLOCATION:
        return f"Allocate before the loop, or through a pool ({memory_pool(trace)})."
    return ACTIONS[cause]


def _take_out(trace: Trace) -> str:
    """For launch-late idle time in which the CPU did other work than launching."""
    return (
        "Take this CPU work out of the loop: do it earlier, or "
        f"{other_threads(trace)}, so that launches reach the GPU before it runs dry."
    )


def _by_cause(trace: Trace) -> Iterator[Finding]:
    every = gaps(trace)
    for cause in LOST:
        steady = (every.cause == cause) & ~every.one_time
        if cause == SYNC_DRAIN:
            steady &= ~_after_selected_waits(trace)
        if cause == ALLOCATION and (in_loop := recurring(trace)):
            steady[in_loop.gap_rows] = False
        yield from _of_cause(trace, cause, steady)


def _of_cause(trace: Trace, cause: int, steady: Mask) -> Iterator[Finding]:
    """The finding for steady gaps of one cause, if they are worth one."""
    device, idle_ns = _most_idle(trace, steady)
    span_ns = steady_spans_ns(trace).get(device, 0)
    if severity_of(idle_ns, span_ns) is None:
        return
    own = steady & (gaps(trace).device == device)
    parts = CpuParts((), samples_of(trace, own))
    if cause == LAUNCH_LATE:
        parts = divided(trace, parts.rest, idle_ns, span_ns)
    for part in parts.parts:
        yield _off_cpu(trace, device, part)
    rest_ns = idle_ns - parts.time_ns
    severity = severity_of(rest_ns, span_ns)
    if severity is None:
        return
    wording = _opening(trace, device, rest_ns, own, LOST[cause], action_for(trace, cause))
    _add_not_counted(wording, parts.by_doing())
    line = longest_line(trace, parts.rest, rest_ns)
    site = late_idle(trace).longest(device) if cause == LAUNCH_LATE else None
    if site and not (line and (site.pattern < 0 or parts.parts)):
        _add_late_site(wording, trace, site)
    if line:
        _add_line(wording, trace, line, cause)
    severity = _add_details(wording, trace, cause, own, severity, by_line=line is not None)
    if cause == LAUNCH_LATE:
        severity = _behind_data(wording, trace, device, severity, parts)
    _add_other_gpus(wording, trace, steady & ~own)
    row = {**gpu_cells(trace, device), "cause": CAUSES[cause]}
    shown_in = ("lines", line.row) if line else ("causes", row)
    finding = _finding(trace, severity, wording, device, own, shown_in, rest_ns)
    left = own & ~gaps_of(parts, len(own))
    yield replace(
        finding,
        subject=line.subject() if line else finding.subject,
        lost=lost_in(gaps(trace), left),
        general=not _names_one_place(cause, site, line, rest_ns),
    )


def _names_one_place(
    cause: int, site: LateSite | None, line: LineSite | None, idle_ns: int
) -> bool:
    """Whether a single line, or other CPU work in a range of the program, takes most of it."""
    if cause not in GENERAL:
        return line is not None
    if line and line.other_work and 2 * line.time_ns > idle_ns:
        return True
    in_range = site is not None and site.other_work and site.pattern >= 0
    return bool(site and in_range and 2 * site.steady_ns > idle_ns)


def _behind_data(
    wording: Wording, trace: Trace, device: int, severity: Severity, parts: CpuParts
) -> Severity:
    """The severity of late launches: where data is the limit, no more than that of its wait."""
    waits = [part.time_ns for part in parts.parts if part.doing == DATA_WAIT]
    if not waits or not starved(trace).get(device):
        return severity
    wording.add(" Launches that come sooner would wait for data.")
    of_data = severity_of(waits[0], steady_spans_ns(trace)[device]) or "info"
    return max(severity, of_data, key=SEVERITIES.index)


def _off_cpu(trace: Trace, device: int, part: CpuPart) -> Finding:
    """The finding for launch-late idle time in which the CPU did not launch."""
    idle_ns, samples = part.time_ns, part.samples
    action = _take_out(trace) if part.doing == CPU else OFF_CPU_ACTIONS[part.doing]
    within = np.zeros(len(gaps(trace)), bool)
    within[samples.gap] = True
    line = longest_line(trace, samples, idle_ns)
    wording = _opening(trace, device, idle_ns, within, OFF_CPU_LOST[part.doing], action)
    row: dict[str, Cell] = {**gpu_cells(trace, device), "cause": CAUSES[LAUNCH_LATE]}
    severity = severity_of(idle_ns, steady_spans_ns(trace)[device])
    assert severity
    if line:
        _add_line(wording, trace, line, None)
    shown_in = ("lines", line.row) if line else ("causes", row)
    finding = _finding(trace, severity, wording, device, within, shown_in, idle_ns)
    return replace(finding, subject=line.subject()) if line else finding


def _add_not_counted(wording: Wording, apart: Mapping[int, int]) -> None:
    """Name the time that the findings on time off the CPU count, which this finding leaves out."""
    if apart:
        *most, last = [NOT_COUNTED[doing] for doing in apart]
        kinds = f"{', '.join(most)} and {last}" if most else last
        wording.template = wording.template.removesuffix(".")
        wording.add(f", not counting {{apart_ns}} of {kinds}.", apart_ns=sum(apart.values()))


def _add_line(wording: Wording, trace: Trace, line: LineSite, cause: int | None) -> None:
    """The line with most of the time, and the advice that fits."""
    place, values = line.place()
    all_of_it = line.time_ns == wording.values["idle_ns"]
    what = "All of it" if all_of_it else "{line_ns} of that"
    wording.add(f" {what} was {place}.", line_ns=line.time_ns, **values)
    if cause == LAUNCH_LATE:
        take_out = line.other_work
        wording.remedy = _take_out(trace) if take_out else action_for(trace, LAUNCH_LATE)


def _finding(
    trace: Trace,
    severity: Severity,
    wording: Wording,
    device: int,
    own: Mask,
    shown_in: tuple[str, dict[str, Cell]],
    idle_ns: int,
) -> Finding:
    """The finding for some gaps of one GPU; its window is that of the longest of them.

    Time of warm-up is no share of a step.
    """
    every = gaps(trace)
    longest = int(np.argmax(np.where(own, every.idle_ns, -1)))
    table, row = shown_in
    start_ns, end_ns = int(every.start_ns[longest]), int(every.end_ns[longest])
    steady = not every.one_time[longest]
    return Finding(
        severity,
        wording.template,
        wording.remedy,
        idle_ns,
        gpu_subject(trace, device),
        Evidence(wording.values, table, row, start_ns, end_ns),
        share_pct(idle_ns, steady_spans_ns(trace)[device]) if steady else None,
        CAUSES[every.cause[longest]] if steady else "",
        lost_in(every, own) if steady else None,
    )


def _most_idle(trace: Trace, chosen: Mask) -> tuple[int, int]:
    """The GPU (row in devices) that idled longest in the chosen gaps, and its time there."""
    every = gaps(trace)
    idle = {
        device: int(every.idle_ns[chosen & (every.device == device)].sum())
        for device in steady_spans_ns(trace)
    }
    device = max(idle, key=lambda each: idle[each], default=-1)
    return device, idle.get(device, 0)


def _after_selected_waits(trace: Trace) -> Mask:
    """True for the gaps due to selected waits, which sync-stalls reports."""
    wait = gaps(trace).wait
    result: Mask = wait >= 0
    result[result] = selected_calls(trace)[waits(trace).call[wait[result]]]
    return result


def _opening(trace: Trace, device: int, idle_ns: int, own: Mask, lost: str, action: str) -> Wording:
    """`The GPU sat idle for 147 ms (135 gaps) waiting …`; GPUs are numbered if several worked."""
    gpu = "The GPU" if len(device_work(trace)) == 1 else gpu_name(trace, device)
    values: dict[str, Cell] = {"idle_ns": idle_ns, "gaps": int(own.sum())}
    return Wording(f"{gpu} sat idle for {{idle_ns}} ({{gaps:gap}}) {lost}.", action, values)


def _add_late_site(wording: Wording, trace: Trace, site: LateSite) -> None:
    """What the CPU did during most of the launch-late time, and in which range."""
    doing = {
        OUTSIDE_CUDA: "Python code" if site.python else "CPU code outside CUDA",
        QUEUE_FULL: "spent at a full launch queue",
        OFF_CPU: "spent off the CPU (waiting or preempted)",
    }.get(site.activity, "spent in {cpu_call}")
    if site.activity >= 0:
        names = trace.recorded("api_calls").texts("name").values
        wording.values["cpu_call"] = str(names[site.activity])
    pattern = range_tree(trace).patterns[site.pattern] if site.pattern >= 0 else None
    where = "outside any range" if pattern is None else "in {range_pattern}"
    values: dict[str, Cell] = {"cpu_ns": site.steady_ns, "range_pattern": pattern}
    wording.add(f" {{cpu_ns}} of that was {doing} {where}.", **values)
    if site.other_work:
        wording.remedy = _take_out(trace)


def _add_details(
    wording: Wording, trace: Trace, cause: int, own: Mask, severity: Severity, *, by_line: bool
) -> Severity:
    """What stands out in the gaps of one cause. Returns the severity, which that may lower."""
    lone = lone_gap(trace, own) if cause in MAY_BE_ONCE else None
    if lone:
        _add_lone_gap(wording, cause, lone.range_path, lone.idle_ns, lone.fraction)
    elif cause == DEPENDENCY:
        steps = back_to_back(gaps(trace), own)
        wording.add(
            _back_to_back(steps, wording.values["gaps"] == steps.gaps),
            same_stream_idle_ns=steps.idle_ns,
            same_stream_gaps=steps.gaps,
            same_stream_median_ns=steps.median_ns,
        )
        _add_host_functions(wording, trace, own)
    elif cause != LAUNCH_LATE and not by_line:
        _add_call_site(wording, trace, cause, own)
    if cause == GRAPH_LAUNCH and _by_nodes(trace, own):
        wording.add(NODES)
        wording.remedy = AS_WHOLE
        return "info"
    return severity


def _add_host_functions(wording: Wording, trace: Trace, own: Mask) -> None:
    """Host functions that streams waited for, where they took a good part of the idle time."""
    host_ns, calls = in_host_functions(trace, own)
    if not calls or host_ns < _GOOD_PART * int(wording.values["idle_ns"] or 0):
        return
    wording.add(
        " For {host_ns} of it streams waited for {host_functions:host function}.",
        host_ns=host_ns,
        host_functions=calls,
    )
    wording.remedy = KEEP_STREAM_FREE


def _add_jit(wording: Wording, trace: Trace, own: Mask) -> None:
    """The driver's compilation of PTX, where it took a good part of the idle time."""
    jit_ns, number = in_jit(trace, own)
    if not number or jit_ns < _GOOD_PART * int(wording.values["idle_ns"] or 0):
        return
    wording.add(
        " For {jit_ns} of it the driver compiled PTX ({jit_compilations:JIT compilation}).",
        jit_ns=jit_ns,
        jit_compilations=number,
    )
    wording.remedy = BUILD_FOR_GPU


def _back_to_back(steps: BackToBack, all_of_it: bool) -> str:
    between = "between consecutive operations of one stream"
    if all_of_it:
        return f" All of it was {between}, {{same_stream_median_ns}} per gap (median)."
    median = ", median {same_stream_median_ns}" if steps.gaps else ""
    return f" {{same_stream_idle_ns}} of that was {between} ({{same_stream_gaps:gap}}{median})."


def _add_lone_gap(
    wording: Wording, cause: int, range_path: str | None, idle_ns: int, fraction: float
) -> None:
    where = "outside any range" if range_path is None else "in {longest_gap_range}"
    several = wording.values["gaps"] != 1
    what = "{longest_gap_ns} of that was a single gap" if several else "It came"
    values: dict[str, Cell] = {"longest_gap_ns": idle_ns, "longest_gap_range": range_path}
    wording.add(f" {what} before work launched {where}.", **values)
    if fraction >= NEARLY_ALL:
        action = wording.remedy
        again = f"{action[0].lower()}{action[1:].rstrip('.')}"
        wording.remedy = f"{IF_REPEATED}{again}{MAY_BE_ONCE[cause]}"


def _add_call_site(wording: Wording, trace: Trace, cause: int, own: Mask) -> None:
    """The call and range with most of the idle time: of the wait before it, or of the launch."""
    drained = cause == SYNC_DRAIN
    site = longest_wait_site(trace, own) if drained else longest_launch_site(trace, own)
    if site is None:
        return
    what = "followed {call}" if drained else "came before work launched by {call}"
    where = "" if site.range_path is None else " in {range_path}"
    wording.add(
        f" {{call_idle_ns}} of that {what}{where}.",
        call_idle_ns=site.idle_ns,
        call=site.api,
        range_path=site.range_path,
    )


def _by_nodes(trace: Trace, own: Mask) -> bool:
    """Whether most of this idle time came before graphs that were recorded node by node."""
    every = gaps(trace)
    nodes = own & cuda_graphs(trace).node[every.after]
    return 2 * int(every.idle_ns[nodes].sum()) >= int(every.idle_ns[own].sum())


def _add_other_gpus(wording: Wording, trace: Trace, others: Mask) -> None:
    every = gaps(trace)
    gpus = len(groups.different(every.device[others]))
    if gpus:
        total = "a total of " if gpus > 1 else ""
        wording.add(
            f" {{other_gpus:other GPU}} sat idle for {total}{{other_idle_ns}} for the same reason.",
            other_gpus=gpus,
            other_idle_ns=int(every.idle_ns[others].sum()),
        )


def _one_time(trace: Trace) -> Iterator[Finding]:
    """Idle time in warm-up and first uses, for the GPU that idled longest then.

    `phases` reports what was compilation.
    """
    every = gaps(trace)
    once = every.one_time & (every.cause != COMPILATION)
    device, idle_ns = _most_idle(trace, once)
    if severity_of(idle_ns, steady_spans_ns(trace).get(device, 0)) is None:
        return
    own = once & (every.device == device)
    lost = "during warm-up and first uses, such as code loading and the first pinned allocation"
    action = "Warm up before measuring; a longer run pays this once."
    wording = _opening(trace, device, idle_ns, own, lost, action)
    _add_jit(wording, trace, own)
    compiling_ns = int(every.idle_ns[(every.cause == COMPILATION) & (every.device == device)].sum())
    if compiling_ns:
        wording.template = wording.template.removesuffix(".")
        wording.add(", not counting {compiling_ns} of compilation.", compiling_ns=compiling_ns)
    _add_other_gpus(wording, trace, once & ~own)
    row = ("devices", gpu_cells(trace, device))
    yield _finding(trace, "info", wording, device, own, row, idle_ns)


def _without_work(trace: Trace) -> Iterator[Finding]:
    """Idle time of a GPU while selected ranges were open in which nothing was launched."""
    if not trace.selection.include or device_work(trace):
        return
    ops, every = operations(trace), every_gap(trace)
    longest, whole, where = 0, 0, -1
    for process, window in selected_windows(trace).items():
        for device in groups.different(ops.device[ops.process == process]).tolist():
            here = every.device == device
            inside = intervals.overlap(window, every.start_ns[here], every.end_ns[here])
            if inside.sum() > longest:
                longest, whole, where = int(inside.sum()), window.total(), device
    severity = severity_of(longest, whole)
    if severity is None:
        return
    yield Finding(
        severity,
        "No GPU work was launched in the selected ranges. "
        f"{gpu_name(trace, where)} sat idle for {{idle_ns}} of the {{open_ns}} they were open.",
        "Look at the ranges around them as well: an idle gap counts, with its cause, where the "
        "work that ended it was launched.",
        longest,
        gpu_subject(trace, where),
        Evidence({"idle_ns": longest, "open_ns": whole}),
        share_pct(longest, whole),
    )
