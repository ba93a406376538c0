"""Waits of the CPU for the GPU, and which of them let the GPU run dry.

A wait while the GPU works costs nothing by itself. What follows it does: the CPU gave up its lead,
and the GPU sits idle until the next launch reaches it. `benign_ns` is the overlap of the wait with
GPU work, `idle_after_ns` the length of the idle gaps that it caused (cause sync-drain).
"""

from __future__ import annotations

import numpy as np

from traceview.base import groups, intervals
from traceview.base.tables import Mask, Table, TableSpec, Texts, column_list
from traceview.traces.analyses import base, sync_stalls_findings, wording
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.launches import Waits, waits
from traceview.traces.facts.operations import CallKind
from traceview.traces.facts.ranges.selection import selected_calls
from traceview.traces.facts.waits import BLOCKING, after_uploads, stalls
from traceview.traces.trace import Trace

CALLS = TableSpec(
    "calls",
    "one row per blocking call, synchronizations first",
    column_list("""
        api text: runtime or driver call
        calls int64: number of calls
        wait_ns int64: time the CPU spent in it
        max_wait_ns int64: duration of the longest call
        nested_ns int64: part of wait_ns inside another blocking call
    """),
    brief="api calls wait_ns max_wait_ns",
)
SITES = TableSpec(
    "sites",
    "one row per blocking call and call site, most idle time caused first",
    column_list("""
        api text: runtime or driver call, the outermost of nested ones
        range_path text: innermost range open on the calling thread, differing numbers as #
        call_site text?: file:line and function of the program
        calls int64: number of calls
        wait_ns int64: time the CPU spent in it: benign plus idle_within
        benign_ns int64: part of the wait during which the GPU worked
        idle_within_ns int64: part of the wait during which the GPU sat idle
        idle_after_ns int64: GPU idle time it caused, until the next work started
        steady_idle_after_ns int64: part of idle_after after warm-up
        upload_idle_after_ns int64: part of steady_idle_after behind a copy to the GPU
        hint text?: call of the program, such as Tensor.item
        source text?: source line of the program
        place text: call_site if known, else range_path
    """),
    brief="place api calls wait_ns idle_after_ns hint benign_ns source",
    adds="calls wait_ns benign_ns idle_within_ns idle_after_ns",
)


def compute(trace: Trace) -> base.Result:
    every = waits(trace)
    chosen = selected_calls(trace)[every.call]
    listed = sync_stalls_findings.listed_waits(trace)
    rows, each, site = listed.row, listed.groups, listed.site
    cost, steady = stalls(trace), ~every_gap(trace).one_time
    took, benign = waits(trace).duration_ns[rows], cost.benign_ns[rows]
    idle = groups.sums(each, cost.idle_ns(np.ones(len(steady), bool))[rows])
    after_upload = cost.idle_ns(steady & after_uploads(trace))[rows]
    lines = site.site.take(each.first)
    places = zip(lines.decode(), listed.range_path.decode(), strict=True)
    table = Table(
        SITES.columns,
        {
            "api": listed.api.take(each.first),
            "range_path": listed.range_path,
            "call_site": lines,
            "place": Texts.of(line or path for line, path in places),
            "calls": groups.count(each),
            "wait_ns": groups.sums(each, took),
            "benign_ns": groups.sums(each, benign),
            "idle_within_ns": groups.sums(each, took - benign),
            "idle_after_ns": idle,
            "steady_idle_after_ns": groups.sums(each, cost.idle_ns(steady)[rows]),
            "upload_idle_after_ns": groups.sums(each, after_upload),
            "hint": site.hint.take(each.first),
            "source": site.source.take(each.first),
        },
    )
    sites = table.take(np.lexsort((-table["wait_ns"], -idle)))
    synchronizations = chosen & (every.does == CallKind.SYNCHRONIZE)
    copies = chosen & np.isin(every.does, [CallKind.COPY, CallKind.COPY_ASYNC])
    return base.Result(
        {"calls": _calls(trace, every, chosen), "sites": sites},
        tuple(sync_stalls_findings.stall_findings(trace, listed)),
        {
            "synchronizations": int(synchronizations.sum()),
            "synchronization_wait_ns": _waited_ns(every, synchronizations),
            "blocking_copy_wait_ns": _waited_ns(every, copies),
            "idle_caused_ns": int(sites["idle_after_ns"].sum()),
            "steady_idle_caused_ns": int(sites["steady_idle_after_ns"].sum()),
        },
        _notes(trace, listed),
    )


def _waited_ns(waits: Waits, chosen: Mask) -> int:
    """Time of waits, as a union per thread: a driver call inside a runtime call counts once."""
    threads = groups.different(waits.thread[chosen])
    own = (chosen & (waits.thread == thread) for thread in threads)
    return sum(intervals.covered(waits, on).total() for on in own)


def _notes(trace: Trace, listed: sync_stalls_findings.ListedWaits) -> tuple[str, ...]:
    if not len(listed.row) or "call_sites" in trace.tables:
        return ()
    chains = "callchains" in trace.tables
    adds = wording.by_recorder(
        trace,
        "traceview record adds them.",
        "torch.profiler.profile(with_stack=True) adds the function of each.",
        "traceview record adds them.",
    )
    if not chains and len(trace.recorded("python_samples")):
        return (
            "Lines come from samples of Python stacks, where these hit the waits often enough: the "
            f"recording has no source lines of waits. {adds}",
        )
    how = "Hints come from C++ call chains" if chains else "No line is known"
    return (f"{how}: the recording has no source lines of waits. {adds}",)


def _calls(trace: Trace, waits: Waits, chosen: Mask) -> Table:
    rows = np.flatnonzero(chosen & np.isin(waits.does, BLOCKING))
    names = trace.api_calls.texts("name").take(waits.call[rows])
    each = groups.group(names.codes)
    took = waits.duration_ns[rows]
    figures = groups.stats(each, took)
    rank = np.array([BLOCKING.index(CallKind(d)) for d in waits.does[rows[each.first]]], np.int64)
    nested = stalls(trace).outer[rows] != rows
    table = Table(
        CALLS.columns,
        {
            "api": names.take(each.first),
            "calls": figures.calls,
            "wait_ns": figures.total,
            "max_wait_ns": figures.most,
            "nested_ns": groups.sums(each, np.where(nested, took, 0)),
        },
    )
    return table.take(np.lexsort((-figures.total, rank)))


ANALYSIS = base.Analysis(
    name="sync-stalls",
    title="Synchronization stalls",
    question="Where does the CPU wait for the GPU, and does the GPU run dry because of it?",
    needs=("api_calls",),
    tables=(CALLS, SITES),
    compute=compute,
    charts=(base.Chart("bars", "calls", "CPU time in blocking calls", "api", "wait_ns"),),
)
