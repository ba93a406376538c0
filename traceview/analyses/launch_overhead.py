"""What launching costs the CPU, and how much of that the GPU has to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from traceview import groups, intervals, units
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.facts.idle.gaps import LAUNCH_LATE, gaps, steady_span_ns
from traceview.facts.operations.cuda_api import Does, what_calls_do
from traceview.facts.operations.operations import first_launches, operations
from traceview.facts.queue.launch_queue import queue_full
from traceview.facts.ranges.selection import selected_calls
from traceview.findings import Finding, severity_of
from traceview.tables import Column, Integers, Mask, Table, picked
from traceview.trace import Trace

CALLS = TableSpec(
    "calls",
    "one row a launch call, most time first",
    (
        Column("api", "text", "runtime or driver call"),
        Column("calls", "int64", "times it was called"),
        Column("total_ns", "int64", "launch overhead: CPU time in it, less queue_full"),
        Column("median_ns", "int64", "median of a call"),
        Column("max_ns", "int64", "longest call"),
        Column("exposed_ns", "int64", "of the total, inside idle gaps of the device, call by call"),
        Column("first_launch_ns", "int64", "of the total, first launches, which load code"),
        Column("queue_full_ns", "int64", "time held back by a full launch queue, no overhead"),
    ),
    brief=(
        "api",
        "calls",
        "total_ns",
        "median_ns",
        "exposed_ns",
        "first_launch_ns",
        "queue_full_ns",
        "max_ns",
    ),
)


def compute(trace: Trace) -> Result:
    calls = trace.api_calls
    launches = (what_calls_do(trace) == Does.LAUNCH) & selected_calls(trace)
    on = {device: np.flatnonzero(made & launches) for device, made in _launched_on(trace)}
    rows = np.flatnonzero(launches)
    held = picked(queue_full(trace).held_ns, rows)
    took = calls.duration_ns[rows] - held
    exposed = _exposed(trace, on)[rows]
    first = _first(trace)[rows]
    names = calls.texts("name").take(rows)
    found = groups.group(names.codes)
    figures = groups.stats(found, took)
    table = Table(
        CALLS.columns,
        {
            "api": names.take(found.first),
            "calls": figures.calls,
            "total_ns": figures.total,
            "median_ns": figures.median,
            "max_ns": figures.most,
            "exposed_ns": groups.sums(found, exposed),
            "first_launch_ns": groups.sums(found, np.where(first, took, 0)),
            "queue_full_ns": groups.sums(found, held),
        },
    )
    return Result(
        {"calls": table.take(np.argsort(-figures.total, kind="stable"))},
        _findings(trace, on),
        {
            "launches": len(rows),
            "launch_overhead_ns": int(took.sum()),
            "queue_full_ns": int(held.sum()),
        },
        _notes(trace, int(held.sum())),
    )


def _notes(trace: Trace, held_ns: int) -> tuple[str, ...]:
    if not held_ns:
        return ()
    told = "recorded" if queue_full(trace).recorded else "inferred from depth and duration"
    return (
        f"for {units.duration(held_ns)} ({told}) launch calls stood before a full queue; the GPU "
        "has more than enough to do then, so that time counts in no total here",
    )


def _exposed(trace: Trace, launches: Mapping[int, Integers]) -> Integers:
    """Of each launch, the part inside an idle gap of the device that it launched on.

    What a full queue held back is left out.
    """
    calls, gap = trace.api_calls, gaps(trace)
    result = np.zeros(len(calls), np.int64)
    for device, mine in launches.items():
        here = gap.device == device
        idle = intervals.by_start(gap.start_ns[here], gap.end_ns[here])
        result[mine] = intervals.overlap(idle, calls["start_ns"][mine], calls["end_ns"][mine])
        for thread, held in queue_full(trace).by_thread.items():
            own = mine[calls["thread"][mine] == thread]
            both = intervals.intersection(idle, held)
            result[own] -= intervals.overlap(both, calls["start_ns"][own], calls["end_ns"][own])
    return result


def _launched_on(trace: Trace) -> Iterator[tuple[int, Mask]]:
    """For each device, which API calls enqueued work on it."""
    done = operations(trace)
    for device in groups.different(done.device).tolist():
        launched = np.zeros(len(trace.api_calls), bool)
        launched[done.call[(done.device == device) & done.launched]] = True
        yield device, launched


def _first(trace: Trace) -> Mask:
    """True for the API calls that launched a kernel for the first time."""
    done = operations(trace)
    result = np.zeros(len(trace.api_calls), bool)
    result[done.call[first_launches(trace) & done.launched]] = True
    return result


def _findings(trace: Trace, launches: Mapping[int, Integers]) -> tuple[Finding, ...]:
    """Idle time that passed inside launch calls, each instant once, whoever made the calls."""
    calls, gap = trace.api_calls, gaps(trace)
    total = 0
    for device, mine in launches.items():
        here = (gap.device == device) & (gap.cause == LAUNCH_LATE) & ~gap.one_time
        inside = intervals.union(calls["start_ns"][mine], calls["end_ns"][mine])
        total += int(intervals.overlap(inside, gap.start_ns[here], gap.end_ns[here]).sum())
    severity = severity_of(total, steady_span_ns(trace))
    if severity is None:
        return ()
    return (
        Finding(
            severity,
            f"Of the GPU's idle time of cause launch-late, {units.duration(total)} passed while "
            "the CPU was inside launch calls",
            "Launch less often: fuse kernels, use torch.compile, or replay a CUDA graph.",
            total,
        ),
    )


ANALYSIS = Analysis(
    name="launch-overhead",
    title="Launch overhead",
    question="What does launching cost the CPU, and does the GPU have to wait for it?",
    needs=("kernels", "api_calls"),
    tables=(CALLS,),
    compute=compute,
    charts=(Chart("bars", "calls", "CPU time in launch calls", "api", "total_ns"),),
)
