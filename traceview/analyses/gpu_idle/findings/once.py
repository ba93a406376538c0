"""Findings on idle time that comes once, and on ranges in which nothing was launched."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_idle.findings.gap_finding import (
    LostIdle,
    Shown,
    gap_finding,
    most_idle,
    opening_sentence,
)
from traceview.analyses.gpu_idle.findings.sentences import add_jit, add_other_gpus
from traceview.facts.idle.gaps import device_work, every_gap, gaps, steady_spans_ns
from traceview.facts.idle.unknown_idle import unknown_idle
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.origins import only_profiler_step
from traceview.facts.ranges.selection import selected_windows
from traceview.findings import Evidence, Finding, Subject, severity_of, share_pct
from traceview.rules.gpus import gpu_name, gpu_subject
from traceview.trace import Trace
from traceview.vocabulary.causes import COMPILATION, LOST_WORK

_LONG_NS = 1_000_000


def one_time(trace: Trace) -> Iterator[Finding]:
    """Idle time in warm-up and first uses, for the GPU that idled longest then.

    `phases` reports what was compilation.
    """
    every = gaps(trace)
    once = every.one_time & ~np.isin(every.cause, (COMPILATION, LOST_WORK))
    once &= ~np.isin(every.device, list(unknown_idle(trace)))
    device, idle_ns = most_idle(trace, once)
    if severity_of(idle_ns, steady_spans_ns(trace).get(device, 0)) is None:
        return
    idle = LostIdle(device, once & (every.device == device), idle_ns)
    lost = "during warm-up and first uses, such as code loading and the first pinned allocation"
    action = "Warm up before measuring; a longer run pays this once."
    wording = opening_sentence(trace, idle, lost, action)
    add_jit(wording, trace, idle.gaps)
    compiling_ns = int(every.idle_ns[(every.cause == COMPILATION) & (every.device == device)].sum())
    if compiling_ns:
        wording.template = wording.template.removesuffix(".")
        wording.add(", not counting {compiling_ns} of compilation.", compiling_ns=compiling_ns)
    add_other_gpus(wording, trace, once & ~idle.gaps)
    row = Shown("devices", gpu_cells(trace, device))
    yield gap_finding(trace, "info", wording, idle, row)


def before_first_work(trace: Trace) -> Iterator[Finding]:
    """The time before GPU work began in the only step that a profiler marked.

    It lies before all gaps, so no figure of the GPU includes it.
    """
    ranges, ops, row = trace.recorded("ranges"), operations(trace), only_profiler_step(trace)
    if row is None or trace.selection.include:
        return
    start, end = int(ranges["start_ns"][row]), int(ranges["end_ns"][row])
    own = ops.process == ranges["process"][row]
    first = int(ops.start_ns[own].min(initial=end))
    severity = severity_of(first - start, end - start)
    if first >= end or first - start < _LONG_NS or severity not in ("high", "medium"):
        return
    yield Finding(
        "medium",
        "The first GPU work of {step} began after {idle_ns} of its {step_ns} ({idle_pct}). The CPU "
        "did other work until then, and no other figure counts that time.",
        "Check whether other steps do this too. If so, prepare the input of a step while the GPU "
        "works on the one before: on another thread or process, such as DataLoader workers.",
        0,
        Subject("range", str(ranges.texts("name")[row])),
        Evidence(
            {
                "step": str(ranges.texts("name")[row]),
                "step_ns": end - start,
                "idle_ns": first - start,
                "idle_pct": 100 * (first - start) / (end - start),
            },
            start_ns=start,
            end_ns=first,
        ),
    )


def without_work(trace: Trace) -> Iterator[Finding]:
    """Idle time of a GPU while selected ranges were open in which nothing was launched."""
    if not trace.selection.include or device_work(trace):
        return
    ops, every = operations(trace), every_gap(trace)
    longest, whole, where = 0, 0, -1
    for process, window in selected_windows(trace).items():
        for device in groups.different(ops.device[ops.process == process]).tolist():
            on_device = every.device == device
            inside = intervals.overlap(window, every.start_ns[on_device], every.end_ns[on_device])
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
