"""Idle time before late launches, by where the launching thread was meanwhile."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from traceview import groups
from traceview.facts.idle.cpu_activity import IN_FLIGHT, OUTSIDE_CUDA, cpu_activity
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.ranges import range_tree
from traceview.records import record
from traceview.tables import Array, Integers, Mask, constant
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import LAUNCH_LATE

ELSEWHERE_NS = 200_000
"""The Python of one torch operation takes some 10 to 50 µs: a gap that holds more than this of
work outside CUDA is not due to the cost of launches."""
# No launch takes so long, and a loop over small operations calls CUDA more often.
_LONG_NS, _SELDOM_NS = 10_000_000, 1_000_000


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


@fact
def late_idle(trace: Trace) -> LateIdle:
    return late_idle_in(trace, np.flatnonzero(gaps(trace).cause == LAUNCH_LATE))


def late_idle_in(trace: Trace, rows: Integers) -> LateIdle:
    """The same of some rows of gaps."""
    every, tree = gaps(trace), range_tree(trace)
    threads, processes = trace.threads, trace.processes
    # Main threads of processes whose program is Python.
    python = np.array(
        ["python" in str(name or "").rpartition("/")[2].lower() for name in processes.cells("name")]
    ).astype(bool)[threads["process"]]
    python &= threads["thread_id"] == processes["process_id"][threads["process"]]
    steady, some = ~every.one_time, []
    for pieces in cpu_activity(trace, rows):
        # All pieces of a batch are of one device and thread.
        row = pieces.row[0]
        thread, often = int(every.thread[row]), steady[pieces.row]
        patterns = tree.pattern_of_paths(tree.path_of_ranges(pieces.range))
        sites = groups.group(patterns, pieces.activity)
        gap, steady_ns = every.gap[pieces.row], np.where(often, pieces.duration_ns, 0)
        steady_ns = groups.sums(sites, steady_ns)
        once = groups.sums(sites, (~often).astype(np.int64)) > 0
        # Thread −1 is that of gaps whose launch is not recorded.
        in_python = thread >= 0 and python[thread]
        some.append(
            LateIdle(
                device=constant(every.device[row], sites.size, np.int64),
                pattern=patterns[sites.first],
                activity=pieces.activity[sites.first],
                gaps=groups.distinct(sites, gap),
                time_ns=groups.sums(sites, pieces.duration_ns),
                steady_ns=steady_ns,
                steady_gaps=groups.distinct(sites, np.where(often, gap, -1)) - once,
                python_ns=steady_ns if in_python else 0 * steady_ns,
            )
        )
    device, pattern, activity, *sums = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(one, column.name) for one in some)])
        for column in fields(LateIdle)
    )
    by_site = groups.group(device, pattern, activity)
    keys = (key[by_site.first] for key in (device, pattern, activity))
    return LateIdle(*keys, *(groups.sums(by_site, values) for values in sums))


@fact
def seldom_launches(trace: Trace) -> Mask:
    """True for the long gaps in which the process that ends them seldom calls CUDA."""
    every, calls = gaps(trace), trace.recorded("api_calls")
    process = operations(trace).process[every.after]
    long, result = every.idle_ns > _LONG_NS, np.zeros(len(every), bool)
    for number in groups.different(process[long]).tolist():
        rows = np.flatnonzero(long & (process == number))
        begin = np.sort(calls["start_ns"][calls["process"] == number])
        until = np.searchsorted(begin, every.end_ns[rows])
        made = until - np.searchsorted(begin, every.start_ns[rows])
        result[rows] = made * _SELDOM_NS < every.idle_ns[rows]
    return result
