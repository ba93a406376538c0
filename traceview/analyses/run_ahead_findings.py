"""Findings of `run-ahead`: the verdict on each device, with its lead and its queue.

What idle time costs is a finding of other analyses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.analyses import wording
from traceview.analyses.gpu_idle.gap_finding import does_other_work
from traceview.analyses.verdict.verdict import waits_for_data, waits_for_results
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.launching import copying_ns, counted_gaps, long_launches, work_ns
from traceview.facts.idle.typical import typical_gap
from traceview.facts.launches import queue_wait_ns
from traceview.facts.operations import operations
from traceview.facts.ranges.selection import selected, selected_operations
from traceview.facts.steps.steps import steps, steps_ahead
from traceview.findings import Evidence, Finding, share_pct
from traceview.rules import gpu_name, gpu_subject
from traceview.tables import Cell
from traceview.trace import Trace
from traceview.vocabulary.causes import CAUSES, GRAPH_LAUNCH, LAUNCH_LATE, SYNC_DRAIN

VERDICTS = {
    "gpu-bound": "is GPU-bound: it nearly always has work queued.",
    "queue-full": "has a full launch queue (queue-full): the CPU is so far ahead that it waits for "
    "room there.",
    "launch-bound": "is launch-bound: it runs dry because the CPU launches too late.",
    "sync-drained": "is sync-drained: it runs dry after synchronizations, in which the CPU loses "
    "its lead.",
    "dependency-bound": "has its work queued early enough (dependency-bound), and sits idle until "
    "other work or the GPU itself lets that begin.",
    "mixed": "has no single limit (mixed): it runs dry for several reasons, or queued work waits "
    "for other work.",
}
"""The verdicts in words, behind `GPU 0`."""
# A program that launches only a memset and a kernel does not show how early it launches.
_LEAST_OPERATIONS = 4
_CAUSES_OF = {"sync-drained": (SYNC_DRAIN,), "launch-bound": (LAUNCH_LATE, GRAPH_LAUNCH)}
_AHEAD = ("gpu-bound", "queue-full")
"""Verdicts on a GPU that is never out of work for long."""
_ACTIONS = {
    "gpu-bound": "Make the kernels faster. The launches are early enough.",
    "queue-full": "Make the kernels faster. Launching earlier cannot help.",
    "sync-drained": "Read results on the CPU less often, or later, with a non-blocking copy.",
    "dependency-bound": "Look in gpu-idle at what the queued work waited for. Launching earlier "
    "cannot help.",
    "mixed": "Look at the causes in gpu-idle, the largest first.",
}
_OTHER_WORK = (
    "Look in gpu-idle for what the CPU did between launches. It launched nothing for so long that "
    "fewer launches would help little."
)
_LOAD_SOONER = (
    "Look in gpu-idle for where the program gets its data. Fewer launches would help little."
)
_COPY_LESS = (
    "Make copies fewer or faster, or overlap them with kernels on a separate stream (see "
    "memory-copies). The launches are early enough."
)

_LONG_CALLS = (
    "Look in launch-overhead at the launch calls that take long. Fewer launches would help little."
)
_ONE_CAUSE = "sits idle for {{steady_idle_pct}} of the time, mostly {cause} (mixed)."
_LAUNCH_BOUND = (
    "is launch-bound: it sits idle for {steady_idle_pct} of the time, mostly because the CPU "
    "launches too late."
)
_RESULT_BOUND = (
    "is sync-drained: it sits idle for {steady_idle_pct} of the time, mostly after the program "
    "waited for results, as samples show."
)
_DATA_BOUND = (
    "is data-bound: it sits idle for {steady_idle_pct} of the time, mostly because the CPU loads "
    "data, then launches late."
)


def verdict_findings(trace: Trace, rows: Mapping[int, Mapping[str, Cell]]) -> Iterator[Finding]:
    """One finding per known verdict; `rows` are the rows of the table `devices` by device."""
    by_verdict: dict[str, list[int]] = {}
    for device, row in rows.items():
        if row["verdict"] != "unknown" and int(row["operations"] or 0) >= _LEAST_OPERATIONS:
            by_verdict.setdefault(str(row["verdict"]), []).append(device)
    for devices in by_verdict.values():
        first, *others = devices
        finding = _verdict_finding(trace, first, rows[first])
        if others:
            same = " {other_gpus:other GPU} got the same verdict."
            values = {**finding.evidence.values, "other_gpus": len(others)}
            evidence = replace(finding.evidence, values=values)
            finding = replace(finding, template=finding.template + same, evidence=evidence)
        yield finding


def _verdict_finding(trace: Trace, device: int, row: Mapping[str, Cell]) -> Finding:
    """The verdict on a device; `row` is its row of the table `devices`."""
    verdict, every = str(row["verdict"]), gaps(trace)
    counted = counted_gaps(trace, device, every)
    own = counted & np.isin(every.cause, _CAUSES_OF.get(verdict, ()))
    idle_ns = int(every.idle_ns[own].sum()) if verdict == "sync-drained" else 0
    figures = ("queue_wait_median_ns", "max_queue_depth")
    values: dict[str, Cell] = {name: row[name] for name in figures}
    words = VERDICTS[verdict]
    if verdict == "launch-bound" and row["steady_idle_pct"] is not None:
        words = _DATA_BOUND if waits_for_data(trace, device) else _LAUNCH_BOUND
        words = _RESULT_BOUND if waits_for_results(trace, device) else words
        values["steady_idle_pct"] = row["steady_idle_pct"]
    if verdict == "mixed" and row["steady_idle_pct"] is not None:
        of_cause = groups.added(every.cause[counted], every.idle_ns[counted], len(CAUSES))
        if 2 * of_cause.max() > of_cause.sum():
            words = _ONE_CAUSE.format(cause=_words_of(int(np.argmax(of_cause))))
            values["steady_idle_pct"] = row["steady_idle_pct"]
    template = f"{gpu_name(trace, device)} {words}"
    if idle_ns:
        template += " It sits idle for {idle_ns} because of that."
        values["idle_ns"] = idle_ns
    copies, action = _advice(trace, device, verdict, values)
    template += (
        f"{copies} Operations wait {{queue_wait_median_ns}} in the queue (median), and at most "
        f"{{max_queue_depth:operation}} {'is' if row['max_queue_depth'] == 1 else 'are'} "
        f"queued.{_lead_sentence(trace, device, values)}"
    )
    shown = {name: row[name] for name in ("device_id", "host_id")}
    span_ns = steady_spans_ns(trace)[device]
    return Finding(
        "info",
        template,
        action,
        idle_ns,
        gpu_subject(trace, device),
        Evidence(values, "devices", shown, *_window(trace, device, verdict)),
        share_pct(idle_ns, span_ns) if idle_ns else None,
        work=wording.lost_in(every, own) if idle_ns else None,
    )


def _words_of(cause: int) -> str:
    """What follows `sits idle for 20 % of the time, mostly`."""
    return CAUSES[cause].idle or CAUSES[cause].lost


def holds_up(trace: Trace, device: int) -> bool:
    """Whether most late launches of a device are late since a launch call took long."""
    return device in long_launches(trace) and long_launches(trace)[device].is_most


def _window(trace: Trace, device: int, verdict: str) -> tuple[int, int]:
    """Time window of the evidence: the longest queue wait, or the longest gap of a dry GPU."""
    every = gaps(trace)
    counted = np.flatnonzero(counted_gaps(trace, device, every))
    if verdict not in _AHEAD and len(counted):
        gap = typical_gap(trace, every, counted_gaps(trace, device, every))
        return int(every.start_ns[gap]), int(every.end_ns[gap])
    ops, wait = operations(trace), queue_wait_ns(trace)
    own = np.flatnonzero((ops.device == device) & selected_operations(trace))
    longest = own[np.argmax(wait[own])]
    end_ns = int(ops.end_ns[longest])
    return int(ops.start_ns[longest]) - max(int(wait[longest]), 0), end_ns


def _advice(trace: Trace, device: int, verdict: str, values: dict[str, Cell]) -> tuple[str, str]:
    """A sentence on copies where these are most of the work, and the action."""
    if verdict == "launch-bound":
        if waits_for_data(trace, device):
            return "", _LOAD_SOONER
        if waits_for_results(trace, device):
            return "", _ACTIONS["sync-drained"]
        if holds_up(trace, device):
            return "", _LONG_CALLS
        fewer = f"Launch less often or earlier: {wording.fewer_launches(trace)}."
        return "", _OTHER_WORK if does_other_work(trace, device) else fewer
    action = _ACTIONS[verdict]
    copying, work = copying_ns(trace, device), work_ns(trace, device)
    if verdict not in _AHEAD or 2 * copying < work:
        return "", action
    values.update(copying_ns=copying, busy_ns=work)
    return " It only copies for {copying_ns} of its {busy_ns} of work.", _COPY_LESS


class Lead(NamedTuple):
    """How far the CPU is ahead of a device: at the end of a step, and in steps at most."""

    median_ns: int
    most_steps: int


def _lead(trace: Trace, device: int) -> Lead | None:
    """The lead in steps that work on this device alone; None without such steps."""
    ops, every = operations(trace), steps(trace)
    process, of_stream = ops.streams[:, 0], ops.streams[:, 1]
    alone = ~np.isin(process, process[of_stream != device])
    own = (every.operations > 0) & np.isin(every.process, process[alone])
    own &= selected(trace, every.process, every.cpu_start_ns)
    if not own.any():
        return None
    lead = float(np.median((every.gpu_end_ns - every.cpu_end_ns)[own]))
    return Lead(round(lead), int(steps_ahead(every)[own].max()))


def _lead_sentence(trace: Trace, device: int, values: dict[str, Cell]) -> str:
    lead = _lead(trace, device)
    if lead is None:
        return ""
    values.update(lead_ns=abs(lead.median_ns), steps_ahead=lead.most_steps)
    side = "before" if lead.median_ns >= 0 else "after"
    ahead = "at most {steps_ahead:step} ahead" if lead.most_steps else "never a whole step ahead"
    return f" The CPU ends a step {{lead_ns}} {side} the GPU does (median) and is {ahead}."
