"""Idle time before late launches, by where the launching thread was meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.facts.idle.causes import LAUNCH_LATE
from traceview.facts.idle.cpu_activity import CpuActivity, cpu_activity
from traceview.facts.idle.gap_parts import IN_FLIGHT, OUTSIDE_CUDA
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.ranges import range_tree
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, picked, thrifty
from traceview.trace import Trace, fact

ELSEWHERE_NS = 200_000
"""The Python of one torch operation takes some 10 to 50 µs: a gap that holds more than this of
work outside CUDA is not due to the cost of launches."""
# No launch takes so long, and a loop over small operations calls CUDA more often.
_LONG_NS, _SELDOM_NS = 10_000_000, 1_000_000
_PYTHON = "python"


@record
class LateSite:
    """Where a CPU spent most of the steady launch-late idle time of a GPU.

    `pattern` is a row of the range tree's patterns, −1 outside any range, and `activity` as in
    CpuActivity. `python` is True for the main thread of a Python process outside CUDA.
    `other_work` is True where the CPU spent so long outside CUDA per gap that it was busy with
    something other than launches.
    """

    pattern: int
    activity: int
    steady_ns: int
    python: bool
    other_work: bool


@record
class LateIdle:
    """Launch-late idle time, one row per device, range pattern and CPU activity.

    `device` is a row in devices; `time_ns` adds up to all launch-late idle time. `steady_ns` is the
    part that a longer run repeats, `steady_gaps` the gaps with some of that, `python_ns` the part
    of `steady_ns` on the main thread of a Python process.
    """

    device: Array
    pattern: Array
    activity: Array
    gaps: Integers
    time_ns: Integers
    steady_ns: Integers
    steady_gaps: Integers
    python_ns: Integers

    def longest(self, device: int) -> LateSite | None:
        """The site with most steady idle time of a device; None where there is none.

        Time in which work was already in flight is not a site.
        """
        sites = (self.activity != IN_FLIGHT) & (self.device == device)
        steady = np.where(sites, self.steady_ns, 0)
        if not steady.any():
            return None
        row = int(np.argmax(steady))
        time, activity = int(steady[row]), int(self.activity[row])
        outside = activity == OUTSIDE_CUDA
        return LateSite(
            pattern=int(self.pattern[row]),
            activity=activity,
            steady_ns=time,
            python=outside and 2 * int(self.python_ns[row]) > time,
            other_work=outside and time > ELSEWHERE_NS * int(self.steady_gaps[row]),
        )


class _Kinds(NamedTuple):
    """Properties shared by all parts of a gap, one row per gap."""

    device: Array
    steady: Mask
    python: Mask


@fact
def late_idle(trace: Trace) -> LateIdle:
    every, tree = gaps(trace), range_tree(trace)
    # The appended False is for thread −1, of gaps whose launch is not recorded.
    python = np.append(_python_threads(trace), False)[every.thread]
    kinds = _Kinds(*map(thrifty, (every.device, ~every.one_time, python)))
    some = []
    for parts in cpu_activity(trace, np.flatnonzero(every.cause == LAUNCH_LATE)):
        pattern = tree.pattern_of_paths(tree.path_of_ranges(parts.range))
        some.append(_sum_sites(kinds, parts, pattern))
    return _together(some)


@fact
def seldom_launches(trace: Trace) -> Mask:
    """True for the long gaps in which the process that ends them seldom calls CUDA."""
    every, calls = gaps(trace), trace.recorded("api_calls")
    process = operations(trace).process[every.after]
    long, result = every.idle_ns > _LONG_NS, np.zeros(len(every), bool)
    for each in groups.different(process[long]).tolist():
        rows = np.flatnonzero(long & (process == each))
        begin = np.sort(calls["start_ns"][calls["process"] == each])
        until = np.searchsorted(begin, every.end_ns[rows])
        number = until - np.searchsorted(begin, every.start_ns[rows])
        result[rows] = number * _SELDOM_NS < every.idle_ns[rows]
    return result


def _sum_sites(kinds: _Kinds, parts: CpuActivity, pattern: Array) -> LateIdle:
    """Sum the parts of gaps by site; the parts of one gap are adjacent."""
    device, steady, python = (picked(each, parts.gap) for each in kinds)
    each = groups.group(device, pattern, parts.activity)
    length = parts.duration_ns
    steady_ns = np.where(steady, length, 0)
    once = _once_per_gap(each.ids, parts.gap)
    return LateIdle(
        device=device[each.first],
        pattern=pattern[each.first],
        activity=parts.activity[each.first],
        gaps=groups.frequencies(each.ids[once], each.size),
        time_ns=groups.sums(each, length),
        steady_ns=groups.sums(each, steady_ns),
        steady_gaps=groups.frequencies(each.ids[once[steady[once]]], each.size),
        python_ns=groups.sums(each, np.where(python, steady_ns, 0)),
    )


def _together(some: Sequence[LateIdle]) -> LateIdle:
    """Tables of disjoint sets of gaps, summed by site."""
    device, pattern, activity, *sums = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(one, column.name) for one in some)])
        for column in fields(LateIdle)
    )
    each = groups.group(device, pattern, activity)
    keys = (key[each.first] for key in (device, pattern, activity))
    return LateIdle(*keys, *(groups.sums(each, values) for values in sums))


def _once_per_gap(site: Integers, gap: RowNumbers) -> Integers:
    """The row of the first part of each gap at each site; the parts of a gap are adjacent."""
    order = groups.order_of(site)
    return order[groups.opens(site[order]) | groups.opens(gap[order])]


def _python_threads(trace: Trace) -> Mask:
    """True for the main threads of processes whose program is Python."""
    threads, processes = trace.threads, trace.processes
    names = processes.cells("name")
    python = np.array([_PYTHON in str(name or "").rpartition("/")[2].lower() for name in names])
    process = threads["process"]
    main = threads["thread_id"] == processes["process_id"][process]
    result: Mask = main & python.astype(bool)[process]
    return result
