"""Idle time by what a launching thread without Python samples did: run, or wait off the CPU.

nsys samples a thread only while it runs. So a gap is cut at the recorded scheduling events: the
time off the CPU is known exactly, by the call of the operating system that the thread was in, and
the rest is divided among the samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.cpu_activity import off_cpu
from traceview.facts.idle.stack_sites import native_rows, stack_sites
from traceview.facts.operations.cuda_api import api_calls
from traceview.intervals import Intervals
from traceview.tables import Array, Integers
from traceview.trace import Trace
from traceview.vocabulary.activities import CPU, OFF_CPU


class OffCpu(NamedTuple):
    """Waits of a thread off the CPU, disjoint and in order.

    `site` is the row in StackSites, `doing` an index into ACTIVITIES.
    """

    start: Integers
    end: Integers
    site: Integers
    doing: Array


class Pieces(NamedTuple):
    """Parts of idle gaps. `gap` is the gap's row, `wait` the row of the wait, −1 on the CPU."""

    gap: Integers
    start: Integers
    end: Integers
    wait: Integers


def cut_gaps(idle: Intervals, waits: OffCpu) -> Pieces:
    """Cut disjoint gaps, in order, at the edges of the waits."""
    cuts = groups.different(np.concatenate([*idle, waits.start, waits.end]))
    kept = np.flatnonzero(intervals.inside(idle, cuts))
    start, end = cuts[kept], cuts[kept + 1]
    gap = np.searchsorted(idle.start, start, side="right") - 1
    wait = np.searchsorted(waits.start, start, side="right") - 1
    waiting = intervals.inside(Intervals(waits.start, waits.end), start)
    return Pieces(gap, start, end, np.where(waiting, wait, -1))


def thread_waits(trace: Trace, thread: int, kinds: Array) -> OffCpu:
    """The waits of a thread. `kinds` are activities (ACTIVITIES) by code of the names in os_calls.

    Without scheduling events, these are its blocking calls. In a CUDA call a thread waits for the
    GPU or the driver: that time counts as the call, on the CPU.
    """
    calls, rows = trace.recorded("os_calls"), _outermost_calls(trace, thread)
    start, end = calls["start_ns"][rows], calls["end_ns"][rows]
    kind = kinds[calls.texts("name").codes[rows]]
    cuda = api_calls(trace)
    own = cuda.thread == thread
    in_cuda = intervals.union(cuda.start_ns[own], cuda.end_ns[own])
    away = off_cpu(trace, thread)
    if "thread_runs" not in trace.tables:
        away = intervals.union(start[kind != CPU], end[kind != CPU])
    cuts = groups.different(np.concatenate([*away, start, end, *in_cuda]))
    kept = np.flatnonzero(intervals.inside(away, cuts))
    begin, until = cuts[kept], cuts[kept + 1]
    call = np.searchsorted(start, begin, side="right") - 1
    known = intervals.inside(Intervals(start, end), begin)
    stack = np.append(calls["stack"][rows], np.iinfo(np.int64).min)[np.where(known, call, -1)]
    doing = np.where(known, np.append(kind, OFF_CPU)[np.where(known, call, -1)], OFF_CPU)
    doing = np.where(doing == CPU, OFF_CPU, doing)
    doing = np.where(intervals.inside(in_cuda, begin), CPU, doing)
    return OffCpu(begin, until, native_rows(trace, stack), doing.astype(np.uint8))


def _outermost_calls(trace: Trace, thread: int) -> Integers:
    """Rows of os_calls of a thread, disjoint and in order."""
    calls = trace.recorded("os_calls")
    rows = np.flatnonzero((calls["thread"] == thread) & (calls.duration_ns > 0))
    rows = rows[np.lexsort((-calls["end_ns"][rows], calls["start_ns"][rows]))]
    reach = np.maximum.accumulate(calls["end_ns"][rows])
    outer = np.ones(len(rows), bool)
    outer[1:] = calls["start_ns"][rows][1:] >= reach[:-1]
    return rows[outer]


class NativeSamples(NamedTuple):
    """Native samples with a stack, in order of time: `site` is the row in StackSites."""

    time_ns: Integers
    thread: Array
    site: Integers

    def of_thread(self, thread: int) -> NativeSamples:
        own = self.thread == thread
        return NativeSamples(*(column[own] for column in self))


def unwound_samples(trace: Trace) -> NativeSamples:
    samples = trace.recorded("native_samples")
    site = native_rows(trace, samples["stack"])
    known = site < len(stack_sites(trace)) - 1
    return NativeSamples(samples["time_ns"][known], samples["thread"][known], site[known])
