"""Idle time before late launches, by where the launching thread was meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.idle.causes import LAUNCH_LATE
from traceview.facts.idle.cpu_activity import IN_FLIGHT, OUTSIDE_CUDA, CpuActivity, cpu_activity
from traceview.facts.idle.gaps import Gaps, gaps
from traceview.facts.ranges.ranges import range_tree
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

ELSEWHERE_NS = 200_000
"""The Python of one torch operation takes some 10 to 50 µs: a gap that holds more than this of
work outside CUDA is not about how costly launches are."""
_PYTHON = "python"


@dataclass(frozen=True)
class LateSite:
    """Where a CPU spent most of the steady launch-late idle time of a GPU.

    `pattern` is a row of the range tree's patterns, −1 outside any range, and `activity` as in
    CpuActivity. `python` is True for the main thread of a Python process outside CUDA.
    `other_work` is True where the CPU was away so long per gap that launches are not what it was
    busy with.
    """

    pattern: int
    activity: int
    steady_ns: int
    python: bool
    other_work: bool


@dataclass(frozen=True)
class LateIdle:
    """Launch-late idle time, one row per device, range pattern and CPU activity.

    `device` is a row in devices; `time_ns` adds up to all launch-late idle time. `steady_ns` is the
    part that a longer run repeats, `steady_gaps` the gaps with some of that, `python_ns` the part
    of `steady_ns` on the main thread of a Python process.
    """

    device: Array
    pattern: Integers
    activity: Integers
    gaps: Integers
    time_ns: Integers
    steady_ns: Integers
    steady_gaps: Integers
    python_ns: Integers

    def longest(self, device: int) -> LateSite | None:
        """The site with most steady idle time of a device; None where there is none.

        Time in which work was already in flight is no site.
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


@fact
def late_idle(trace: Trace) -> LateIdle:
    every = gaps(trace)
    parts = cpu_activity(trace).of_gaps(every.cause == LAUNCH_LATE)
    tree = range_tree(trace)
    pattern = tree.pattern_of_paths(tree.path_of_ranges(parts.range))
    return sum_sites(every, parts, pattern, _python_threads(trace))


def sum_sites(gaps: Gaps, parts: CpuActivity, pattern: Integers, python: Mask) -> LateIdle:
    """Add up parts of launch-late gaps by site. `python` is a mask over threads."""
    each = groups.group(gaps.device[parts.gap], pattern, parts.activity)
    steady = ~gaps.one_time[parts.gap]
    time = np.where(steady, parts.duration_ns, 0)
    return LateIdle(
        device=gaps.device[parts.gap[each.first]],
        pattern=pattern[each.first],
        activity=parts.activity[each.first],
        gaps=_count_gaps(each.ids, parts.gap, each.size),
        time_ns=groups.sums(each, parts.duration_ns),
        steady_ns=groups.sums(each, time),
        steady_gaps=_count_gaps(each.ids[steady], parts.gap[steady], each.size),
        python_ns=groups.sums(each, np.where(python[gaps.thread[parts.gap]], time, 0)),
    )


def _count_gaps(ids: Integers, gap: Integers, size: int) -> Integers:
    """How many different gaps each group holds parts of."""
    pairs = groups.group(ids, gap)
    return np.bincount(ids[pairs.first], minlength=size).astype(np.int64)


def _python_threads(trace: Trace) -> Mask:
    """True for the main threads of processes whose program is Python."""
    threads, processes = trace.threads, trace.processes
    names = processes.cells("name")
    python = np.array([_PYTHON in str(name or "").rpartition("/")[2].lower() for name in names])
    process = threads["process"]
    main = threads["thread_id"] == processes["process_id"][process]
    result: Mask = main & python.astype(bool)[process]
    return result
