"""Sentences of a finding on idle time: the line, the range, the call or the gap that stands out."""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups, intervals, units
from traceview.base.findings import SEVERITIES, Severity, Subject, sentence
from traceview.base.tables import Cell, Mask, Table
from traceview.base.vocabulary import activities, causes
from traceview.traces.analyses import communication_findings, wording
from traceview.traces.analyses.gpu_idle import gap_evidence, late_parts, line_sites, remedies
from traceview.traces.analyses.gpu_idle.idle_claim import IdleClaim
from traceview.traces.facts import launches, operations, python_events
from traceview.traces.facts.collectives import transfers
from traceview.traces.facts.idle import cpu_activity, gaps, lines
from traceview.traces.facts.ranges.origins import calls_of_mpi
from traceview.traces.facts.samples import (
    LEAST_SAMPLES,
    SampledLine,
    frame_through,
    stacks_through,
)
from traceview.traces.facts.steps.steps import pace
from traceview.traces.trace.schema import UNIFIED

_GOOD_PART, _NAMED_PART = 0.25, 0.2
# Idle time that makes up most of a cause in so few gaps may come once.
_FEW = 3
COLLECT_SELDOM = (
    "Call gc.collect() between epochs and not in the loop: each call looks at all objects."
)
_DESTRUCTOR = re.compile(r"::__del__$|/weakref\.py::__call__$")
END_ELSEWHERE = (
    "End what waits there outside of the loop, by its close() or the like, or keep it: else a "
    "collection ends it, at any line. A DataLoader keeps its workers with persistent_workers=True."
)
_TELLING_SAMPLES = 30
"""Of so many samples, all at one line, at most a tenth lies elsewhere (95 %, rule of three)."""


def not_counted(idle: IdleClaim, apart: dict[int, int]) -> None:
    """Name the idle time that other findings, on time off the CPU, count instead of this one."""
    if apart:
        *most, last = [activities.ACTIVITIES[doing].amount for doing in apart]
        idle.values["apart_ns"] = sum(apart.values())
        idle.words["kinds"] = f"{', '.join(most)} and {last}" if most else last


def at_line(idle: IdleClaim, line: line_sites.LineSite, cause: int | None) -> None:
    """Name the line with most of the time, and set the remedy that fits it."""
    place, values = line.place()
    if line.time_ns == idle.idle_ns and 0 < line.samples < _TELLING_SAMPLES:
        its = "Its {samples} samples were all" if line.samples > 1 else "Its one sample was"
        idle.say(f" {its} {place}.", samples=line.samples, **values)
    else:
        idle.say_part("line_ns", line.time_ns, f"was {place}.", **values)
    if through := line.through:
        idle.say(
            " {through_ns} passed in or under {through}[ in {through_function}][ "
            "(`{through_source}`)].",
            through_ns=line.through_ns,
            through=through.place,
            through_function=through.named_function,
            through_source=through.source,
        )
    if cause == causes.LAUNCH_LATE:
        every = line_sites.samples_of(idle.trace, idle.gaps)
        at_it = every.take(lines.lines_of(idle.trace, every) == line.number)
        idle.remedy = (
            remedies.other_work_remedy(idle.trace, line, at_it)
            if line.other_work
            else remedies.action_for(idle.trace, causes.LAUNCH_LATE)
        )


def for_batches_of(idle: IdleClaim, asks: SampledLine) -> None:
    """Name the loop that asks for batches, before the lines that make them: its loader changes."""
    values: dict[str, Cell] = {
        "asks": asks.place,
        "asking": asks.named_function,
        "asking_source": asks.source,
    }
    text = "for the batches of {asks}[ in {asking}][ (`{asking_source}`)]"
    idle.lost = f"{idle.lost} {sentence(text, values)}"
    idle.values.update(values)


def in_broken_graph(idle: IdleClaim, broken: python_events.CompiledCode, late_ns: int) -> None:
    """Name the graph break in whose function most of the time passes, and set its remedy."""
    idle.say_part(
        "broken_ns",
        min(late_ns, idle.idle_ns),
        "was between parts of a graph: torch.compile breaks that of `{broken}` at {broken_at}"
        "[ (`{broken_source}`)][: {broken_reason}].",
        broken=broken.function,
        broken_at=broken.place,
        broken_source=broken.source,
        broken_reason=next(iter(broken.reasons), None),
    )
    idle.remedy = wording.KEEP_GRAPH_WHOLE


def in_function(idle: IdleClaim, line: line_sites.LineSite) -> None:
    """Name the function that all of the time is in, and its line with most of the time."""
    calling, inner = line.inner_clause()
    idle.say(
        f" All of it was in {{function}}, {{line_ns}} {{site:at}}[ (`{{source}}`)]{calling}.",
        function=line.function,
        line_ns=line.time_ns,
        site=line.name,
        source=line.source,
        **inner,
    )


def around_function(idle: IdleClaim, line: line_sites.LineSite) -> None:
    """Say that the time was in or between calls of a function, as far as samples of Python tell."""
    idle.say(
        " It was in or between calls of {function}: what ran in between is not known, since Python "
        "is sampled where it calls a library, near the ends of these gaps.",
        function=line.function,
    )


def at_late_site(idle: IdleClaim, site: cpu_activity.LateSite) -> None:
    """Name what the CPU did during most of the launch-late time, and in which range."""
    trace, pattern = idle.trace, late_parts.range_pattern(idle.trace, site)
    library = late_parts.is_in_library(trace, site)
    own_code = "Python code" if site.python else "CPU code outside CUDA"
    own_code = "torch's CPU code" if remedies.operators_in(pattern) else own_code
    doing = {
        cpu_activity.OUTSIDE_CUDA: "CPU code of a library" if library else own_code,
        cpu_activity.QUEUE_FULL: "spent at a full launch queue",
        cpu_activity.OFF_CPU: "spent off the CPU (waiting or preempted)",
    }.get(site.activity, "spent in {cpu_call}")
    if site.activity >= 0:
        names = trace.recorded("api_calls").texts("name").values
        idle.values["cpu_call"] = str(names[site.activity])
    where = wording.inside(trace, pattern, "range_pattern")
    idle.say_part("cpu_ns", site.steady_ns, f"was {doing}{where}.", range_pattern=pattern)
    if late_parts.is_other_work(trace, None, site):
        _in_pauses(idle)
        idle.remedy = remedies.in_operators(trace, pattern, idle.gaps)


def _in_pauses(idle: IdleClaim) -> None:
    """Say that few long gaps among many make most of the idle time."""
    each_ns = np.sort(gaps.gaps(idle.trace).idle_ns[idle.gaps])
    middle_ns = each_ns[np.searchsorted(np.cumsum(each_ns), each_ns.sum() / 2)]
    long_ns = each_ns[2 * each_ns >= middle_ns]
    few = gap_evidence.MANY <= len(long_ns) < len(each_ns) / 2
    if few and middle_ns > cpu_activity.ELSEWHERE_NS:
        idle.say(
            " {pauses:gap} of {pause_ns} (median) {pauses?is|are} {paused_pct} of the idle time.",
            pauses=len(long_ns),
            pause_ns=round(float(np.median(long_ns))),
            paused_pct=100.0 * int(long_ns.sum()) / int(each_ns.sum()),
        )


def in_messages(idle: IdleClaim) -> bool:
    """Name the call of MPI that most of the time passed in. Return whether there is one."""
    ranges, dry = idle.trace.recorded("ranges"), intervals.covered(gaps.gaps(idle.trace), idle.gaps)
    rows = np.flatnonzero(calls_of_mpi(idle.trace))
    spent_ns = intervals.overlap(dry, ranges["start_ns"][rows], ranges["end_ns"][rows])
    rows, spent_ns = rows[spent_ns > 0], spent_ns[spent_ns > 0]
    by_name = groups.group(ranges.texts("name").codes[rows])
    longest = groups.most_first(groups.sums(by_name, spent_ns))[:1]
    own = by_name.ids == longest
    most = 2 * int(spent_ns[own].sum()) > idle.idle_ns
    if most:
        idle.say(
            " Most of it was in {mpi_call}: {mpi_calls:call} of {mpi_ns}[ each ({median})].",
            mpi_call=str(ranges.texts("name")[int(rows[own][0])]),
            mpi_calls=int(own.sum()),
            mpi_ns=round(float(np.median(ranges.duration_ns[rows[own]]))),
            median="median" if own.sum() > 1 else None,
        )
    return most


def in_range(idle: IdleClaim, *, once: bool = False) -> None:
    """Name the range of the program with most of the time, if that is a good part."""
    late = cpu_activity.late_idle_in(idle.trace, np.flatnonzero(idle.gaps))
    site = late.longest(idle.device, once=once)
    pattern = late_parts.range_pattern(idle.trace, site) if site else None
    if site and pattern and site.steady_ns > _NAMED_PART * idle.idle_ns:
        part_ns = min(site.steady_ns, idle.idle_ns)
        where = wording.inside(idle.trace, pattern, "range_pattern")
        if "{" in where:
            idle.say_part("in_range_ns", part_ns, f"was{where}.", range_pattern=pattern)


def details(idle: IdleClaim, cause: int, severity: Severity, *, by_line: bool) -> Severity:
    """Say what stands out in the gaps of one cause. Return the severity, possibly lowered."""
    may_be_once = causes.CAUSES[cause].once is not None
    lone = gap_evidence.lone_gap(idle.trace, idle.gaps) if may_be_once else None
    in_doubt = False
    if lone:
        in_doubt = _in_lone_gap(idle, cause, lone)
    elif cause == causes.DEPENDENCY:
        unexplained = _queued(idle)
        in_doubt = not _during_host_functions(idle) and unexplained
    elif cause == causes.GARBAGE_COLLECTION:
        in_collections(idle)
    elif cause != causes.LAUNCH_LATE and not by_line:
        _at_call(idle, cause, idle.gaps)
    if lone is None and may_be_once and not pace(idle.trace).timed.any():
        in_doubt = _in_few_gaps(idle, cause)
    if cause == causes.GRAPH_LAUNCH and _by_nodes(idle):
        idle.say(remedies.NODES)
        idle.remedy = wording.AS_WHOLE
        return "info"
    return max(severity, "medium", key=SEVERITIES.index) if in_doubt else severity


def of_accident(idle: IdleClaim, accident: line_sites.Accident, whole_ns: int) -> None:
    """Idle time in few calls that took far longer than usual, or pauses: all that is said of it."""
    trace, cause, every = idle.trace, accident.cause, gaps.gaps(idle.trace)
    longest = int(accident.gaps[np.argmax(every.idle_ns[accident.gaps])])
    took, each_ns, values = "The longest took", int(every.idle_ns[longest]), dict[str, Cell]()
    if cause == causes.GARBAGE_COLLECTION:
        idle.lost, idle.remedy = causes.CAUSES[cause].lost, causes.CAUSES[cause].action
        in_collections(idle)
    elif not len(accident.calls):
        idle.lost = "in long pauses of the CPU outside CUDA (of {whole_ns} waiting for launches)"
        sends = in_messages(idle)
        idle.remedy = (
            activities.ACTIVITIES[activities.MESSAGE].action
            if sends
            else remedies.take_out(trace, idle.gaps)
        )
    else:
        calls, took = operations.api_calls(trace), "It took"
        took_ns = calls.duration_ns[accident.calls]
        call, each_ns = int(accident.calls[np.argmax(took_ns)]), round(float(np.median(took_ns)))
        what = "before CUDA graphs" if cause == causes.GRAPH_LAUNCH else "waiting for launches"
        each = "each " if len(accident.gaps) > 1 else ""
        idle.lost = f"of {{whole_ns}} {what}, {each}in one {{call}}"
        late = cause == causes.LAUNCH_LATE
        idle.remedy = remedies.CALL_BEFORE if late else remedies.action_for(trace, cause)
        values = {"call": trace.api_calls.texts("name")[call]}
        if calls.does[call] == operations.CallKind.LAUNCH:
            values["operation"] = gap_evidence.operation_name(trace, int(every.after[longest]))
    idle.remedy = remedies.if_repeated(trace, idle.remedy, cause)
    if "operation" in values:
        idle.remedy = remedies.BLOCKED
    if cause != causes.GARBAGE_COLLECTION:
        values |= {"each_ns": each_ns, "whole_ns": whole_ns, "usual_ns": accident.usual_ns}
        idle.say(f" {took} {{each_ns}}[ for {{operation}}][; {{usual_ns}} is usual].", **values)


def _during_host_functions(idle: IdleClaim) -> bool:
    """Say that streams waited for host functions, if these took a good part of the idle time.

    A host function may hold another stream than its own by an event, so streams are not compared.
    """
    host_ns, calls = _during(idle.trace.recorded("host_functions"), idle)
    if not calls or host_ns < _GOOD_PART * idle.idle_ns:
        return False
    idle.say(
        " For {host_ns} of it streams waited for {host_functions:host function}.",
        host_ns=host_ns,
        host_functions=calls,
    )
    idle.remedy = remedies.KEEP_STREAM_FREE
    return True


def during_jit(idle: IdleClaim) -> None:
    """Say that the driver compiled PTX, if that took a good part of the idle time."""
    jit = idle.trace.recorded("jit_compilations")
    jit_ns, number = _during(jit.take(jit.texts("operation").isin(["compile"])), idle)
    if number and jit_ns >= _GOOD_PART * idle.idle_ns:
        idle.say(
            " For {jit_ns} of it the driver compiled PTX ({jit_compilations:JIT compilation}).",
            jit_ns=jit_ns,
            jit_compilations=number,
        )
        idle.remedy = causes.CAUSES[causes.JIT_COMPILE].action


def _during(work: Table, idle: IdleClaim) -> tuple[int, int]:
    """Idle time (ns) in work of the process that ends it, and how much of the work lies in it."""
    every, total_ns, number = gaps.gaps(idle.trace), 0, 0
    process = operations.operations(idle.trace).process[every.after]
    for each in groups.different(work["process"]).tolist():
        rows, of_process = np.flatnonzero(idle.gaps & (process == each)), work["process"] == each
        start, end = work["start_ns"][of_process], work["end_ns"][of_process]
        covered = intervals.union(start, end)
        total_ns += int(intervals.overlap(covered, every.start_ns[rows], every.end_ns[rows]).sum())
        dry = intervals.covered(every, rows)
        number += int((intervals.overlap(dry, start, end) > 0).sum())
    return total_ns, number


def in_collections(idle: IdleClaim) -> None:
    """Say how often Python collected garbage in the gaps, how long, and the line that asked."""
    every, events = gaps.gaps(idle.trace), python_events.collections(idle.trace)
    dry = intervals.covered(every, idle.gaps)
    took_ns = intervals.overlap(dry, events["start_ns"], events["end_ns"])
    events = events.take(2 * took_ns > events.duration_ns)
    if not len(events):
        return
    asked, values = python_events.asked_for(events), dict[str, Cell]()
    row = python_events.begun_at(events) if asked is None else asked
    if row is not None:
        file, line = str(events.texts("file")[row]), int(events["line"][row])
        idle.subject = Subject.of_line(file, line)
        values["site" if asked is not None else "begun_at"] = idle.subject.name
        values["source"] = events.texts("source")[row]
        values["begun_in"] = events.texts("function")[row] if asked is None else None
    if asked is not None:
        idle.remedy = COLLECT_SELDOM
    each = "" if len(events) == 1 else " each (median)"
    idle.say(
        f" It took {{collections:collection}} of {{collection_ns}}{each}"
        "[, called at {site} (`{source}`)][, mostly begun by the objects made at {begun_at} in "
        "{begun_in}].",
        collections=len(events),
        collection_ns=round(float(np.median(events.duration_ns))),
        **values,
    )
    _in_destructor(idle)


def _in_destructor(idle: IdleClaim) -> None:
    """Name the destructor that the collections ran for most of the time, and what it waited for."""
    through = stacks_through(idle.trace, _DESTRUCTOR)
    every = line_sites.samples_of(idle.trace, idle.gaps)
    own = every.take(np.append(through, False)[np.minimum(every.site, len(through))])
    total_ns = int(own.time_ns.sum())
    if len(own) < LEAST_SAMPLES or 2 * total_ns <= int(every.time_ns.sum()):
        return
    site = int(own.site[np.argmax(np.bincount(own.site, own.time_ns)[own.site])])
    doing = int(np.argmax(np.bincount(own.doing, own.time_ns)))
    place, function = frame_through(idle.trace, site, _DESTRUCTOR)
    idle.say(
        " {destructor_ns} of it passed in the destructor at {destructor} in {destructor_name}"
        "[, {destructor_doing}].",
        destructor_ns=total_ns,
        destructor=place,
        destructor_name=function,
        destructor_doing=activities.ACTIVITIES[doing].amount if doing != activities.CPU else None,
    )
    idle.remedy = END_ELSEWHERE


def _queued(idle: IdleClaim) -> bool:
    """Say that queued work waited long without a recorded reason, or a little each time.

    Return whether most of the time has no recorded reason.
    """
    trace, every = idle.trace, gaps.gaps(idle.trace)
    held = gap_evidence.held_back(every, idle.gaps)
    held_ns = int(every.idle_ns[held].sum())
    if 2 * held_ns >= idle.idle_ns:
        idle.outside = True
        if not _started_late(idle, held, held_ns):
            _held_back(idle, held, held_ns)
        return True
    in_graphs = gap_evidence.in_graphs(trace, idle.gaps)
    nodes = 2 * int(every.idle_ns[in_graphs].sum()) >= idle.idle_ns
    # Gaps between an operation and the next one of its stream.
    inside = every.idle_ns[
        (in_graphs if nodes else idle.gaps)
        & (every.behind >= 0)
        & ~every.by_event
        & (every.queued_ns <= every.start_ns)
    ]
    what = "nodes of one CUDA graph" if nodes else "operations of one stream"
    if every.count(idle.gaps) == len(inside):
        text = f" All of it was between consecutive {what}, {{same_stream_median_ns}} per gap "
        text += "(median)."
    else:
        text = f" {{same_stream_idle_ns}} of that was between consecutive {what} "
        text += "({same_stream_gaps:gap}, median {same_stream_median_ns})."
    if nodes or len(inside):
        idle.say(
            text,
            same_stream_idle_ns=int(inside.sum()),
            same_stream_gaps=len(inside),
            same_stream_median_ns=round(float(np.median(inside))) if len(inside) else None,
        )
    if nodes:
        idle.remedy = remedies.IN_GRAPH
    elif 2 * int(inside.sum()) >= idle.idle_ns:
        idle.remedy = remedies.short_gaps_remedy(trace, every.after[idle.gaps])
    return nodes


def _held_back(idle: IdleClaim, held: Mask, held_ns: int) -> None:
    """Say that nothing recorded held the work back, and where it was launched."""
    all_of_it = held_ns == idle.idle_ns
    what = "All of it was in gaps" if all_of_it else "{held_ns} of that was in {held_gaps:gap}"
    idle.say(
        f" {what} of {{held_least_ns}} and more, in which nothing recorded held the work back.",
        held_ns=held_ns,
        held_gaps=int(held.sum()),
        held_least_ns=gap_evidence.LONG_NS,
    )
    site = gap_evidence.longest_launch_site(idle.trace, held)
    if site and site.range_path is not None:
        _at_call(idle, causes.DEPENDENCY, held)
    idle.remedy = remedies.held_back_remedy(idle.trace)


def _started_late(idle: IdleClaim, held: Mask, held_ns: int) -> bool:
    """Say that the GPU was free and yet started launched work late, if that happened each time."""
    late_ns = gap_evidence.started_late(idle.trace, held)
    directions = idle.trace.recorded("copies").texts("direction").values
    migrates = any(str(each).startswith(UNIFIED) for each in directions)
    if len(late_ns) < gap_evidence.MANY or 2 * len(late_ns) <= int(held.sum()) or migrates:
        return False
    all_of_it = held_ns == idle.idle_ns
    what = "In all of them" if all_of_it else "In {held_gaps} of them, {held_ns} in all,"
    idle.say(
        f" {what} the stream was free, and the GPU began the work only {{started_ns}} after its "
        "launch (median).",
        held_ns=held_ns,
        held_gaps=gaps.gaps(idle.trace).count(held),
        started_ns=round(float(np.median(late_ns))),
    )
    idle.remedy = remedies.shared_gpu(idle.trace)
    _after_waits(idle, held, held_ns)
    return True


def _after_waits(idle: IdleClaim, held: Mask, held_ns: int) -> None:
    """Say that most of this time follows waits of the CPU: fewer of them leave less of it."""
    count, after_ns, site = gap_evidence.waits_before(idle.trace, held)
    if site is None or 2 * after_ns <= held_ns:
        return
    path = site.range_path
    where = wording.inside(idle.trace, path, "waits_in") if path else ""
    text = f" Before {{waits}} of them the CPU waited, most of all in {{waits_call}}{where}."
    idle.say(text, waits=count, waits_call=site.api, waits_in=path)
    idle.remedy = f"{remedies.fewer_waits(path)} {idle.remedy}"


def _in_lone_gap(idle: IdleClaim, cause: int, lone: gap_evidence.LoneGap) -> bool:
    """Name the gap with most of the time. Return whether it may occur only once."""
    where = wording.inside(idle.trace, lone.range_path, "longest_gap_range")
    before = f" before work launched{where}" if where else ""
    values = {"longest_gap_ns": lone.idle_ns, "longest_gap_range": lone.range_path}
    is_part = units.duration(lone.whole_ns) != units.duration(lone.idle_ns)
    of_gap = " in a single gap of {whole_gap_ns}" if is_part else " a single gap"
    values |= {"whole_gap_ns": lone.whole_ns} if is_part else {}
    if gaps.gaps(idle.trace).count(idle.gaps) == 1:
        if before:
            idle.say(f" The gap came{before}.", **values)
    elif _is_divided(idle):
        pass
    elif idle.names_part and not is_part:
        idle.say(f" A single gap{before} took {{longest_gap_ns}}.", **values)
    else:
        that = "the idle time" if idle.names_part else "that"
        idle.say(f" {{longest_gap_ns}} of {that} was{of_gap}{before}.", **values)
    once = lone.fraction >= gap_evidence.STANDS_OUT
    if once:
        idle.remedy = remedies.if_repeated(idle.trace, idle.remedy, cause)
    return once


def _in_few_gaps(idle: IdleClaim, cause: int) -> bool:
    """Say that few gaps make up the time, if so. Return that; without steps they may come once."""
    idle_ns = gaps.gaps(idle.trace).idle_ns[idle.gaps]
    few_ns = np.cumsum(np.sort(idle_ns)[::-1][:_FEW])
    enough = np.flatnonzero(few_ns >= gap_evidence.STANDS_OUT * int(idle_ns.sum()))
    if not len(enough) or len(idle_ns) <= _FEW:
        return False
    if not _is_divided(idle):
        text = " {few_idle_ns} of that was in {few_gaps:gap}."
        text = " {few_gaps:gap} took {few_idle_ns}." if idle.names_part else text
        idle.say(text, few_idle_ns=int(few_ns[enough[0]]), few_gaps=int(enough[0]) + 1)
    idle.remedy = remedies.if_repeated(idle.trace, idle.remedy, cause)
    return True


def _is_divided(idle: IdleClaim) -> bool:
    """Whether other findings count a part of these gaps, so that one gap may exceed the rest."""
    return "apart_ns" in idle.values


def _at_call(idle: IdleClaim, cause: int, own: Mask) -> None:
    """Name the call and range with most idle time: of the wait before it, or of the launch."""
    trace = idle.trace
    site, what = gap_evidence.longest_launch_site(trace, own), "came before work launched by {call}"
    if cause == causes.SYNC_DRAIN:
        site, what = gap_evidence.longest_wait_site(trace, own), "followed {call}"
    elif causes.CAUSES[cause].on_cpu and (called := gap_evidence.longest_call_site(trace, own)):
        site, what = called, "was in {call}"
    if site:
        path = site.range_path
        where = "" if path is None else wording.inside(trace, path, "range_path")
        values = {"call": site.api, "range_path": path}
        idle.say_part("call_idle_ns", site.idle_ns, f"{what}{where}.", **values)


def _by_nodes(idle: IdleClaim) -> bool:
    """Whether most of this idle time came before graphs that were recorded node by node."""
    every = gaps.gaps(idle.trace)
    nodes = idle.gaps & launches.cuda_graphs(idle.trace).node[every.after]
    return 2 * int(every.idle_ns[nodes].sum()) >= int(every.idle_ns[idle.gaps].sum())


def on_other_gpus(idle: IdleClaim, others: Mask, *, late: bool = False) -> None:
    """Say how long other GPUs sat idle for the same reason; of `late` launches, waited for them."""
    every = gaps.gaps(idle.trace)
    gpus = len(groups.different(every.device[others]))
    if gpus:
        total = "a total of " if gpus > 1 else ""
        idle.say(
            f" {{other_gpus:other GPU}} sat idle for {total}{{other_idle_ns}} for the same reason.",
            other_gpus=gpus,
            other_idle_ns=int(every.idle_ns[others].sum()),
        )
    moved, waits = transfers(idle.trace), communication_findings.waiting(idle.trace)
    own = moved.steady & (moved.device == idle.device) & (waits.late_ns > 0)
    waited_ns = int(waits.late_ns[own].sum())
    if late and waited_ns and communication_findings.cause_of(waits, own) == "gpu-idle":
        idle.say(" Other GPUs wait up to {waited_ns} for it in collectives.", waited_ns=waited_ns)
