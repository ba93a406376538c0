"""Findings on steady idle time: one per cause, and one for each thing that kept the CPU busy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview.analyses.gpu_idle import accidents, edits, line_sites, starvation
from traceview.analyses.gpu_idle.findings import details, remedies, sentences
from traceview.analyses.gpu_idle.findings.cpu_parts import (
    CpuPart,
    CpuParts,
    cpu_parts,
    is_other_work,
    lost_times,
)
from traceview.analyses.gpu_idle.findings.gap_finding import (
    LostIdle,
    Shown,
    Wording,
    gap_finding,
    most_idle,
    opening_sentence,
)
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.late_launches import LateSite, late_idle_in
from traceview.facts.idle.lines import IdleSamples, joined, lines_of
from traceview.facts.idle.unknown_idle import unknown_idle
from traceview.facts.memory.allocation_calls import recurring
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.hosts import gpu_cells
from traceview.facts.ranges.selection import selected_calls
from traceview.findings import SEVERITIES, Edit, Finding, Severity, severity_of
from traceview.tables import Array, Mask
from traceview.trace import Trace
from traceview.vocabulary.activities import ACTIVITIES, CPU, DATA_WAIT, SLEEP
from traceview.vocabulary.causes import ALLOCATION, CAUSES, LAUNCH_LATE, SYNC_DRAIN


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
    for accident in accidents.of_cause(trace, device, cause):
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
    line = line_sites.longest_line(trace, parts.rest, idle_ns)
    site = late_idle_in(trace, rows).longest(device) if cause == LAUNCH_LATE else None
    if line:
        sentences.add_line(wording, trace, line, cause)
    elif site and not parts.parts:
        # The time of a site is that of all late launches: the parts are in it.
        sentences.add_late_site(wording, trace, site)
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
    if not waits or not starvation.starved_devices(trace).get(device):
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
    lone = details.lone_gap(trace, within)
    if lone and lone.fraction >= details.STANDS_OUT:
        wording.remedy = remedies.if_repeated(trace, wording.remedy, LAUNCH_LATE)
        severity = "medium" if severity == "high" else severity
    shown = _shown(trace, device, LAUNCH_LATE, samples, line)
    finding = gap_finding(trace, severity, wording, idle, shown)
    if part.doing == SLEEP:
        # Where the CPU is late, the part of a sleep during which the GPU works can be saved too.
        finding = replace(finding, saving="at-least")
    edit = edits.remove_pauses(trace, np.flatnonzero(within), samples)
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
        return edits.remove_pauses(trace, rows, at_line)
    edit = edits.of_cause(trace, cause, rows)
    if edit and parts.parts:
        edit = edits.keep_pauses(trace, edit, joined(part.samples for part in parts.parts))
    return edit


def _once(trace: Trace, accident: accidents.Accident, whole_ns: int) -> Finding:
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
        edit = edits.usual_calls(trace, accident.calls, accident.usual_ns)
    else:
        edit = edits.remove_pauses(trace, rows)
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
