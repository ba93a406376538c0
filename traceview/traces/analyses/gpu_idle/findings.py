"""Findings of `gpu-idle`: one per cause, for the GPU that lost most by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import (
    SEVERITIES,
    Edit,
    Saving,
    Severity,
    Subject,
    severity_of,
)
from traceview.base.tables import Cell, Mask
from traceview.base.vocabulary import activities, causes
from traceview.traces.analyses import wording
from traceview.traces.analyses.gpu_idle import (
    anomaly,
    beside_work,
    gap_evidence,
    idle_claim,
    line_sites,
    pinning,
    remedies,
    sentences,
)
from traceview.traces.analyses.gpu_idle.idle_claim import IdleClaim
from traceview.traces.analyses.gpu_idle.late_parts import CpuPart, Habit, habit, is_other_work
from traceview.traces.facts.idle import broken_graphs, gap_bounds, gaps, lines, stack_sites
from traceview.traces.facts.idle.cpu_activity import ELSEWHERE_NS
from traceview.traces.facts.launches import loses_graphs, waits
from traceview.traces.facts.memory import recurring
from traceview.traces.facts.operations import Kind, gpu_cells, operations
from traceview.traces.facts.pacing import paced
from traceview.traces.facts.ranges.origins import only_profiler_step
from traceview.traces.facts.ranges.selection import selected_calls, selected_windows
from traceview.traces.facts.round_trips import lost_by, round_trips
from traceview.traces.facts.steps.steps import (
    step_of_operations,
    steps,
    warms_up,
)
from traceview.traces.facts.work.variants import between_compared
from traceview.traces.rules import FindingRule, TimeClaim, gpu_name, gpu_subject
from traceview.traces.trace import Trace


def by_cause(trace: Trace) -> Iterator[TimeClaim]:
    """Steady idle time by cause.

    `sync-stalls` reports idle time after selected synchronizations and that of round trips,
    `memory` that of allocation in the loop.
    """
    every = gaps.gaps(trace)
    known = ~np.isin(every.device, list(gaps.unknown_idle(trace)))
    known &= ~lost_by(trace, every, round_trips(trace))
    for cause, words in enumerate(causes.CAUSES):
        if not words.lost:
            continue
        steady = (every.cause == cause) & ~every.one_time & known
        if cause == causes.SYNC_DRAIN:
            # True for the gaps due to selected waits, which sync-stalls reports.
            wait = gaps.gaps(trace).wait
            reported: Mask = wait >= 0
            reported[reported] = selected_calls(trace)[waits(trace).call[wait[reported]]]
            steady &= ~reported
        if cause == causes.ALLOCATION and (in_loop := recurring(trace)):
            steady[in_loop.gap_rows] = False
        if cause == causes.LAUNCH_LATE:
            between = steady & between_compared(trace)
            steady &= ~between
            yield from _between_compared(trace, between)
        yield from _of_cause(trace, cause, steady)


def _between_compared(trace: Trace, between: Mask) -> Iterator[TimeClaim]:
    """What the CPU does between kernels that the program compares, such as checking a result."""
    device, idle_ns = _most_idle(trace, between)
    if severity_of(idle_ns, gaps.steady_spans_ns(trace).get(device, 0)):
        own = between & (gaps.gaps(trace).device == device)
        idle = IdleClaim(trace, device, own, idle_ns, _BETWEEN, _COMPARES)
        claim = idle.claim("info", "causes", _row_of(trace, device, causes.LAUNCH_LATE))
        yield replace(claim, saved_ns=0)


_BETWEEN = "between kernels that the program compares, one after another"
_COMPARES = (
    "Leave it where the CPU checks or prints their results: only what the kernels take counts."
)
_MAY_BE_PACE = (activities.SLEEP, activities.PROCESS, activities.OFF_CPU)


def _of_cause(trace: Trace, cause: int, steady: Mask) -> Iterator[TimeClaim]:
    """The claims on steady idle time of one cause: on what comes seldom, on parts, on the rest."""
    device, idle_ns = _most_idle(trace, steady)
    span_ns = gaps.steady_spans_ns(trace).get(device, 0)
    if severity_of(idle_ns, span_ns) is None:
        return
    on_device, usually = gaps.gaps(trace).device == device, steady.copy()
    for accident in line_sites.of_cause(trace, device, cause):
        yield _once(trace, accident, idle_ns)
        usually[accident.gaps] = False
    for of_loop in _by_loop(trace, usually, on_device):
        own = of_loop & on_device
        if severity_of(int(gaps.gaps(trace).idle_ns[own].sum()), span_ns) is None:
            continue
        usual = habit(trace, cause, device, own)
        *lost, lost_by_rest = usual.lost(trace)
        for part, lost_by_part in zip(usual.parts, lost, strict=True):
            if part.doing not in _MAY_BE_PACE or not paced(trace, device):
                yield replace(_off_cpu(trace, device, part), lost=lost_by_part)
        if severity := severity_of(usual.idle_ns, span_ns):
            claim = _rest(trace, cause, usual, severity, of_loop & ~on_device)
            yield replace(claim, lost=lost_by_rest)


_MUCH_OF_LOSS = 0.25


def _by_loop(trace: Trace, steady: Mask, on_device: Mask) -> Iterator[Mask]:
    """The gaps of each loop that has much of their time, and the others; all if one loop has much.

    A remedy is that of a loop: training and evaluation launch at different places.
    """
    every = gaps.gaps(trace)
    step, series = step_of_operations(trace)[every.after], np.full(len(every), -1)
    series[step >= 0] = steps(trace).series[step[step >= 0]]
    own = steady & on_device
    idle_ns = np.bincount(series[own] + 1, every.idle_ns[own])
    large = np.flatnonzero(idle_ns[1:] > _MUCH_OF_LOSS * idle_ns.sum())
    if len(large) < 2:
        yield steady
        return
    for loop in large.tolist():
        yield steady & (series == loop)
    yield steady & ~np.isin(series, large)


def _rest(trace: Trace, cause: int, usual: Habit, severity: Severity, others: Mask) -> TimeClaim:
    """The claim on idle time of one cause without the parts that have claims of their own."""
    device, line, site = usual.device, usual.line, usual.site
    rows = np.flatnonzero(usual.gaps)
    edit = _edit(trace, cause, usual)
    action = remedies.action_for(trace, cause)
    if cause == causes.LAUNCH_LATE and edit is None:
        action = remedies.of_lone_launches(trace)
    if cause == causes.ALLOCATION:
        action = remedies.allocation_remedy(trace, rows)
    lost = remedies.lost_by(trace, cause)
    idle = IdleClaim(trace, device, usual.gaps, usual.idle_ns, lost, action)
    if cause == causes.ALLOCATION and (kept := remedies.never_freed(trace)):
        text = " No recorded call frees what {kept:call} to {kept_api} allocated."
        idle.say(text, kept=kept[1], kept_api=kept[0])
    sentences.not_counted(idle, usual.by_doing())
    late = cause == causes.LAUNCH_LATE
    broken = broken_graphs.broken_graphs(trace).get(device) if late else None
    if broken:
        sentences.in_broken_graph(idle, *broken)
    elif line:
        sentences.at_line(idle, line, cause)
    elif site and not usual.parts:
        # The time of a site is that of all late launches: the parts are in it.
        sentences.at_late_site(idle, site)
    if late and not line:
        idle.remedy += remedies.how_to_see_lines(trace)
    severity = sentences.details(idle, cause, severity, by_line=line is not None)
    if late:
        severity = _behind_data(idle, severity, usual)
    sentences.on_other_gpus(idle, others, late=late)
    claim = _shown(idle, severity, cause, line, usual.rest)
    if cause == causes.UNKNOWN or (edit is None and paced(trace, device)):
        # Passes take as long without this idle time. A better recording makes nothing faster.
        claim = replace(claim, severity="info", saved_ns=0)
    return replace(
        claim,
        subject=broken[0].subject if broken else claim.subject,
        edit=edit,
        general=not (broken or _names_one_place(trace, cause, usual)),
    )


def _shown(
    idle: IdleClaim,
    severity: Severity,
    cause: int,
    line: line_sites.LineSite | None,
    samples: lines.IdleSamples,
) -> TimeClaim:
    """The claim, shown by a line and the gap with most of its time, else by the cause."""
    if not line:
        return idle.claim(severity, "causes", _row_of(idle.trace, idle.device, cause))
    gap = line_sites.gap_at_line(idle.trace, samples, line)
    return replace(idle.claim(severity, "lines", line.row, gap), subject=line.subject())


def _row_of(trace: Trace, device: int, cause: int) -> dict[str, Cell]:
    return {**gpu_cells(trace, device), "cause": causes.CAUSES[cause].name}


def _names_one_place(trace: Trace, cause: int, usual: Habit) -> bool:
    """Whether one line, or other CPU work than launching, takes most idle time."""
    # The time of a site is that of all late launches: the parts are in it.
    line, site = usual.line, None if usual.parts else usual.site
    if not causes.CAUSES[cause].general:
        return line is not None
    if line and line.other_work and 2 * line.time_ns > usual.idle_ns:
        return True
    other = site is not None and is_other_work(trace, None, site)
    return bool(site and other and 2 * site.steady_ns > usual.idle_ns)


def _behind_data(idle: IdleClaim, severity: Severity, usual: Habit) -> Severity:
    """The severity of late launches; where data is the limit, at most that of the wait for data."""
    waits = [part.time_ns for part in usual.parts if part.doing == activities.DATA_WAIT]
    if not waits or not line_sites.starved_devices(idle.trace).get(idle.device):
        return severity
    idle.say(" Launches that come sooner would wait for data.")
    of_data = severity_of(waits[0], gaps.steady_spans_ns(idle.trace)[idle.device]) or "info"
    return max(severity, of_data, key=SEVERITIES.index)


def _off_cpu(trace: Trace, device: int, part: CpuPart) -> TimeClaim:
    """The claim on launch-late idle time in which the CPU did not launch."""
    within = np.zeros(len(gaps.gaps(trace)), bool)
    within[part.samples.gap] = True
    line = line_sites.longest_line(trace, part.samples, part.time_ns)
    action = remedies.part_remedy(trace, part, line)
    lost = activities.ACTIVITIES[part.doing].lost
    idle = IdleClaim(trace, device, within, part.time_ns, lost, action)
    severity = severity_of(part.time_ns, gaps.steady_spans_ns(trace)[device])
    assert severity
    loads = part.doing == activities.DATA_LOADING
    asks = line_sites.asking_line(trace, part.samples) if loads else None
    if asks and line and asks.place != line.name:
        sentences.for_batches_of(idle, asks)
    _say_where(idle, part, line)
    lone = gap_evidence.lone_gap(trace, within, part=True)
    is_lone = bool(lone and lone.fraction >= gap_evidence.STANDS_OUT)
    if is_lone:
        idle.remedy = remedies.if_repeated(trace, idle.remedy, causes.LAUNCH_LATE)
        severity = "medium" if severity == "high" else severity
    claim = _shown(idle, severity, causes.LAUNCH_LATE, line, part.samples)
    if is_lone:
        # What came once may not come again: it has no share of a step, and its severity stays.
        claim = replace(claim, span_ns=0)
    if asks:
        claim = replace(claim, subject=asks.subject)
    edit = remedies.remove_pauses(trace, np.flatnonzero(within), part.samples)
    # Where the CPU is late, the part of a sleep during which the GPU works can be saved too.
    saving: Saving | None = "at-least" if part.doing == activities.SLEEP else None
    # The end of these is somebody else's, and may not come sooner.
    outside = part.doing in (activities.OFF_CPU, activities.PROCESS)
    if part.doing == activities.MESSAGE:
        # Nothing tells how long its latency or the other rank makes a message take.
        return replace(claim, saved_ns=0)
    return replace(claim, edit=edit, saving=saving, outside=outside)


def _say_where(idle: IdleClaim, part: CpuPart, line: line_sites.LineSite | None) -> None:
    """Name the function, the line or the range that a part of idle time passed in."""
    if line and part.hidden:
        sentences.around_function(idle, line)
    elif line and part.doing == activities.CPU and line.time_ns < part.time_ns:
        sentences.in_function(idle, line)
    elif line:
        sentences.at_line(idle, line, None)
    elif part.doing == activities.MESSAGE:
        sentences.in_messages(idle)
    else:
        sentences.in_range(idle)
    if part.doing == activities.LOCK:
        _by_helper(idle)


def _by_helper(idle: IdleClaim) -> None:
    """Name the function that another thread works in, where it works in most of the idle time."""
    trace, every = idle.trace, gaps.gaps(idle.trace)
    threads = every.thread[idle.gaps & (every.thread >= 0)]
    if not len(threads):
        return
    thread = int(np.bincount(threads).argmax())
    seen = stack_sites.helping_samples(trace, thread, intervals.covered(every, idle.gaps))
    worked_ns = len(seen.site) * lines.sampling_period_ns(seen.time_ns)
    _, words, figures = beside_work.place(trace, seen.site)
    if words and 2 * worked_ns > idle.idle_ns:
        idle.say(
            " Meanwhile, by samples, another thread worked, {helper_pct} of it in {helper} "
            "({helper_module}).",
            helper_pct=figures["function_pct"],
            helper=words["function"],
            helper_module=words["module"],
        )


def _edit(trace: Trace, cause: int, usual: Habit) -> Edit | None:
    """The remedy of a finding as an edit: CPU work goes, or what the cause asks for.

    What has a finding of its own stays.
    """
    rest, line, rows = usual.rest, usual.line, np.flatnonzero(usual.gaps)
    # The time of a site is that of all late launches: the parts are in it.
    site = None if usual.parts else usual.site
    if cause == causes.LAUNCH_LATE and is_other_work(trace, line, site):
        if not line:
            # Shorter ones are the cost of launches, which stay.
            rows = rows[gaps.gaps(trace).idle_ns[rows] > ELSEWHERE_NS]
        at_line = rest.take(lines.lines_of(trace, rest) == line.number) if line else None
        return remedies.remove_pauses(trace, rows, at_line)
    edit = remedies.of_cause(trace, cause, rows)
    if edit and usual.parts:
        edit = remedies.keep_pauses(trace, edit, lines.joined(part.samples for part in usual.parts))
    return edit


def _once(trace: Trace, accident: line_sites.Accident, whole_ns: int) -> TimeClaim:
    """The claim on few long calls or pauses. A share of each step would not be its own."""
    every, rows = gaps.gaps(trace), accident.gaps
    own = np.zeros(len(every), bool)
    own[rows] = True
    idle = IdleClaim(trace, accident.device, own, int(every.idle_ns[rows].sum()), "", "")
    sentences.of_accident(idle, accident, whole_ns)
    if len(accident.calls):
        edit = remedies.usual_calls(trace, accident.calls, accident.usual_ns)
    else:
        edit = remedies.remove_pauses(trace, rows)
    row = _row_of(trace, accident.device, accident.cause)
    # What came seldom may not come again.
    return replace(idle.claim("medium", "causes", row), span_ns=0, edit=edit, at_most="medium")


def _most_idle(trace: Trace, chosen: Mask) -> tuple[int, int]:
    """The GPU (row in devices) that idled longest in the chosen gaps, and its time there."""
    every = gaps.gaps(trace)
    idle = {
        device: int(every.idle_ns[chosen & (every.device == device)].sum())
        for device in gaps.steady_spans_ns(trace)
    }
    device = max(idle, key=lambda each: idle[each], default=-1)
    return device, idle.get(device, 0)


_LONG_NS = 1_000_000


def one_time(trace: Trace) -> Iterator[TimeClaim]:
    """Idle time in warm-up and first uses, for the GPU that idled longest then.

    `phases` reports what was compilation.
    """
    every = gaps.gaps(trace)
    once = every.one_time & ~np.isin(every.cause, (causes.COMPILATION, causes.LOST_WORK))
    once &= ~np.isin(every.device, list(gaps.unknown_idle(trace)))
    device, idle_ns = _most_idle(trace, once)
    if severity_of(idle_ns, gaps.steady_spans_ns(trace).get(device, 0)) is None:
        return
    own = once & (every.device == device)
    by_cause = every.by_cause(own)
    main = int(np.argmax(by_cause))
    paused_ns = int(every.idle_ns[own & every.lone_pause].sum())
    uses = "first uses, such as code loading and the first pinned allocation"
    lost = f"during {'warm-up and ' * warms_up(trace)}"
    lost += uses if main in causes.FIRST_USES else "start-up"
    lost += ", and in one long pause" * (paused_ns > 0)
    action = "Warm up before measuring; a longer run pays this once."
    idle = IdleClaim(trace, device, own, idle_ns, lost, action)
    severity: Severity = "info"
    if main not in causes.FIRST_USES:
        what = causes.CAUSES[main].idle or causes.CAUSES[main].lost
        if not sentences.in_messages(idle):
            idle.say_part("main_ns", int(by_cause[main]), f"was {what}.")
        if paused_ns:
            idle.say(
                " One pause after warm-up, as long as many steps, took {paused_ns}.",
                paused_ns=paused_ns,
            )
        if device in gaps.long_starts(trace):
            severity = "high"
            kernels = np.isin(operations(trace).kind, (Kind.KERNEL, Kind.GRAPH)).any()
            idle.lost = "before its first kernel" if kernels else "between copies, without a kernel"
            idle.remedy = remedies.if_repeated(
                trace, remedies.take_out(trace, own), causes.LAUNCH_LATE
            )
            line = line_sites.longest_line(trace, line_sites.samples_of(trace, own), idle_ns)
            if line:
                sentences.at_line(idle, line, None)
            else:
                sentences.in_range(idle, once=True)
    sentences.during_jit(idle)
    compiling = (every.cause == causes.COMPILATION) & (every.device == device)
    if compiling.any():
        idle.values["compiling_ns"] = int(every.idle_ns[compiling].sum())
    sentences.on_other_gpus(idle, once & ~own)
    yield idle.claim(severity, "devices", gpu_cells(trace, device))


def before_first_work(trace: Trace) -> Iterator[TimeClaim]:
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
    if 2 * gap_bounds.first_wait_ns(trace) > first - start:
        # Work from before the recording runs then.
        return
    name, times = str(ranges.texts("name")[row]), {"step_ns": end - start, "idle_ns": first - start}
    yield TimeClaim(
        Subject("range", name),
        {"step": name, **times, "idle_pct": 100 * (first - start) / (end - start)},
        None,
        {},
        window=(start, first),
        words={"elsewhere": wording.elsewhere(trace)},
        severity="medium",
    )


def without_work(trace: Trace) -> Iterator[TimeClaim]:
    """Idle time of a GPU while selected ranges were open in which nothing was launched."""
    if not trace.selection.include or gaps.device_work(trace):
        return
    ops, every = operations(trace), gaps.every_gap(trace)
    longest, whole, where = 0, 0, -1
    for process, window in selected_windows(trace).items():
        for device in groups.different(ops.device[ops.process == process]).tolist():
            on_device = every.device == device
            inside = intervals.overlap(window, every.start_ns[on_device], every.end_ns[on_device])
            if inside.sum() > longest:
                longest, whole, where = int(inside.sum()), window.total(), device
    if longest:
        yield TimeClaim(
            gpu_subject(trace, where),
            {"idle_ns": longest, "open_ns": whole},
            None,
            {},
            saved_ns=longest,
            span_ns=whole,
            words={"gpu": gpu_name(trace, where)},
        )


def of_paced(trace: Trace) -> Iterator[TimeClaim]:
    """One claim per GPU whose work a paced loop launches."""
    for device in gaps.steady_spans_ns(trace):
        if loop := paced(trace, device):
            values = {"waited_ns": loop.usual_wait_ns, "period_ns": loop.period_ns}
            yield TimeClaim(
                gpu_subject(trace, device),
                {**values, **({"api": loop.api} if loop.api else {})},
                "causes",
                _row_of(trace, device, causes.LAUNCH_LATE),
                words={
                    "gpu": gpu_name(trace, device),
                    "in": "in {api}" if loop.api else "off the CPU",
                },
                # No remedy of the GPU's work or its launches wins time before this one.
                severity="medium",
            )


_FROM_BEFORE = "the recording begins while the CPU waits for work from before it"


def of_unknown(trace: Trace) -> Iterator[TimeClaim]:
    """One claim per GPU whose gaps may be full of work that the recording lost.

    By the longest of the gaps, or by the GPU if it has no gap.
    """
    every = gaps.gaps(trace)
    why, may = _FROM_BEFORE, "which may"
    if gap_bounds.holds_communication_alone(trace):
        why, may = "the recording holds nothing but collectives", "and other work may"
    for device, unknown in gaps.unknown_idle(trace).items():
        own = (every.device == device) & (every.cause == causes.LOST_WORK)
        table, row = "devices", gpu_cells(trace, device)
        window: tuple[int | None, int | None] = (None, None)
        if own.any():
            longest = int(np.argmax(np.where(own, every.idle_ns, -1)))
            table, row = "causes", _row_of(trace, device, causes.LOST_WORK)
            window = int(every.start_ns[longest]), int(every.end_ns[longest])
        yield TimeClaim(
            gpu_subject(trace, device),
            vars(unknown),
            table,
            row,
            window=window,
            words={
                "gpu": "the GPU" if len(gaps.device_work(trace)) == 1 else gpu_name(trace, device),
                "from_before": "" if unknown.lost else why,
                "may": "and may" if unknown.lost else may,
            },
            remedy=wording.AS_NODES if loses_graphs(trace) else wording.flush(trace),
            severity="info",
        )


RULES = (
    FindingRule(by_cause, idle_claim.MESSAGE),
    FindingRule(one_time, idle_claim.MESSAGE),
    FindingRule(
        before_first_work,
        "The first GPU work of {step} began after {idle_ns} of its {step_ns} ({idle_pct}). The CPU "
        "did other work until then, and no other figure counts that time.",
        "If other steps do this too, prepare the input of a step while the GPU "
        "works on the one before: {elsewhere}.",
    ),
    FindingRule(
        of_paced,
        "The loop that launches the work of {gpu} is paced: of the {period_ns} of a pass it waits "
        "{waited_ns} {in} (medians). A pass takes that long however short its work is.",
        "Give each pass more work, or make what it waits for come sooner: the next input, such as "
        "the next frame of a video, a rate limit, another thread or process.",
    ),
    beside_work.RULE,
    pinning.RULE,
    anomaly.RULE,
    FindingRule(
        without_work,
        "No GPU work was launched in the selected ranges. {gpu} sat idle for {idle_ns} of the "
        "{open_ns} they were open.",
        "Look at the ranges around them as well: an idle gap counts, with its cause, where the "
        "work that ended it was launched.",
    ),
    FindingRule(
        of_unknown,
        "How long {gpu} sat idle is unknown: {from_before}[the work of {lost} of "
        "{launches:launch|launches} was not recorded][, {may} have run in {gaps_ns} that look "
        "idle].",
    ),
)
