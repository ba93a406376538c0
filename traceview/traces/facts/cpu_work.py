"""What the CPU did in a recording without GPU work."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Integers, Mask, Texts
from traceview.traces.facts.operations import CallKind, call_kinds
from traceview.traces.facts.ranges.ranges import pattern_of, range_tree
from traceview.traces.trace import Trace, fact, schema

SHORT_NS = 10_000
"""The CPU's cost of an operator of PyTorch that works on little: 1 to 8 µs (public recordings)."""
_EVENTS = re.compile("cudaEvent(Create|Record)")
"""Calls around each operator that older versions of torch's profiler make themselves."""


_WORKS = re.compile(r"(gloo|nccl|mpi|ucc|xccl|hccl):\w")
"""Works of torch's process groups: they last from their start to their end, which may be on other
threads, and are no calls of the thread that starts them."""


@record
class CpuTimes:
    """The time from the first range or call to the last, `span_ns`.

    `own_ns` is what each name takes of it outside of inner ranges and calls, `number` how often it
    occurs. Of ranges, those of less than SHORT_NS take `short_ns` of it. What is named in `beside`
    runs at the same time as other work, and takes all of the time in which some of it is open.
    """

    span_ns: int
    own_ns: Counter[str]
    number: Counter[str]
    short_ns: int
    beside: frozenset[str]


@fact
def cpu_work(trace: Trace) -> CpuTimes | None:
    """Time of the CPU by name: ranges of the busiest thread, calls of CUDA, other calls of the OS.

    None without any; the calls of the OS are those of the thread that calls CUDA most.
    """
    tree, calls, on_os = range_tree(trace), trace.recorded("api_calls"), trace.recorded("os_calls")
    if not len(tree.row) + len(calls):
        return None
    calling = int(np.bincount(calls["thread"]).argmax()) if len(calls) else -1
    on_os = on_os.take(np.flatnonzero(on_os["thread"] == calling))
    called = intervals.covered(calls)
    beside = intervals.without(intervals.covered(on_os), called)
    inside = intervals.union(*(np.concatenate(each) for each in zip(called, beside, strict=True)))
    start, end, is_work = tree.nesting.start, tree.nesting.end, _works(trace)[tree.row]
    # What is inside a work that runs beside is inside of what is around that.
    call = np.where(is_work, -1, np.arange(len(start))).astype(np.int32)
    parent = np.append(tree.own_or_inherited(call), np.int32(-1))[tree.parent]
    is_inner = (parent >= 0) & ~is_work
    outside_ns = end - start - intervals.overlap(inside, start, end)
    inner_ns = groups.added(parent[is_inner], outside_ns[is_inner], len(start))
    own_ns = np.maximum(outside_ns - inner_ns, 0)
    outer = np.where(tree.parent >= 0, -1, tree.nesting.track).astype(np.int32)
    thread = tree.own_or_inherited(outer)
    busiest = thread == groups.added(thread, own_ns, len(trace.threads)).argmax()
    rows, names = np.flatnonzero(busiest), trace.recorded("ranges").texts("name")
    took, number = Counter[str](), Counter[str]()
    called_in, of_work = rows[~is_work[rows]], rows[is_work[rows]]
    _add(took, number, names.take(tree.row[called_in]), own_ns[called_in])
    works = names.take(tree.row[of_work])
    for of_name in groups.rows_of(works.codes).values():
        name, one = str(works[int(of_name[0])]), of_work[of_name]
        took[name], number[name] = intervals.union(start[one], end[one]).total(), len(one)
    of_torch, called_names = trace.recorder == schema.TORCH_PROFILER, calls.texts("name")
    for of_name in groups.rows_of(called_names.codes).values():
        name = str(called_names[int(of_name[0])])
        if not (of_torch and _EVENTS.match(name)):
            # Calls of several threads, and one inside another, are at the same time.
            took[name], number[name] = intervals.covered(calls, of_name).total(), len(of_name)
    on_os_ns = on_os.duration_ns - intervals.overlap(called, on_os["start_ns"], on_os["end_ns"])
    _add(took, number, on_os.texts("name"), on_os_ns)
    short = called_in[(end - start)[called_in] < SHORT_NS]
    first, last = np.append(start[rows], inside.start).min(), np.append(end[rows], inside.end).max()
    of_works = frozenset(map(str, works.decode()))
    return CpuTimes(int(last - first), took, number, int(own_ns[short].sum()), of_works)


def _works(trace: Trace) -> Mask:
    """True for the rows of ranges that are works of process groups."""
    return trace.recorded("ranges").texts("name").matching(_WORKS.match)


@record
class WaitsForGpu:
    """The time from the first launch call on, and the part of it in calls that wait for the GPU.

    `call` is the one with most of it.
    """

    span_ns: int
    waited_ns: int
    call: str

    @property
    def pct(self) -> float:
        return 100.0 * self.waited_ns / max(self.span_ns, 1)


@fact
def waits_for_gpu(trace: Trace) -> WaitsForGpu | None:
    """How long the CPU waits for work that a GPU does meanwhile; None for less than half.

    That bounds GPU time from below where kernels were launched and not recorded.
    """
    calls, does = trace.recorded("api_calls"), call_kinds(trace)
    launches, waits = (
        np.flatnonzero(does == kind) for kind in (CallKind.LAUNCH, CallKind.SYNCHRONIZE)
    )
    if not len(launches) or not len(waits):
        return None
    first_ns = int(calls["start_ns"][launches].min())
    waits = waits[calls["start_ns"][waits] >= first_ns]
    if not len(waits):
        return None
    last_ns = max(int(calls["end_ns"][rows].max()) for rows in (launches, waits))
    names = calls.texts("name")
    took = groups.sums(of := groups.group(names.codes[waits]), calls.duration_ns[waits])
    call = str(names[int(waits[of.first[int(np.argmax(took))]])])
    found = WaitsForGpu(last_ns - first_ns, intervals.covered(calls, waits).total(), call)
    return found if found.pct >= _MUCH_WAITING_PCT else None


_MUCH_WAITING_PCT = 50.0


def _add(own_ns: Counter[str], number: Counter[str], names: Texts, times_ns: Integers) -> None:
    """Times by name, without the numbers of steps and the arguments of operators."""
    by_name = groups.group(names.codes)
    sums, counts = groups.sums(by_name, times_ns), groups.count(by_name)
    for row, time_ns, times in zip(by_name.first, sums, counts, strict=True):
        name = pattern_of(str(names[int(row)])).replace("##", "#")
        own_ns[name] += int(time_ns)
        number[name] += int(times)
