"""What launching costs the CPU, and how much of that the GPU has to wait for.

Launch overhead is end − start of the launch call, less the time that a full launch queue held it
back. `exposed_ns` is its overlap with idle gaps of the GPU that it launched on: only that costs
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np

from traceview.base import groups, intervals, units
from traceview.base.findings import Clause, severity_of
from traceview.base.tables import Cell, Table, TableSpec, Texts, column_list
from traceview.base.tables.arrays import Integers, picked, row_numbers, unbroken
from traceview.base.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE
from traceview.traces.analyses import base, wording
from traceview.traces.facts import operations
from traceview.traces.facts.idle.causes import OWN_WORK_NS
from traceview.traces.facts.idle.gaps import Gaps, gaps, steady_spans_ns, unknown_idle
from traceview.traces.facts.idle.launching import long_launches
from traceview.traces.facts.launches import QueueFull, queue_full
from traceview.traces.facts.ranges import ranges, selection
from traceview.traces.facts.round_trips import lost_by, round_trips
from traceview.traces.rules import FindingRule, TimeClaim, findings, gpu_name, gpu_subject
from traceview.traces.trace import Trace

# Tables of CPU time: every function of the CUDA API, and the ranges of the program.

_DOES = {
    operations.CallKind.OTHER: "other",
    operations.CallKind.LAUNCH: "launch",
    operations.CallKind.SYNCHRONIZE: "synchronize",
    operations.CallKind.COPY: "copy",
    operations.CallKind.COPY_ASYNC: "copy",
    operations.CallKind.ALLOCATE: "allocate",
    operations.CallKind.LOAD: "load code",
    operations.CallKind.LOOK_UP: "look up code",
    operations.CallKind.GRAPH: "prepare graph",
}
API = TableSpec(
    "api",
    "one row per function of the CUDA runtime and driver, most CPU time first; what a thread waits "
    "for in it counts",
    column_list("""
        api text: runtime or driver call
        does text: launch, synchronize, copy, allocate, load code, look up code, prepare graph or
            other
        calls int64: number of calls
        total_ns int64: CPU time in it, over all threads
        median_ns int64: median per call
        max_ns int64: longest call
        share_pct float64: percentage of the CPU time in all CUDA calls
    """),
    brief="api does calls total_ns share_pct median_ns max_ns",
    adds="calls total_ns share_pct",
)
RANGES = TableSpec(
    "ranges",
    "one row per path pattern of ranges, most CPU time of its own first",
    column_list("""
        range_path text: path of the range, with # for numbers
        instances int64: number of ranges
        cpu_ns int64: time from start to end, over all instances
        own_ns int64: part of it in no inner range of the same thread
        cuda_ns int64: time of CUDA calls made in no inner range
        launches int64: launch calls made in no inner range
    """),
    brief="range_path instances own_ns cpu_ns cuda_ns launches",
    adds="instances own_ns cuda_ns launches",
    rare=True,
)


def api_table(trace: Trace) -> Table:
    """The selected calls of every function."""
    calls, rows = (
        operations.api_calls(trace),
        unbroken(np.flatnonzero(selection.selected_calls(trace))),
    )
    names = trace.api_calls.texts("name").take(rows)
    by_name = groups.group(names.codes)
    figures = groups.stats(by_name, calls.duration_ns[rows])
    does = [_DOES[operations.CallKind(kind)] for kind in calls.does[rows][by_name.first].tolist()]
    table = Table(
        API.columns,
        {
            "api": names.take(by_name.first),
            "does": Texts.of(does),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "max_ns": figures.most,
            "share_pct": 100.0 * figures.total / max(int(figures.total.sum()), 1),
        },
    )
    return table.take(groups.most_first(figures.total))


def range_table(trace: Trace) -> Table:
    """The selected ranges by path pattern. Those that never ended count until the last event."""
    tree, size = ranges.range_tree(trace), len(ranges.range_tree(trace).patterns)
    chosen = selection.selected_ranges(trace)
    pattern = picked(np.append(tree.path_pattern, np.int32(size)), tree.path)
    if trace.selection:
        # Ranges that are not selected are counted behind the last pattern.
        pattern[~chosen] = size
    # CUDA time and launch calls on the threads of the ranges themselves, by innermost range.
    calls, inside = operations.api_calls(trace), ranges.attributed_calls(trace)
    within = unbroken(np.flatnonzero((inside.range >= 0) & ~inside.inferred))
    of_calls = picked(pattern, picked(inside.range, within))
    cuda = groups.added(of_calls, picked(calls.duration_ns, within), size + 1)
    launching = picked(calls.does, within) == operations.CallKind.LAUNCH
    launches = groups.added(of_calls, launching, size + 1)
    duration, own = tree.nesting.sums(pattern, size + 1)
    instances = groups.frequencies(pattern, size + 1)
    rows = np.flatnonzero(instances[:size])
    table = Table(
        RANGES.columns,
        {
            "range_path": tree.patterns.texts(row_numbers(rows)),
            "instances": instances[rows],
            "cpu_ns": duration[rows],
            "own_ns": own[rows],
            "cuda_ns": cuda[rows],
            "launches": launches[rows],
        },
    )
    return table.take(groups.most_first(own[rows]))


CALLS = TableSpec(
    "calls",
    "one row per launch call, most time first",
    column_list("""
        api text: runtime or driver call
        calls int64: number of calls
        total_ns int64: launch overhead: CPU time in it, without queue_full
        median_ns int64: median per call
        max_ns int64: longest call
        exposed_ns int64: part of total inside idle gaps of the device, call by call
        first_launch_ns int64: part of total in first launches, which load code
        queue_full_ns int64: wait for room in a full launch queue, which is not overhead
    """),
    brief="api calls total_ns median_ns exposed_ns first_launch_ns queue_full_ns max_ns",
)


def compute(trace: Trace) -> base.Result:
    calls, full = operations.api_calls(trace), queue_full(trace)
    rows = np.flatnonzero(
        (calls.does == operations.CallKind.LAUNCH) & selection.selected_calls(trace)
    )
    held = picked(full.held_ns, rows)
    # The launch calls that enqueued work on each device.
    is_launch = np.zeros(len(calls), bool)
    is_launch[rows] = True
    by_device = {}
    for device, on_device in operations.operations_by_device(trace).items():
        call = operations.operations(trace).call[on_device]
        call = call[call >= 0]
        by_device[device] = groups.different(call[picked(is_launch, call)])
    # Needed only where there is a finding, or the tables are read.
    exposed = cache(lambda: exposed_ns(gaps(trace), calls, by_device, full)[rows])
    notes: tuple[str, ...] = ()
    if held.any():
        source = "recorded" if full.recorded else "inferred from queue depth and call duration"
        notes = (
            f"Launch calls waited {units.duration(int(held.sum()))} for room in a full queue "
            f"({source}). The GPU has plenty of work then, so no total here includes that time.",
        )
    tables = base.Deferred(
        lambda: {
            "calls": _calls(trace, rows, exposed()),
            "api": api_table(trace),
            "ranges": range_table(trace),
        }
    )
    rule = FindingRule(
        lambda of: _claims(of, rows, by_device, exposed), MESSAGE, clauses=(LONG_CALLS,)
    )
    return base.Result(
        tables,
        tuple(findings(trace, [rule])),
        {
            "launches": len(rows),
            "launch_overhead_ns": int((calls.duration_ns[rows] - held).sum()),
            "queue_full_ns": int(held.sum()),
        },
        notes,
    )


def _calls(trace: Trace, rows: Integers, exposed: Integers) -> Table:
    """The launch calls in these rows, by name; `exposed` is the time of each in idle gaps."""
    calls, full = operations.api_calls(trace), queue_full(trace)
    held = picked(full.held_ns, rows)
    took = calls.duration_ns[rows] - held
    first = operations.first_launch_calls(trace)[rows]
    names = trace.api_calls.texts("name").take(rows)
    by_name = groups.group(names.codes)
    figures = groups.stats(by_name, took)
    return Table(
        CALLS.columns,
        {
            "api": names.take(by_name.first),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "max_ns": figures.most,
            "exposed_ns": groups.sums(by_name, exposed),
            "first_launch_ns": groups.sums(by_name, np.where(first, took, 0)),
            "queue_full_ns": groups.sums(by_name, held),
        },
    ).take(np.argsort(-figures.total, kind="stable"))


def exposed_ns(
    gaps: Gaps, calls: operations.ApiCalls, by_device: Mapping[int, Integers], full: QueueFull
) -> Integers:
    """Time of each launch call inside idle gaps of the device that it launched on.

    `by_device` are rows of `calls`. Time that a full launch queue held a call back is left out.
    """
    result = np.zeros(len(calls), np.int64)
    of_device = groups.rows_of(gaps.device)
    for device, rows in by_device.items():
        on_device = of_device.get(device, groups.NO_ROWS)
        idle = intervals.by_start(gaps.start_ns[on_device], gaps.end_ns[on_device])
        start, end = picked(calls.start_ns, rows), picked(calls.end_ns, rows)
        result[rows] = intervals.overlap(idle, start, end)
        for thread, held in full.by_thread.items():
            made = rows[calls.thread[rows] == thread]
            both = intervals.intersection(idle, held)
            result[made] -= intervals.overlap(both, calls.start_ns[made], calls.end_ns[made])
    return result


MESSAGE = (
    "The CPU was inside launch calls for {idle_ns} of the {late_idle_ns} that {gpu} sat idle "
    "waiting for launches."
)
LONG_CALLS = Clause(
    " {long_ns} of that passed in {long_calls:call} of more than {least_ns}, where a launch takes "
    "about 5 µs: {api}[, the longest before {kernel}]."
)


def _claims(
    trace: Trace,
    launches: Integers,
    by_device: Mapping[int, Integers],
    exposed: Callable[[], Integers],
) -> Iterator[TimeClaim]:
    """Idle time that passed inside launch calls, for the GPU with most of it."""
    spans, every = steady_spans_ns(trace), gaps(trace)
    # sync-stalls reports what round trips cost.
    late = (every.cause == LAUNCH_LATE) & ~every.one_time
    late &= ~lost_by(trace, every, round_trips(trace))
    inside_ns = _inside_launches(trace, np.flatnonzero(late), by_device)
    sound = spans.keys() - unknown_idle(trace).keys()
    total_ns = {device: int(inside_ns[every.device == device].sum()) for device in sorted(sound)}
    device = max(total_ns, key=total_ns.__getitem__, default=-1)
    most_ns, span_ns = total_ns.get(device, 0), spans.get(device, 0)
    if severity_of(most_ns, span_ns) is None:
        return
    late &= every.device == device
    longest = int(np.argmax(np.where(late, inside_ns, -1)))
    names = trace.api_calls.texts("name").take(launches)
    by_name = groups.group(names.codes)
    most_exposed = int(by_name.first[np.argmax(groups.sums(by_name, exposed()))])
    values: dict[str, Cell] = {"idle_ns": most_ns, "late_idle_ns": int(every.idle_ns[late].sum())}
    long = long_launches(trace)[device]
    # Few long calls are no overhead of launching: what holds these up is to be found.
    few = 2 * long.idle_ns > most_ns
    if few:
        longest, remedy = int(np.argmax(np.where(long.part, every.idle_ns, -1))), _LONG_CALLS
        values |= {"long_calls": len(long.calls), "long_ns": long.idle_ns, "least_ns": OWN_WORK_NS}
        values["api"] = trace.api_calls.texts("name")[int(every.within[longest])]
        if kernel := _kernel(trace, int(every.after[longest])):
            values["kernel"] = kernel
    else:
        remedy = f"Launch less often: {wording.fewer_launches(trace)}."
    yield TimeClaim(
        gpu_subject(trace, device),
        values,
        "calls",
        {"api": names[most_exposed]},
        saved_ns=most_ns,
        span_ns=span_ns,
        window=(int(every.start_ns[longest]), int(every.end_ns[longest])),
        cause=CAUSE_NAMES[LAUNCH_LATE],
        lost=wording.lost_in(every, long.part if few else late),
        words={"gpu": "the GPU" if len(spans) == 1 else gpu_name(trace, device)},
        general=not few,
        remedy=remedy,
        # gpu-idle says what to do, and what that wins.
        severity="info",
    )


_LONG_CALLS = (
    "Look at what these calls wait for: a kernel whose code is loaded at its first use, a lock of "
    "the driver that another thread holds, or memory that a library allocates. Launching less "
    "often would save little."
)


def _kernel(trace: Trace, operation: int) -> str | None:
    """The name of an operation that is a kernel."""
    ops = operations.operations(trace)
    if ops.kind[operation] != operations.Kind.KERNEL:
        return None
    return trace.recorded("kernels").texts("short_name")[int(ops.row[operation])]


def _inside_launches(trace: Trace, rows: Integers, by_device: Mapping[int, Integers]) -> Integers:
    """For each gap the time that its thread spent in launch calls; 0 where it is not in `rows`."""
    every, calls = gaps(trace), operations.api_calls(trace)
    result = np.zeros(len(every), np.int64)
    threads = groups.rows_of(every.thread[rows])
    for made in by_device.values():
        of_thread = groups.rows_of(picked(calls.thread, made))
        for thread in threads.keys() & of_thread.keys():
            own, launched = rows[threads[thread]], made[of_thread[thread]]
            inside = intervals.covered(calls, launched)
            result[own] += intervals.overlap(inside, every.start_ns[own], every.end_ns[own])
    return result


ANALYSIS = base.Analysis(
    name="launch-overhead",
    title="Launch overhead",
    question="What does launching cost the CPU, and does the GPU have to wait for it?",
    needs=("kernels", "api_calls"),
    tables=(CALLS, API, RANGES),
    compute=compute,
    charts=(base.Chart("bars", "calls", "CPU time in launch calls", "api", "total_ns"),),
)
