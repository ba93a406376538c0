"""Where the CPU waited, and which of these waits let the GPU run dry.

A wait while the GPU works costs nothing by itself. It costs what comes after: the CPU gave up its
lead, and the GPU lies idle until the next launch reaches it.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals, units
from traceview.analyses.base import Analysis, Chart, Finding, Result, TableSpec, named, severity_of
from traceview.facts.cuda_api import Does
from traceview.facts.idle import busy, gaps, steady_span_ns
from traceview.facts.operations import Kind, operations
from traceview.facts.ranges import UNATTRIBUTED, attribute, pattern_of, range_tree
from traceview.facts.selection import selected_calls
from traceview.facts.waits import Waits, waits
from traceview.tables import Column, Integers, Mask, Table, Texts
from traceview.trace import Trace

CALLS = TableSpec(
    "calls",
    "one row a blocking call, synchronizations first",
    (
        Column("api", "text", "runtime or driver call"),
        Column("calls", "int64", "times it was called"),
        Column("wait_ns", "int64", "time the CPU spent in it"),
        Column("max_wait_ns", "int64", "longest call"),
    ),
    brief=("api", "calls", "wait_ns", "max_wait_ns"),
)
SITES = TableSpec(
    "sites",
    "one row a blocking call and place, most idle time caused first",
    (
        Column("api", "text", "runtime or driver call"),
        Column("range_path", "text", "innermost range open on the calling thread"),
        Column("call_site", "text", "file:line and function", nullable=True),
        Column("calls", "int64", "times it was called"),
        Column("wait_ns", "int64", "time the CPU spent in it"),
        Column("benign_ns", "int64", "of the wait, while the GPU worked"),
        Column("idle_after_ns", "int64", "GPU idle from running dry in the wait to the next work"),
        Column("steady_idle_after_ns", "int64", "of idle_after, after set-up"),
        Column("upload_idle_after_ns", "int64", "of that, behind a copy to the GPU"),
        Column("hint", "text", "the operation behind the call", nullable=True),
    ),
    brief=("api", "range_path", "calls", "wait_ns", "idle_after_ns", "benign_ns", "call_site"),
)

_ORDER = (Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC, Does.ALLOCATE, Does.LOAD)
_READ = (
    "Read results on the CPU less often, or copy with non_blocking=True into pinned memory and "
    "read them a step later."
)
_UPLOAD = "Pin what is uploaded, and copy it with non_blocking=True in few large copies."
_DRAINS = (Does.SYNCHRONIZE, Does.COPY, Does.COPY_ASYNC)


def compute(trace: Trace) -> Result:
    found = waits(trace)
    chosen = selected_calls(trace)[found.call]
    sites = _sites(trace, found, chosen)
    return Result(
        {"calls": _calls(trace, found, chosen), "sites": sites},
        _findings(trace, sites),
        _summary(found, chosen),
    )


def _summary(found: Waits, chosen: Mask) -> dict[str, int]:
    """A driver call inside a runtime call waits no second time: a union on each thread."""
    mine = chosen & (found.does == Does.SYNCHRONIZE)
    waited = sum(
        intervals.union(found.start_ns[on], found.end_ns[on]).total()
        for on in (mine & (found.thread == thread) for thread in np.unique(found.thread[mine]))
    )
    return {"synchronizations": int(mine.sum()), "synchronization_wait_ns": waited}


def _calls(trace: Trace, found: Waits, chosen: Mask) -> Table:
    rows = np.flatnonzero(chosen & np.isin(found.does, _ORDER))
    names = trace.api_calls.texts("name").take(found.call[rows])
    each = groups.group(names.codes)
    figures = groups.stats(each, (found.end_ns - found.start_ns)[rows])
    rank = np.array([_ORDER.index(Does(d)) for d in found.does[rows[each.first]]], np.int64)
    table = Table(
        CALLS.columns,
        {
            "api": names.take(each.first),
            "calls": figures.calls,
            "wait_ns": figures.total,
            "max_wait_ns": figures.most,
        },
    )
    return table.take(np.lexsort((-figures.total, rank)))


def _sites(trace: Trace, found: Waits, chosen: Mask) -> Table:
    caused = np.isin(np.arange(len(found)), gaps(trace).wait)
    rows = np.flatnonzero((chosen & np.isin(found.does, _DRAINS)) | caused)
    call = found.call[rows]
    calls = trace.api_calls
    path = attribute(trace, calls["thread"][call], found.process[rows], found.start_ns[rows]).path(
        range_tree(trace)
    )
    names = calls.texts("name").take(call)
    each = groups.group(names.codes, path)
    steady = ~gaps(trace).one_time
    uploads = steady & _behind_uploads(trace)
    idle = groups.sums(each, _idle_after(trace, found, np.ones(len(steady), bool))[rows])
    texts = range_tree(trace).path_text
    wait = groups.sums(each, (found.end_ns - found.start_ns)[rows])
    table = Table(
        SITES.columns,
        {
            "api": names.take(each.first),
            "range_path": Texts.of(texts[p] if p >= 0 else UNATTRIBUTED for p in path[each.first]),
            "call_site": Texts.of([None] * each.size),
            "calls": groups.sums(each, np.ones(len(rows), np.int64)),
            "wait_ns": wait,
            "benign_ns": groups.sums(each, _benign(trace, found)[rows]),
            "idle_after_ns": idle,
            "steady_idle_after_ns": groups.sums(each, _idle_after(trace, found, steady)[rows]),
            "upload_idle_after_ns": groups.sums(each, _idle_after(trace, found, uploads)[rows]),
            "hint": Texts.of([None] * each.size),
        },
    )
    return table.take(np.lexsort((-wait, -idle)))


def _benign(trace: Trace, found: Waits) -> Integers:
    """Of each wait, the time that the device waited for was busy.

    Where the trace does not tell the device, any device of the process counts.
    """
    done = operations(trace)
    result = np.zeros(len(found), np.int64)
    for device in np.unique(found.device).tolist():
        for process in np.unique(found.process[found.device == device]).tolist():
            mine = (found.device == device) & (found.process == process)
            covered = busy(trace).get(device)
            if covered is None:
                own = done.process == process
                covered = intervals.union(done.start_ns[own], done.end_ns[own])
            result[mine] = intervals.overlap(covered, found.start_ns[mine], found.end_ns[mine])
    return result


def _idle_after(trace: Trace, found: Waits, wanted: Mask) -> Integers:
    """GPU idle time of the wanted gaps that each wait is the cause of; a gap has one cause."""
    gap = gaps(trace)
    caused = wanted & (gap.wait >= 0)
    result = np.zeros(len(found), np.int64)
    np.add.at(result, gap.wait[caused], gap.idle_ns[caused])
    return result


def _behind_uploads(trace: Trace) -> Mask:
    """True for the gaps in which the GPU ran dry behind a copy from the host."""
    gap, done = gaps(trace), operations(trace)
    copied: Mask = done.kind[gap.before] == Kind.COPY
    to_gpu = trace.recorded("copies").texts("direction").isin(["H2D"])
    copied[copied] = to_gpu[done.row[gap.before[copied]]]
    return copied


def _findings(trace: Trace, sites: Table) -> tuple[Finding, ...]:
    """One finding a call and place; the steps of a series count as one place."""
    path = sites.texts("range_path")
    steady = sites["steady_idle_after_ns"]
    place = path.map([pattern_of(text) for text in path.values])
    each = groups.group(sites.texts("api").codes, place.codes)
    idle = groups.sums(each, steady)
    calls, wait = (groups.sums(each, sites[name]) for name in ("calls", "wait_ns"))
    uploads = groups.sums(each, sites["upload_idle_after_ns"])
    findings = []
    for number, row in enumerate(each.first.tolist()):
        severity = severity_of(int(idle[number]), steady_span_ns(trace))
        if severity is None:
            continue
        where = "outside any range" if place[row] == UNATTRIBUTED else f"in {named(place[row])}"
        findings.append(
            Finding(
                severity,
                f"{sites.texts('api')[row]} {where} leaves the GPU idle for "
                f"{units.duration(int(idle[number]))} after "
                f"{units.counted(int(calls[number]), 'call')}; the CPU waits "
                f"{units.duration(int(wait[number]))} in it",
                _UPLOAD if 2 * uploads[number] > idle[number] else _READ,
                int(idle[number]),
            )
        )
    return tuple(findings)


ANALYSIS = Analysis(
    name="sync-stalls",
    title="Synchronization stalls",
    question="Where does the CPU wait for the GPU, and does the GPU run dry because of it?",
    needs=("api_calls",),
    tables=(CALLS, SITES),
    compute=compute,
    charts=(Chart("bars", "calls", "CPU time in blocking calls", "api", "wait_ns"),),
)
