"""Where the CPU waited, and which of these waits let the GPU run dry.

A wait while the GPU works costs nothing by itself. It costs what comes after: the CPU gave up its
lead, and the GPU lies idle until the next launch reaches it.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, intervals, units
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.analyses.sync_stalls.call_sites import wait_sites
from traceview.analyses.sync_stalls.result_copies import hands_nothing_back
from traceview.analyses.sync_stalls.stalls import BLOCKING, answered_span_ns, behind_uploads, stalls
from traceview.facts.idle.gaps import SYNC_DRAIN, every_gap
from traceview.facts.operations.blocking_calls import Waits, waits
from traceview.facts.operations.cuda_api import Does
from traceview.facts.ranges.ranges import UNATTRIBUTED, attribute, range_tree
from traceview.facts.ranges.selection import selected_calls
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.facts.steps.warm_up import in_warm_up_range
from traceview.findings import Finding, severity_of, shortened
from traceview.groups import Groups
from traceview.tables import Column, Integers, Mask, RowNumbers, Table, Texts
from traceview.trace import Trace

CALLS = TableSpec(
    "calls",
    "one row a blocking call, synchronizations first",
    (
        Column("api", "text", "runtime or driver call"),
        Column("calls", "int64", "times it was called"),
        Column("wait_ns", "int64", "time the CPU spent in it"),
        Column("max_wait_ns", "int64", "longest call"),
        Column("nested_ns", "int64", "of wait_ns, inside another blocking call, counted there too"),
    ),
    brief=("api", "calls", "wait_ns", "max_wait_ns"),
)
SITES = TableSpec(
    "sites",
    "one row a blocking call and place, most idle time caused first",
    (
        Column("api", "text", "runtime or driver call, the outermost where they are nested"),
        Column(
            "range_path",
            "text",
            "innermost range open on the calling thread, numbers as # where they differ",
        ),
        Column("call_site", "text", "file:line and function of the program", nullable=True),
        Column("calls", "int64", "times it was called"),
        Column("wait_ns", "int64", "time the CPU spent in it: benign and idle_within together"),
        Column("benign_ns", "int64", "of the wait, while the GPU worked"),
        Column("idle_within_ns", "int64", "of the wait, while the GPU lay idle"),
        Column("idle_after_ns", "int64", "GPU idle that it caused, to the start of the next work"),
        Column("steady_idle_after_ns", "int64", "of idle_after, after set-up"),
        Column("upload_idle_after_ns", "int64", "of that, behind a copy to the GPU"),
        Column("hint", "text", "what the program called, such as Tensor.item", nullable=True),
        Column("source", "text", "the line of the program", nullable=True),
        Column("place", "text", "call_site where there is one, else range_path"),
    ),
    brief=("place", "api", "calls", "wait_ns", "idle_after_ns", "hint", "benign_ns", "source"),
    adds=("calls", "wait_ns", "benign_ns", "idle_within_ns", "idle_after_ns"),
)

_READ = (
    "Read results on the CPU less often, or copy with non_blocking=True into pinned memory and "
    "read them a step later."
)
_NOTHING_READ = (
    "Take it out if the CPU needs nothing from the GPU here: no result was copied back before it. "
    "Where the CPU has to wait, as before it writes to memory that both use, wait for an event of "
    "that work, and as late as possible."
)
_UPLOAD = "Pin what is uploaded, and copy it with non_blocking=True in few large copies."
_ALLOCATE = (
    "Allocate before the loop or through a pool, and keep freed memory in it "
    "(no torch.cuda.empty_cache in the loop)."
)
_ALLOCATED_ONCE = (
    "Look whether each step does it. If so, allocate before the loop and keep freed memory (no "
    "torch.cuda.empty_cache in the loop); a pool that first grows does it once."
)
_LOAD = "Warm up before the loop, so that code is loaded there."
_ACTIONS = {Does.ALLOCATE: _ALLOCATE, Does.LOAD: _LOAD, Does.LOOK_UP: _LOAD}


def compute(trace: Trace) -> Result:
    found = waits(trace)
    chosen = selected_calls(trace)[found.call]
    rows = _rows(trace, found, chosen)
    sites = _sites(trace, found, rows)
    return Result(
        {"calls": _calls(trace, found, chosen), "sites": sites},
        _findings(trace, found, rows),
        _summary(found, chosen, sites),
        _notes(trace, rows),
    )


def _rows(trace: Trace, found: Waits, chosen: Mask) -> Integers:
    """The selected waits to list: outermost blocking calls, and whatever a gap is due to."""
    own = np.arange(len(found))
    due = np.isin(own, stalls(trace).wait)
    outermost = stalls(trace).outer == own
    return np.flatnonzero(chosen & ((outermost & np.isin(found.does, BLOCKING)) | due))


def _summary(found: Waits, chosen: Mask, sites: Table) -> dict[str, int]:
    """A driver call inside a runtime call waits no second time: a union on each thread."""
    synchronizes = chosen & (found.does == Does.SYNCHRONIZE)
    copies = chosen & np.isin(found.does, [Does.COPY, Does.COPY_ASYNC])
    return {
        "synchronizations": int(synchronizes.sum()),
        "synchronization_wait_ns": _waited_ns(found, synchronizes),
        "blocking_copy_wait_ns": _waited_ns(found, copies),
        "idle_caused_ns": int(sites["idle_after_ns"].sum()),
        "steady_idle_caused_ns": int(sites["steady_idle_after_ns"].sum()),
    }


def _waited_ns(found: Waits, mine: Mask) -> int:
    threads = (mine & (found.thread == thread) for thread in groups.different(found.thread[mine]))
    return sum(intervals.union(found.start_ns[on], found.end_ns[on]).total() for on in threads)


def _notes(trace: Trace, rows: Integers) -> tuple[str, ...]:
    if not len(rows) or "call_sites" in trace.tables:
        return ()
    how = "hints are from C++ call chains" if "callchains" in trace.tables else "no line is known"
    return (f"the lines of the program were not recorded ({how}); traceview record marks them",)


def _calls(trace: Trace, found: Waits, chosen: Mask) -> Table:
    rows = np.flatnonzero(chosen & np.isin(found.does, BLOCKING))
    names = trace.api_calls.texts("name").take(found.call[rows])
    each = groups.group(names.codes)
    took = found.duration_ns[rows]
    figures = groups.stats(each, took)
    order = list(BLOCKING)
    rank = np.array([order.index(Does(d)) for d in found.does[rows[each.first]]], np.int64)
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


def _sites(trace: Trace, found: Waits, rows: Integers) -> Table:
    names = trace.api_calls.texts("name").take(found.call[rows])
    site = wait_sites(trace).take(rows)
    path, pattern = _paths(trace, found, rows)
    each = groups.group(names.codes, site.place.codes, site.hint.codes, pattern)
    cost, steady = stalls(trace), ~every_gap(trace).one_time
    took, benign = found.duration_ns[rows], cost.benign_ns[rows]
    idle = groups.sums(each, cost.idle_ns(np.ones(len(steady), bool))[rows])
    uploads = steady & behind_uploads(trace)
    within, called = _shown(trace, each, path, pattern), site.place.take(each.first)
    table = Table(
        SITES.columns,
        {
            "api": names.take(each.first),
            "range_path": within,
            "call_site": called,
            "place": Texts.of(
                c or w for c, w in zip(called.decode(), within.decode(), strict=True)
            ),
            "calls": groups.sums(each, np.ones(len(rows), np.int64)),
            "wait_ns": groups.sums(each, took),
            "benign_ns": groups.sums(each, benign),
            "idle_within_ns": groups.sums(each, took - benign),
            "idle_after_ns": idle,
            "steady_idle_after_ns": groups.sums(each, cost.idle_ns(steady)[rows]),
            "upload_idle_after_ns": groups.sums(each, cost.idle_ns(uploads)[rows]),
            "hint": site.hint.take(each.first),
            "source": site.source.take(each.first),
        },
    )
    return table.take(np.lexsort((-table["wait_ns"], -idle)))


def _paths(trace: Trace, found: Waits, rows: Integers) -> tuple[RowNumbers, RowNumbers]:
    """Path and pattern of the range that each wait was in; −1 for none."""
    tree = range_tree(trace)
    calls, call = trace.recorded("api_calls"), found.call[rows]
    thread, start = calls["thread"][call], found.start_ns[rows]
    path = attribute(trace, thread, found.process[rows], start).path(tree)
    if not len(tree.path_pattern):
        return path, path
    return path, np.where(path >= 0, tree.path_pattern[path], -1)


def _shown(trace: Trace, each: Groups, path: RowNumbers, pattern: RowNumbers) -> Texts:
    """The path of a group, or its pattern where there are several."""
    tree = range_tree(trace)
    one = groups.distinct(each, path) == 1 if each.size else np.zeros(0, bool)
    pairs = zip(path[each.first].tolist(), pattern[each.first].tolist(), one, strict=True)
    return Texts.of(
        UNATTRIBUTED if p < 0 else (tree.paths[p] if same else tree.patterns[q])
        for p, q, same in pairs
    )


def _findings(trace: Trace, found: Waits, rows: Integers) -> tuple[Finding, ...]:
    """One finding a line of the program; where no line is known, a call and place.

    Without a line only what a synchronization caused: gpu-idle tells of the other causes. Calls,
    waits and idle time are all those after set-up.
    """
    site = wait_sites(trace).take(rows)
    gap, cost = every_gap(trace), stalls(trace)
    idle = cost.idle_ns(~gap.one_time)[rows]
    drained = cost.idle_ns(~gap.one_time & (gap.cause == SYNC_DRAIN))[rows]
    at_stake = np.where(site.place.codes >= 0, idle, drained)
    call, calls = found.call[rows], trace.recorded("api_calls")
    early = found.end_ns[rows] < warm_up_end_ns(trace)
    early |= in_warm_up_range(trace, calls["process"][call], calls["start_ns"][call])
    steady = ~early | (idle > 0)
    path, pattern = _paths(trace, found, rows)
    without = site.place.codes < 0
    names = trace.api_calls.texts("name").take(found.call[rows])
    keys = (names.codes, site.hint.codes, pattern)
    each = groups.group(site.place.codes, *(np.where(without, key, -2) for key in keys))
    total = groups.sums(each, at_stake)
    shown, span = _shown(trace, each, path, pattern), answered_span_ns(trace)
    findings = []
    for number in range(each.size):
        severity = severity_of(int(total[number]), span)
        if severity is None:
            continue
        mine = np.flatnonzero((each.ids == number) & steady)
        # Of several calls in one line, the one that cost most speaks for it.
        first = int(mine[np.argmax(at_stake[mine])])
        same = mine[names.codes[mine] == names.codes[first]]
        what = _place(str(names[first]), site.place[first], site.source[first], site.hint[first])
        if site.place[first] is None:
            within = str(shown[number])
            what += " outside any range" if within == UNATTRIBUTED else f" in {shortened(within)}"
        waited = int(found.duration_ns[rows[mine]].sum())
        # Of a call that itself held the launch back, the idle time is not what came after it.
        when = "after" if 2 * int(drained[mine].sum()) >= int(total[number]) else "in"
        findings.append(
            Finding(
                severity,
                f"{what} leaves the GPU idle for {units.duration(int(total[number]))} {when} "
                f"{units.counted(len(same), 'call')}{_of(names[first], site.place[first])}; "
                f"the CPU waits {units.duration(waited)} in it",
                _action(trace, Does(int(found.does[rows[first]])), rows[mine], len(same)),
                int(total[number]),
            )
        )
    return tuple(findings)


def _place(api: str, place: str | None, source: str | None, hint: str | None) -> str:
    if place is not None:
        return f"{place}: {shortened(source)}" if source else place
    return f"{hint} ({api})" if hint else api


def _of(api: str | None, place: str | None) -> str:
    return f" of {api}" if place is not None else ""


def _action(trace: Trace, does: Does, rows: Integers, calls: int) -> str:
    if does == Does.ALLOCATE and calls == 1:
        return _ALLOCATED_ONCE
    steady, cost = ~every_gap(trace).one_time, stalls(trace)
    idle = int(cost.idle_ns(steady)[rows].sum())
    uploads = int(cost.idle_ns(steady & behind_uploads(trace))[rows].sum())
    if does in _ACTIONS:
        return _ACTIONS[does]
    unread = int(cost.idle_ns(steady)[rows][hands_nothing_back(trace)[rows]].sum())
    return _UPLOAD if 2 * uploads > idle else _NOTHING_READ if 2 * unread > idle else _READ


ANALYSIS = Analysis(
    name="sync-stalls",
    title="Synchronization stalls",
    question="Where does the CPU wait for the GPU, and does the GPU run dry because of it?",
    needs=("api_calls",),
    tables=(CALLS, SITES),
    compute=compute,
    charts=(Chart("bars", "calls", "CPU time in blocking calls", "api", "wait_ns"),),
)
