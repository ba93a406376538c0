"""Findings of `gpu-idle`: one per cause, for the GPU that lost most by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_idle import gap_evidence, line_sites, remedies, sentences
from traceview.analyses.gpu_idle.gap_finding import (
    CpuPart,
    CpuParts,
    LostIdle,
    Shown,
    Wording,
    cpu_parts,
    gap_finding,
    is_other_work,
    lost_times,
    most_idle,
    opening_sentence,
)
from traceview.analyses.gpu_idle.sentences import add_jit, add_other_gpus
from traceview.analyses.wording import flush
from traceview.facts.idle.cpu_activity import LateSite, late_idle_in
from traceview.facts.idle.gaps import (
    Gaps,
    device_work,
    every_gap,
    gaps,
    steady_spans_ns,
    unknown_idle,
)
from traceview.facts.idle.lines import IdleSamples, joined, lines_of
from traceview.facts.launches import waits
from traceview.facts.memory import recurring
from traceview.facts.operations import gpu_cells, operations
from traceview.facts.ranges.origins import only_profiler_step
from traceview.facts.ranges.selection import selected_calls, selected_windows
from traceview.findings import (
    SEVERITIES,
    Edit,
    Evidence,
    Finding,
    Severity,
    Subject,
    severity_of,
    share_pct,
)
from traceview.rules import gpu_name, gpu_subject
from traceview.tables import Array, Mask
from traceview.trace import Trace
from traceview.units import Value
from traceview.vocabulary.activities import ACTIVITIES, CPU, DATA_WAIT, SLEEP
from traceview.vocabulary.causes import (
    ALLOCATION,
    CAUSE_NAMES,
    CAUSES,
    COMPILATION,
    GARBAGE_COLLECTION,
    LAUNCH_LATE,
    LOST_WORK,
    SYNC_DRAIN,
)


def by_cause(trace: Trace) -> Iterator[Finding]:
    every = gaps(trace)
    known = ~np.isin(every.device, list(unknown_idle(trace)))
    for cause, words in enumerate(CAUSES):
        if not words.lost:
            continue
        steady = (every.cause == cause) & ~every.one_time & known
        if cause == SYNC_DRAIN:
            steady &= ~_after_selected_waits(trace)
        if cause == ALLOCATION and (in_loop := recurring(trace)):
            steady[in_loop.gap_rows] = False
        yield from _of_cause(trace, cause, steady)


def _of_cause(trace: Trace, cause: int, steady: Mask) -> Iterator[Finding]:
    """The findings for steady idle time of one cause: on what comes seldom, then on the rest."""
    device, idle_ns = most_idle(trace, steady)
    if severity_of(idle_ns, steady_spans_ns(trace).get(device, 0)) is None:
        return
    own = steady & (gaps(trace).device == device)
    for accident in line_sites.of_cause(trace, device, cause):
        yield _once(trace, accident, idle_ns)
        own[accident.gaps] = False
    rest = LostIdle(device, own, int(gaps(trace).idle_ns[own].sum()))
    yield from _habit(trace, cause, rest, steady & (gaps(trace).device != device))


def _habit(trace: Trace, cause: int, whole: LostIdle, others: Mask) -> Iterator[Finding]:
    """The findings for idle time of one cause on one GPU; `others` is that of other GPUs."""
    device, own, idle_ns = whole
    span_ns = steady_spans_ns(trace)[device]
    if severity_of(idle_ns, span_ns) is None:
        return
    parts = CpuParts((), line_sites.samples_of(trace, own))
    if cause == LAUNCH_LATE:
        parts = cpu_parts(trace, parts.rest, span_ns)
    lost, lost_by_rest = lost_times(gaps(trace), parts, device, own)
    for part, lost_by_part in zip(parts.parts, lost, strict=True):
        yield replace(_off_cpu(trace, device, part), lost=lost_by_part)
    idle = LostIdle(device, own, idle_ns - parts.time_ns)
    if severity := severity_of(idle.idle_ns, span_ns):
        finding = _rest(trace, cause, idle, parts, severity, others)
        yield replace(finding, lost=lost_by_rest)


def _rest(
    trace: Trace, cause: int, idle: LostIdle, parts: CpuParts, severity: Severity, others: Mask
) -> Finding:
    """The finding for idle time of one cause without the parts that have findings of their own."""
    device, own, idle_ns = idle
    rows = np.flatnonzero(own)
    action = remedies.action_for(trace, cause)
    if cause == ALLOCATION:
        action = remedies.allocation_remedy(trace, rows)
    wording = opening_sentence(trace, idle, remedies.lost_by(trace, cause), action)
    sentences.add_not_counted(wording, parts.by_doing())
    # Where Python collects garbage, the line at that moment did not make it.
    line = (
        line_sites.longest_line(trace, parts.rest, idle_ns) if cause != GARBAGE_COLLECTION else None
    )
    site = late_idle_in(trace, rows).longest(device) if cause == LAUNCH_LATE else None
    if line:
        sentences.add_line(wording, trace, line, cause)
    elif site and not parts.parts:
        # The time of a site is that of all late launches: the parts are in it.
        sentences.add_late_site(wording, trace, site)
    if cause == LAUNCH_LATE and not line:
        wording.remedy += remedies.how_to_see_lines(trace)
    severity = sentences.add_details(wording, trace, cause, own, severity, by_line=line is not None)
    if cause == LAUNCH_LATE:
        severity = _behind_data(wording, trace, device, severity, parts)
    sentences.add_other_gpus(wording, trace, others)
    finding = gap_finding(
        trace, severity, wording, idle, _shown(trace, device, cause, parts.rest, line)
    )
    return replace(
        finding,
        subject=line.subject() if line else finding.subject,
        edit=_edit(trace, cause, rows, parts, line, site),
        general=not _names_one_place(trace, cause, site, line, idle_ns),
    )


def _names_one_place(
    trace: Trace, cause: int, site: LateSite | None, line: line_sites.LineSite | None, idle_ns: int
) -> bool:
    """Whether one line, or other CPU work in a range of the program, takes most idle time."""
    if not CAUSES[cause].general:
        return line is not None
    if line and line.other_work and 2 * line.time_ns > idle_ns:
        return True
    in_range = is_other_work(trace, None, site) and site is not None and site.pattern >= 0
    return bool(site and in_range and 2 * site.steady_ns > idle_ns)


def _behind_data(
    wording: Wording, trace: Trace, device: int, severity: Severity, parts: CpuParts
) -> Severity:
    """The severity of late launches; where data is the limit, at most that of the wait for data."""
    waits = [part.time_ns for part in parts.parts if part.doing == DATA_WAIT]
    if not waits or not line_sites.starved_devices(trace).get(device):
        return severity
    wording.add(" Launches that come sooner would wait for data.")
    of_data = severity_of(waits[0], steady_spans_ns(trace)[device]) or "info"
    return max(severity, of_data, key=SEVERITIES.index)


def _off_cpu(trace: Trace, device: int, part: CpuPart) -> Finding:
    """The finding for launch-late idle time in which the CPU did not launch."""
    idle_ns, samples = part.time_ns, part.samples
    within = np.zeros(len(gaps(trace)), bool)
    within[samples.gap] = True
    line = line_sites.longest_line(trace, samples, idle_ns)
    works = part.doing == CPU
    idle, action = LostIdle(device, within, idle_ns), remedies.part_remedy(trace, part, line)
    wording = opening_sentence(trace, idle, ACTIVITIES[part.doing].lost, action)
    severity = severity_of(idle_ns, steady_spans_ns(trace)[device])
    assert severity
    if line and works and line.time_ns < idle_ns:
        sentences.add_function(wording, line)
    elif line:
        sentences.add_line(wording, trace, line, None)
    lone = gap_evidence.lone_gap(trace, within)
    if lone and lone.fraction >= gap_evidence.STANDS_OUT:
        wording.remedy = remedies.if_repeated(trace, wording.remedy, LAUNCH_LATE)
        severity = "medium" if severity == "high" else severity
    shown = _shown(trace, device, LAUNCH_LATE, samples, line)
    finding = gap_finding(trace, severity, wording, idle, shown)
    if part.doing == SLEEP:
        # Where the CPU is late, the part of a sleep during which the GPU works can be saved too.
        finding = replace(finding, saving="at-least")
    edit = remedies.remove_pauses(trace, np.flatnonzero(within), samples)
    return replace(finding, subject=line.subject() if line else finding.subject, edit=edit)


def _edit(
    trace: Trace,
    cause: int,
    rows: Array,
    parts: CpuParts,
    line: line_sites.LineSite | None,
    site: LateSite | None,
) -> Edit | None:
    """The remedy of a finding as an edit: CPU work goes, or what the cause asks for.

    What has a finding of its own stays.
    """
    rest = parts.rest
    if cause == LAUNCH_LATE and is_other_work(trace, line, site):
        at_line = rest.take(lines_of(trace, rest) == line.number) if line else None
        return remedies.remove_pauses(trace, rows, at_line)
    edit = remedies.of_cause(trace, cause, rows)
    if edit and parts.parts:
        edit = remedies.keep_pauses(trace, edit, joined(part.samples for part in parts.parts))
    return edit


def _once(trace: Trace, accident: line_sites.Accident, whole_ns: int) -> Finding:
    """The finding for few long calls or pauses. A share of each step would not be its own."""
    every, device, cause, rows = gaps(trace), accident.device, accident.cause, accident.gaps
    own = np.zeros(len(every), bool)
    own[rows] = True
    idle = LostIdle(device, own, int(every.idle_ns[rows].sum()))
    wording = sentences.of_accident(trace, accident, idle, whole_ns)
    shown = _shown(trace, device, cause, line_sites.samples_of(trace, own), None)
    # What came seldom may not come again.
    finding = gap_finding(trace, "medium", wording, idle, shown)
    if len(accident.calls):
        edit = remedies.usual_calls(trace, accident.calls, accident.usual_ns)
    else:
        edit = remedies.remove_pauses(trace, rows)
    return replace(finding, share_of_step_pct=None, edit=edit)


def _shown(
    trace: Trace, device: int, cause: int, samples: IdleSamples, line: line_sites.LineSite | None
) -> Shown:
    """The evidence of idle time: the row of its line and a gap of it, else the row of its cause."""
    if line:
        return Shown("lines", line.row, line_sites.gap_at_line(trace, samples, line))
    return Shown("causes", {**gpu_cells(trace, device), "cause": CAUSES[cause].name})


def _after_selected_waits(trace: Trace) -> Mask:
    """True for the gaps due to selected waits, which sync-stalls reports."""
    wait = gaps(trace).wait
    result: Mask = wait >= 0
    result[result] = selected_calls(trace)[waits(trace).call[wait[result]]]
    return result


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


_WHERE = ", and may have run in {gaps_ns} that look idle"


def of_unknown(trace: Trace) -> Iterator[Finding]:
    """One finding per GPU whose gaps may be full of work that the recording lost."""
    every = gaps(trace)
    for device, unknown in unknown_idle(trace).items():
        gpu = "the GPU" if len(device_work(trace)) == 1 else gpu_name(trace, device)
        own = (every.device == device) & (every.cause == LOST_WORK)
        values: dict[str, Value] = {
            "lost": unknown.lost,
            "launches": unknown.launches,
            "gaps_ns": unknown.gaps_ns,
        }
        yield Finding(
            "info",
            f"How long {gpu} sat idle is unknown: the work of {{lost}} of {{launches:launch|"
            f"launches}} was not recorded{_WHERE if unknown.gaps_ns else ''}.",
            flush(trace),
            0,
            gpu_subject(trace, device),
            _evidence(values, gpu_cells(trace, device), every, own),
        )


def _evidence(
    values: Mapping[str, Value], gpu: Mapping[str, Value], every: Gaps, own: Mask
) -> Evidence:
    """Evidence by the longest of the gaps, or by the GPU if it has no gap."""
    if not own.any():
        return Evidence(values, "devices", gpu)
    longest = int(np.argmax(np.where(own, every.idle_ns, -1)))
    row = {**gpu, "cause": CAUSE_NAMES[LOST_WORK]}
    return Evidence(values, "causes", row, int(every.start_ns[longest]), int(every.end_ns[longest]))


def idle_findings(trace: Trace) -> tuple[Finding, ...]:
    """Steady idle time by cause.

    `sync-stalls` reports idle time after selected synchronizations, `memory` that of allocation in
    the loop.
    """
    idle = (
        *by_cause(trace),
        *one_time(trace),
        *before_first_work(trace),
        *without_work(trace),
    )
    return (*idle, *of_unknown(trace))
