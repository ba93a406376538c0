"""What `gpu-idle` finds worth telling: one finding a cause, of the GPU that lost most by it.

GPUs that idle at the same time lose the time of the program once. So the time at stake is that of
one GPU, and a share of its own time.
"""

from __future__ import annotations

from traceview import groups, intervals, units
from traceview.analyses.gpu_idle.evidence import behind_own, lone_gap, most_after, most_before
from traceview.facts.idle.gaps import (
    ALLOCATION,
    CAUSES,
    COPY_WAIT,
    DEPENDENCY,
    GRAPH_LAUNCH,
    LAUNCH_LATE,
    MODULE_LOAD,
    PROFILER,
    SYNC_DRAIN,
    UNKNOWN,
    device_work,
    every_gap,
    gaps,
    steady_spans_ns,
)
from traceview.facts.idle.late_launches import TAKE_OUT, late_places
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_graphs import AS_WHOLE, cuda_graphs
from traceview.facts.operations.hosts import on_host
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.selection import selected_calls, selected_windows
from traceview.findings import Finding, Severity, severity_of
from traceview.tables import Mask
from traceview.trace import Trace

ACTIONS = {
    LAUNCH_LATE: "Give the GPU more work per launch (fuse, batch, torch.compile, a CUDA graph), "
    "or take the CPU work between launches out of the loop.",
    SYNC_DRAIN: "Look at sync-stalls of the whole recording: that synchronization is outside the "
    "selected ranges.",
    DEPENDENCY: "Look at what the work waited for: another stream or an event. Short gaps "
    "between kernels of one stream go away with fusion or a CUDA graph.",
    COPY_WAIT: "Pin what is uploaded and copy it early with non_blocking=True, on a stream of its "
    "own; copy on the GPU itself where that is possible.",
    GRAPH_LAUNCH: "Instantiate and upload CUDA graphs before the loop, and launch the next one "
    "while the last still runs.",
    MODULE_LOAD: "Warm up before the loop, so that code is loaded there (or set "
    "CUDA_MODULE_LOADING=EAGER).",
    ALLOCATION: "Allocate before the loop, or through a pool (torch's allocator, cudaMallocAsync).",
    PROFILER: "Record with fewer options; this time is the profiler's own.",
    UNKNOWN: "Record the CUDA API too (--trace=cuda), so that the launch calls are known.",
}
NEARLY_ALL = 0.75
ONCE = "Look whether each step does it. If so, "
MAY_BE_ONCE = {
    LAUNCH_LATE: ".",
    COPY_WAIT: ".",
    GRAPH_LAUNCH: ".",
    ALLOCATION: "; a pool that first grows does it once.",
}
"""Causes of which one gap may be all there is, and how the advice for it ends."""
NODES = (
    "; the graphs were recorded node by node, which makes each launch of one several times as long"
)


def idle_findings(trace: Trace) -> tuple[Finding, ...]:
    """Steady idle by cause; idle after a selected synchronization is one of sync-stalls."""
    told = (_of_cause(trace, cause) for cause in ACTIONS)
    found = tuple(finding for finding in told if finding is not None)
    return (*found, *_one_time(trace), *_without_work(trace))


def _of_cause(trace: Trace, cause: int) -> Finding | None:
    found, spans = gaps(trace), steady_spans_ns(trace)
    steady = (found.cause == cause) & ~found.one_time
    if cause == SYNC_DRAIN:
        steady &= ~_told_elsewhere(trace)
    idle = {d: int(found.idle_ns[steady & (found.device == d)].sum()) for d in spans}
    if not idle:
        return None
    device = max(idle, key=lambda each: idle[each])
    severity = severity_of(idle[device], spans[device])
    if severity is None:
        return None
    mine = steady & (found.device == device)
    opening = (
        f"{_gpu(trace, device)} was idle for {units.duration(idle[device])} in "
        f"{units.counted(int(mine.sum()), 'gap')} of cause {list(CAUSES)[cause]}: "
        f"{list(CAUSES.values())[cause]}"
    )
    severity, evidence, action = _told(trace, cause, device, mine, severity)
    message = f"{opening}{evidence}{_others(trace, steady & ~mine)}"
    return Finding(severity, message, action, idle[device])


def _told_elsewhere(trace: Trace) -> Mask:
    """True for the gaps of which sync-stalls tells, as it tells of all selected waits."""
    wait = gaps(trace).wait
    told = wait >= 0
    told[told] = selected_calls(trace)[waits(trace).call[wait[told]]]
    return told


def _gpu(trace: Trace, device: int) -> str:
    """The GPU as the subject of a sentence: named where several did selected work."""
    if len(device_work(trace)) == 1:
        return "The GPU"
    return f"GPU {trace.devices['device_id'][device]}{on_host(trace, device)}"


def _others(trace: Trace, more: Mask) -> str:
    found = gaps(trace)
    number = len(groups.different(found.device[more]))
    if not number:
        return ""
    total = units.duration(int(found.idle_ns[more].sum()))
    return f"; {units.counted(number, 'other GPU')} for {total}{' together' if number > 1 else ''}"


def _told(
    trace: Trace, cause: int, device: int, mine: Mask, severity: Severity
) -> tuple[Severity, str, str]:
    """Severity, evidence and action for the gaps of one cause on one GPU."""
    action, said = ACTIONS[cause], []
    if cause == LAUNCH_LATE and (place := late_places(trace).worst(device)):
        said.append(place.text)
        action = TAKE_OUT if place.elsewhere else action
    alone = lone_gap(trace, mine) if cause in MAY_BE_ONCE else None
    if alone:
        said.append(alone.text)
        if alone.share >= NEARLY_ALL:
            action = f"{ONCE}{action[0].lower()}{action[1:].rstrip('.')}{MAY_BE_ONCE[cause]}"
    elif cause == DEPENDENCY:
        said.append(behind_own(gaps(trace), mine))
    elif cause == SYNC_DRAIN:
        said.append(most_after(trace, mine))
    elif cause != LAUNCH_LATE and (most := most_before(trace, gaps(trace), mine)):
        said.append(most)
    evidence = "".join(f"; {each}" for each in said)
    if cause == GRAPH_LAUNCH and _by_nodes(trace, mine):
        return "info", f"{evidence}{NODES}", AS_WHOLE
    return severity, evidence, action


def _by_nodes(trace: Trace, mine: Mask) -> bool:
    """Whether most of this idle time came before graphs that were recorded node by node."""
    found = gaps(trace)
    nodes = mine & cuda_graphs(trace).node[found.after]
    return 2 * int(found.idle_ns[nodes].sum()) >= int(found.idle_ns[mine].sum())


def _one_time(trace: Trace) -> tuple[Finding, ...]:
    """What set-up and first uses took, on the GPU that idled longest."""
    found, spans = gaps(trace), steady_spans_ns(trace)
    once = {d: int(found.idle_ns[found.one_time & (found.device == d)].sum()) for d in spans}
    if not once:
        return ()
    device = max(once, key=lambda each: once[each])
    if severity_of(once[device], spans[device]) is None:
        return ()
    message = (
        f"{_gpu(trace, device)} was idle for {units.duration(once[device])} in set-up and in first "
        "uses, while the program set itself up, code was loaded, or pinned memory first allocated"
        f"{_others(trace, found.one_time & (found.device != device))}"
    )
    action = "Warm up before measuring; a longer run pays this once."
    return (Finding("info", message, action, once[device]),)


def _without_work(trace: Trace) -> tuple[Finding, ...]:
    """How long a GPU lay idle while selected ranges were open in which nothing was launched."""
    if not trace.selection.include or device_work(trace):
        return ()
    done, gap = operations(trace), every_gap(trace)
    longest, whole, where = 0, 0, -1
    for process, window in selected_windows(trace).items():
        for device in groups.different(done.device[done.process == process]).tolist():
            here = gap.device == device
            inside = intervals.overlap(window, gap.start_ns[here], gap.end_ns[here])
            if inside.sum() > longest:
                longest, whole, where = int(inside.sum()), window.total(), device
    severity = severity_of(longest, whole)
    if severity is None:
        return ()
    message = (
        "No GPU work was launched in the selected ranges; while they were open, "
        f"GPU {trace.devices['device_id'][where]}{on_host(trace, where)} was idle for "
        f"{units.duration(longest)} of {units.duration(whole)}"
    )
    action = (
        "Look at the ranges around them as well: an idle gap counts, and has its cause told, where "
        "the work that ended it was launched."
    )
    return (Finding(severity, message, action, longest),)
