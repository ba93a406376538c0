"""Sentences of a finding on idle time: the line, the range, the call or the gap that stands out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_idle import gap_evidence, gap_finding, remedies
from traceview.analyses.gpu_idle.gap_evidence import operation_name
from traceview.analyses.gpu_idle.gap_finding import LostIdle, Wording, opening_sentence
from traceview.analyses.gpu_idle.line_sites import Accident, LineSite
from traceview.analyses.wording import AS_WHOLE, inside
from traceview.facts.idle.cpu_activity import OFF_CPU, OUTSIDE_CUDA, QUEUE_FULL, LateSite
from traceview.facts.idle.gaps import gaps
from traceview.facts.launches import cuda_graphs
from traceview.facts.operations import CallKind, api_calls, operations
from traceview.facts.python_events import collections
from traceview.facts.steps.steps import pace
from traceview.findings import SEVERITIES, Severity
from traceview.tables import Array, Cell, Mask, Table
from traceview.trace import Trace
from traceview.trace.schema import UNIFIED
from traceview.vocabulary.activities import ACTIVITIES
from traceview.vocabulary.causes import (
    CAUSES,
    DEPENDENCY,
    GARBAGE_COLLECTION,
    GRAPH_LAUNCH,
    JIT_COMPILE,
    LAUNCH_LATE,
    SYNC_DRAIN,
)

# Idle time in which streams waited for host functions, or the driver compiled code.


def in_host_functions(trace: Trace, own: Mask) -> tuple[int, int]:
    """Idle time (ns) of some gaps in host functions of their process, and how many those are.

    A host function may hold another stream than its own by an event, so streams are not compared.
    """
    return _during(trace.recorded("host_functions"), trace, own)


def in_jit(trace: Trace, own: Mask) -> tuple[int, int]:
    """Idle time (ns) of some gaps in which their process compiled PTX, and the compilations."""
    jit = trace.recorded("jit_compilations")
    return _during(jit.take(jit.texts("operation").isin(["compile"])), trace, own)


def _during(work: Table, trace: Trace, own: Mask) -> tuple[int, int]:
    every, total_ns, number = gaps(trace), 0, 0
    process = operations(trace).process[every.after]
    for each in groups.different(work["process"]).tolist():
        rows, of_process = np.flatnonzero(own & (process == each)), work["process"] == each
        start, end = work["start_ns"][of_process], work["end_ns"][of_process]
        covered = intervals.union(start, end)
        total_ns += int(intervals.overlap(covered, every.start_ns[rows], every.end_ns[rows]).sum())
        idle = intervals.union(every.start_ns[rows], every.end_ns[rows])
        number += int((intervals.overlap(idle, start, end) > 0).sum())
    return total_ns, number


_GOOD_PART = 0.25


def add_not_counted(wording: Wording, apart: Mapping[int, int]) -> None:
    """Name the idle time that other findings, on time off the CPU, count instead of this one."""
    if apart:
        *most, last = [ACTIVITIES[doing].amount for doing in apart]
        kinds = f"{', '.join(most)} and {last}" if most else last
        wording.template = wording.template.removesuffix(".")
        wording.add(f", not counting {{apart_ns}} of {kinds}.", apart_ns=sum(apart.values()))


def add_line(wording: Wording, trace: Trace, line: LineSite, cause: int | None) -> None:
    """Add the line with most of the time, and set the remedy that fits it."""
    place, values = line.place()
    wording.add_part("line_ns", line.time_ns, f"was {place}.", **values)
    if cause == LAUNCH_LATE:
        wording.remedy = (
            remedies.other_work_remedy(trace, line)
            if line.other_work
            else remedies.action_for(trace, LAUNCH_LATE)
        )


def add_function(wording: Wording, line: LineSite) -> None:
    """Add the function that all of the time is in, and its line with most of the time."""
    source = " (`{source}`)" if line.source else ""
    calling, inner = line.inner_clause()
    wording.add(
        f" All of it was in {{function}}, {{line_ns}} at {{site}}{source}{calling}.",
        function=line.function,
        line_ns=line.time_ns,
        site=line.name,
        source=line.source,
        **inner,
    )


def add_late_site(wording: Wording, trace: Trace, site: LateSite) -> None:
    """Add what the CPU did during most of the launch-late time, and in which range."""
    pattern = gap_finding.range_pattern(trace, site)
    own_code = "Python code" if site.python else "CPU code outside CUDA"
    doing = {
        OUTSIDE_CUDA: "CPU code of a library"
        if gap_finding.is_in_library(trace, site)
        else own_code,
        QUEUE_FULL: "spent at a full launch queue",
        OFF_CPU: "spent off the CPU (waiting or preempted)",
    }.get(site.activity, "spent in {cpu_call}")
    if site.activity >= 0:
        names = trace.recorded("api_calls").texts("name").values
        wording.values["cpu_call"] = str(names[site.activity])
    where = inside(trace, pattern, "range_pattern")
    wording.add_part("cpu_ns", site.steady_ns, f"was {doing}{where}.", range_pattern=pattern)
    if gap_finding.is_other_work(trace, None, site):
        wording.remedy = remedies.take_out(trace)


def add_details(
    wording: Wording, trace: Trace, cause: int, own: Mask, severity: Severity, *, by_line: bool
) -> Severity:
    """Add what stands out in the gaps of one cause. Return the severity, possibly lowered."""
    may_be_once = CAUSES[cause].once is not None
    lone = gap_evidence.lone_gap(trace, own) if may_be_once else None
    in_doubt = False
    if lone:
        in_doubt = _add_lone_gap(wording, trace, cause, lone)
    elif cause == DEPENDENCY:
        unexplained = _add_queued(wording, trace, own)
        explained = _add_host_functions(wording, trace, own)
        in_doubt = unexplained and not explained
    elif cause == GARBAGE_COLLECTION:
        add_collections(wording, trace, own)
    elif cause != LAUNCH_LATE and not by_line:
        _add_call_site(wording, trace, cause, own)
    if lone is None and may_be_once and not pace(trace).timed.any():
        in_doubt = _add_few_gaps(wording, trace, cause, own)
    if cause == GRAPH_LAUNCH and _by_nodes(trace, own):
        wording.add(remedies.NODES)
        wording.remedy = AS_WHOLE
        return "info"
    return max(severity, "medium", key=SEVERITIES.index) if in_doubt else severity


def of_accident(trace: Trace, accident: Accident, idle: LostIdle, whole_ns: int) -> Wording:
    """Message and remedy for idle time in few calls that took far longer than usual, or pauses."""
    every, calls = gaps(trace), api_calls(trace)
    longest = int(accident.gaps[np.argmax(every.idle_ns[accident.gaps])])
    if accident.cause == GARBAGE_COLLECTION:
        wording = opening_sentence(
            trace, idle, CAUSES[GARBAGE_COLLECTION].lost, CAUSES[GARBAGE_COLLECTION].action
        )
        add_collections(wording, trace, idle.gaps)
        wording.remedy = remedies.if_repeated(trace, wording.remedy, GARBAGE_COLLECTION)
        return wording
    if not len(accident.calls):
        action = remedies.if_repeated(trace, remedies.take_out(trace), accident.cause)
        lost = "of {whole_ns} waiting for launches, in long pauses of the CPU outside CUDA"
        wording = opening_sentence(trace, idle, lost, action)
        wording.add(" The longest took {each_ns}", each_ns=int(every.idle_ns[longest]))
    else:
        call = int(accident.calls[np.argmax(calls.duration_ns[accident.calls])])
        launches = calls.does[call] == CallKind.LAUNCH
        action = remedies.action_for(trace, accident.cause)
        if accident.cause == LAUNCH_LATE:
            action = remedies.CALL_BEFORE
        action = remedies.if_repeated(trace, action, accident.cause)
        what = "before CUDA graphs" if accident.cause == GRAPH_LAUNCH else "waiting for launches"
        lost = f"of {{whole_ns}} {what}, each in one {{call}}"
        action = remedies.BLOCKED if launches else action
        wording = opening_sentence(trace, idle, lost, action)
        wording.add(
            " It took {each_ns}",
            call=str(trace.api_calls.texts("name")[call]),
            each_ns=round(float(np.median(calls.duration_ns[accident.calls]))),
        )
        if launches:
            wording.add(" for {operation}", operation=operation_name(trace, every.after[longest]))
    usual = "; {usual_ns} is usual." if accident.usual_ns else "."
    wording.add(usual, whole_ns=whole_ns, usual_ns=accident.usual_ns)
    return wording


def _add_host_functions(wording: Wording, trace: Trace, own: Mask) -> bool:
    """Add the host functions that streams waited for, if they took a good part of the idle time."""
    host_ns, calls = in_host_functions(trace, own)
    if not calls or host_ns < _GOOD_PART * int(wording.values["idle_ns"] or 0):
        return False
    wording.add(
        " For {host_ns} of it streams waited for {host_functions:host function}.",
        host_ns=host_ns,
        host_functions=calls,
    )
    wording.remedy = remedies.KEEP_STREAM_FREE
    return True


COLLECT_SELDOM = (
    "Call gc.collect() between epochs and not in the loop: each call looks at all objects."
)


def add_collections(wording: Wording, trace: Trace, own: Mask) -> None:
    """Add how often Python collected garbage in some gaps, how long, and the line that asked."""
    every, events = gaps(trace), collections(trace)
    idle = intervals.union(every.start_ns[own], every.end_ns[own])
    took_ns = intervals.overlap(idle, events["start_ns"], events["end_ns"])
    events = events.take(2 * took_ns > events.duration_ns)
    if not len(events):
        return
    called = np.flatnonzero(events.texts("source").codes >= 0)
    values: dict[str, Cell] = {}
    where = ""
    if 2 * len(called) > len(events):
        row = int(called[0])
        file, line = events.texts("file")[row], events["line"][row]
        values = {"site": f"{str(file).rpartition('/')[2]}:{line}"}
        values |= {"source": events.texts("source")[row]}
        where = ", called at {site} (`{source}`)"
        wording.remedy = COLLECT_SELDOM
    took = "{collection_ns}" if len(events) == 1 else "{collection_ns} each (median)"
    wording.add(
        f" It took {{collections:collection}} of {took}{where}.",
        collections=len(events),
        collection_ns=round(float(np.median(events.duration_ns))),
        **values,
    )


def add_jit(wording: Wording, trace: Trace, own: Mask) -> None:
    """Add the driver's compilation of PTX, if it took a good part of the idle time."""
    jit_ns, number = in_jit(trace, own)
    if not number or jit_ns < _GOOD_PART * int(wording.values["idle_ns"] or 0):
        return
    wording.add(
        " For {jit_ns} of it the driver compiled PTX ({jit_compilations:JIT compilation}).",
        jit_ns=jit_ns,
        jit_compilations=number,
    )
    wording.remedy = CAUSES[JIT_COMPILE].action


def _add_queued(wording: Wording, trace: Trace, own: Mask) -> bool:
    """Add that queued work waited long without a recorded reason, or a little each time.

    Return whether most of the time has no recorded reason.
    """
    every, idle_ns = gaps(trace), int(wording.values["idle_ns"] or 0)
    held = gap_evidence.held_back(every, own)
    held_ns = int(every.idle_ns[held].sum())
    if 2 * held_ns >= idle_ns and _add_started_late(wording, trace, held, held_ns):
        return True
    if 2 * held_ns >= idle_ns:
        all_of_it = held_ns == idle_ns
        what = "All of it was in gaps" if all_of_it else "{held_ns} of that was in {held_gaps:gap}"
        wording.add(
            f" {what} of {{held_least_ns}} and more, in which nothing recorded held the work back.",
            held_ns=held_ns,
            held_gaps=int(held.sum()),
            held_least_ns=gap_evidence.LONG_NS,
        )
        site = gap_evidence.longest_launch_site(trace, held)
        if site and site.range_path is not None:
            _add_call_site(wording, trace, DEPENDENCY, held)
        wording.remedy = remedies.HELD_BACK
        return True
    in_graphs = gap_evidence.in_graphs(trace, own)
    if 2 * int(every.idle_ns[in_graphs].sum()) >= idle_ns:
        inside = gap_evidence.back_to_back(every, in_graphs)
        whole = wording.values["gaps"] == inside.gaps
        wording.add(
            _back_to_back(whole, "nodes of one CUDA graph"),
            same_stream_idle_ns=inside.idle_ns,
            same_stream_gaps=inside.gaps,
            same_stream_median_ns=inside.median_ns,
        )
        wording.remedy = remedies.IN_GRAPH
        return True
    steps = gap_evidence.back_to_back(every, own)
    if steps.gaps:
        wording.add(
            _back_to_back(wording.values["gaps"] == steps.gaps),
            same_stream_idle_ns=steps.idle_ns,
            same_stream_gaps=steps.gaps,
            same_stream_median_ns=steps.median_ns,
        )
    if 2 * steps.idle_ns >= idle_ns:
        wording.remedy = remedies.short_gaps_remedy(trace, every.after[own])
    return False


def _add_started_late(wording: Wording, trace: Trace, held: Mask, held_ns: int) -> bool:
    """Add that the GPU was free and yet started launched work late, if that happened each time."""
    late_ns = gap_evidence.started_late(trace, held)
    migrates = any(str(each).startswith(UNIFIED) for each in _directions(trace))
    if len(late_ns) < gap_evidence.MANY or 2 * len(late_ns) <= int(held.sum()) or migrates:
        return False
    all_of_it = held_ns == wording.values["idle_ns"]
    what = "In all of them" if all_of_it else "In {held_gaps} of them, {held_ns} in all,"
    wording.add(
        f" {what} the stream was free, and the GPU began the work only {{started_ns}} after its "
        "launch (median).",
        held_ns=held_ns,
        held_gaps=gaps(trace).count(held),
        started_ns=round(float(np.median(late_ns))),
    )
    wording.remedy = remedies.SHARED_GPU
    return True


def _directions(trace: Trace) -> Array:
    return trace.recorded("copies").texts("direction").values


def _back_to_back(all_of_it: bool, of: str = "operations of one stream") -> str:
    between = f"between consecutive {of}"
    if all_of_it:
        return f" All of it was {between}, {{same_stream_median_ns}} per gap (median)."
    counted = "({same_stream_gaps:gap}, median {same_stream_median_ns})"
    return f" {{same_stream_idle_ns}} of that was {between} {counted}."


def _add_lone_gap(wording: Wording, trace: Trace, cause: int, lone: gap_evidence.LoneGap) -> bool:
    """Add the gap with most of the time. Return whether it may occur only once."""
    where = inside(trace, lone.range_path, "longest_gap_range")
    before = f" before work launched{where}" if where else ""
    values: dict[str, Cell] = {
        "longest_gap_ns": lone.idle_ns,
        "longest_gap_range": lone.range_path,
    }
    several = wording.values["gaps"] != 1
    if several and not _is_divided(wording):
        wording.add(_most_in(wording, "{longest_gap_ns}", "a single gap", before), **values)
    elif before and not several:
        wording.add(f" It came{before}.", **values)
    once = lone.fraction >= gap_evidence.STANDS_OUT
    if once:
        wording.remedy = remedies.if_repeated(trace, wording.remedy, cause)
    return once


def _most_in(wording: Wording, time: str, which: str, before: str = "") -> str:
    """The sentence on the gaps with most of the time; another part may have been named before."""
    if wording.names_part:
        return f" {which[0].upper()}{which[1:]}{before} took {time}."
    was = "was" if which.startswith("a ") else "was in"
    return f" {time} of that {was} {which}{before}."


def _add_few_gaps(wording: Wording, trace: Trace, cause: int, own: Mask) -> bool:
    """Add that few gaps make up the time, if so. Return that; without steps they may come once."""
    few = gap_evidence.few_gaps(gaps(trace).idle_ns[own])
    if few is None:
        return False
    if not _is_divided(wording):
        most = _most_in(wording, "{few_idle_ns}", "{few_gaps:gap}")
        wording.add(most, few_idle_ns=few.idle_ns, few_gaps=few.gaps)
    wording.remedy = remedies.if_repeated(trace, wording.remedy, cause)
    return True


def _is_divided(wording: Wording) -> bool:
    """Whether other findings count a part of these gaps, so that one gap may exceed the rest."""
    return "apart_ns" in wording.values


def _add_call_site(wording: Wording, trace: Trace, cause: int, own: Mask) -> None:
    """Add the call and range with most idle time: those of the wait before it, or of the launch."""
    site, what = gap_evidence.longest_launch_site(trace, own), "came before work launched by {call}"
    if cause == SYNC_DRAIN:
        site, what = gap_evidence.longest_wait_site(trace, own), "followed {call}"
    elif CAUSES[cause].on_cpu and (called := gap_evidence.longest_call_site(trace, own)):
        site, what = called, "was in {call}"
    if site is None:
        return
    where = "" if site.range_path is None else inside(trace, site.range_path, "range_path")
    wording.add_part(
        "call_idle_ns",
        site.idle_ns,
        f"{what}{where}.",
        call=site.api,
        range_path=site.range_path,
    )


def _by_nodes(trace: Trace, own: Mask) -> bool:
    """Whether most of this idle time came before graphs that were recorded node by node."""
    every = gaps(trace)
    nodes = own & cuda_graphs(trace).node[every.after]
    return 2 * int(every.idle_ns[nodes].sum()) >= int(every.idle_ns[own].sum())


def add_other_gpus(wording: Wording, trace: Trace, others: Mask) -> None:
    every = gaps(trace)
    gpus = len(groups.different(every.device[others]))
    if gpus:
        total = "a total of " if gpus > 1 else ""
        wording.add(
            f" {{other_gpus:other GPU}} sat idle for {total}{{other_idle_ns}} for the same reason.",
            other_gpus=gpus,
            other_idle_ns=int(every.idle_ns[others].sum()),
        )
