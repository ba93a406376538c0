"""What threads did during idle gaps, in which call and range, and where they were before
late launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals, Timed
from traceview.base.records import record
from traceview.base.tables import ColumnRecord
from traceview.base.tables.arrays import Array, Integers, Mask, RowNumbers, constant, row_numbers
from traceview.base.vocabulary.causes import CAUSES, LAUNCH_LATE
from traceview.traces.facts.idle.gaps import Gaps, gaps
from traceview.traces.facts.launches import queue_full
from traceview.traces.facts.operations import ApiCalls, api_calls, calls_by_thread, operations
from traceview.traces.facts.pacing import off_cpu
from traceview.traces.facts.ranges.ranges import open_ranges, range_tree
from traceview.traces.trace import Trace, fact

CPU_CAUSES = tuple(code for code, each in enumerate(CAUSES) if each.on_cpu)
"""Causes on the CPU: the activity of a thread explains the idle time."""
OUTSIDE_CUDA, IN_FLIGHT, QUEUE_FULL, OFF_CPU = -1, -2, -3, -4
"""Activities other than an API call. In flight: launched, and on its way to the GPU. Off the CPU:
waiting or preempted, by the recorded thread scheduling."""
_AT_ONCE = 1 << 16
"""Idle times that are cut together, about: a million of them are four million pieces."""


@record
class CpuActivity(Timed, ColumnRecord):
    """Idle times, cut wherever the activity of the thread that held the work up changes.

    `row` is the row in gaps, `range` the row in the range tree (−1: none), `activity` the code of
    the API call's name in api_calls or one of the constants above. The pieces of a row add up to it
    exactly.
    """

    row: RowNumbers
    start_ns: Integers
    end_ns: Integers
    range: RowNumbers
    activity: RowNumbers


def cpu_activity(trace: Trace, rows: Integers, of: Gaps | None = None) -> Iterator[CpuActivity]:
    """Yield the pieces of those idle times among `rows` whose cause is on the CPU, in batches.

    A batch is of one device and thread, and holds all that these have of a gap. `of` are the gaps
    that `rows` are rows in, if not those of the selection.
    """
    every = of or gaps(trace)
    chosen = row_numbers(rows[np.isin(every.cause[rows], CPU_CAUSES)])
    for of_device in groups.rows_of(every.device[chosen]).values():
        on_device = chosen[of_device]
        for thread, own in groups.rows_of(every.thread[on_device]).items():
            yield from _of_thread(trace, every, thread, on_device[own])


def _of_thread(trace: Trace, gaps: Gaps, thread: int, rows: RowNumbers) -> Iterator[CpuActivity]:
    if not groups.in_order(gaps.start_ns[rows]):
        rows = rows[np.argsort(gaps.start_ns[rows], kind="stable")]
    process, gap = int(trace.threads["process"][thread]), gaps.gap[rows]
    call_rows = calls_by_thread(trace).get(thread, groups.NO_ROWS)
    call, calling = outermost_calls(api_calls(trace), call_rows)
    names = trace.recorded("api_calls").texts("name").codes
    held = queue_full(trace).by_thread.get(thread, intervals.EMPTY)
    doing = ThreadTime(calling, names[call], held, off_cpu(trace, thread))
    window = Intervals(gaps.start_ns[rows], gaps.end_ns[rows])
    # Times in the window at which ranges of the process begin or end.
    #
    # Those of all threads count: a thread without a range of its own works in another thread's.
    nesting = range_tree(trace).nesting
    threads = np.flatnonzero(trace.threads["process"] == process).tolist()
    edges = intervals.ascending(
        np.concatenate([nesting.edges(thread, window) for thread in threads])
    )
    # Where ranges of a thread overlap without nesting, each look-up walks all of them.
    at_once = len(rows) if range_tree(trace).nesting.walked else _AT_ONCE
    first = groups.different(np.searchsorted(gap, gap[::at_once]))
    for some in np.split(rows, first[1:]):
        idle = Intervals(gaps.start_ns[some], gaps.end_ns[some])
        piece = cut(idle, gaps.queued_ns[some], doing, edges)
        one_thread, one_process = (
            constant(row, len(piece.row), np.int32) for row in (thread, process)
        )
        ranges = open_ranges(trace, one_thread, one_process, piece.start)
        ranges[piece.activity == IN_FLIGHT] = -1
        yield CpuActivity(some[piece.row], piece.start, piece.end, ranges, piece.activity)


class ThreadTime(NamedTuple):
    """Activities of one thread over time.

    `call` are the outermost API calls and `name` the codes of their names; `queue_full` is the time
    within these calls that they waited for room in the launch queue; `off_cpu` is time off the CPU.
    The intervals of each activity are disjoint and in order.
    """

    call: Intervals
    name: RowNumbers
    queue_full: Intervals
    off_cpu: Intervals


class CpuPieces(NamedTuple):
    """Pieces of the idle times given to `cut`; `row` is the place of the piece's among these."""

    row: RowNumbers
    start: Integers
    end: Integers
    activity: RowNumbers


def cut(idle: Intervals, queued: Integers, thread: ThreadTime, range_edges: Integers) -> CpuPieces:
    """Idle times of one device, given in order, cut by what their thread did.

    From `queued` on, the work of each is in flight. `range_edges` are times at which ranges begin
    or end: there it is cut, too.
    """
    changes = [*thread.call, *thread.queue_full, *thread.off_cpu, range_edges]
    changes = [each[intervals.inside(idle, each)] for each in changes]
    queued = np.clip(queued, idle.start, idle.end)
    # A stable sort merges what is in order.
    times = np.sort(np.concatenate([*idle, queued, *changes]), kind="stable")
    start, end = times[:-1], times[1:]
    kept = (start < end) & intervals.inside(idle, start)
    start, end = start[kept], end[kept]
    row = row_numbers(np.searchsorted(idle.start, start, side="right") - 1)
    activity = constant(OUTSIDE_CUDA, len(start), np.int32).copy()
    activity[intervals.inside(thread.off_cpu, start)] = OFF_CPU
    calling = intervals.inside(thread.call, start)
    call = np.searchsorted(thread.call.start, start[calling], side="right") - 1
    activity[calling] = thread.name[call]
    activity[intervals.inside(thread.queue_full, start)] = QUEUE_FULL
    activity[start >= queued[row]] = IN_FLIGHT
    return CpuPieces(row, start, end, activity)


def outermost_calls(calls: ApiCalls, made: RowNumbers) -> tuple[RowNumbers, Intervals]:
    """Rows and times of a thread's calls that lie inside no other; `made` are the rows of all.

    Where two calls merely overlap, as in damaged recordings, the earlier one is cut where the
    later one begins.
    """
    start, end = calls.start_ns, calls.end_ns
    outermost = intervals.outermost(start, end, made)
    if outermost is None:
        return outermost_calls(calls, made[np.lexsort((-end[made], start[made]))])
    return outermost


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
    `other_work` is True where the CPU spent most of that time outside CUDA in pauses too long for
    launches, so that it was busy with something else, there and at sites with half of the time or
    more.
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
    part that a longer run repeats, `long_ns` the part of that in gaps with more than ELSEWHERE_NS
    of it, `python_ns` the part of `steady_ns` on the main thread of a Python process.
    """

    device: Array
    pattern: Array
    activity: Array
    gaps: Integers
    time_ns: Integers
    steady_ns: Integers
    long_ns: Integers
    python_ns: Integers

    def longest(self, device: int, *, once: bool = False) -> LateSite | None:
        """The site with most steady idle time of a device; None where there is none.

        With `once`, that of its start counts, too. Time in which work was already in flight is not
        a site.
        """
        sites = (self.activity != IN_FLIGHT) & (self.device == device)
        steady = np.where(sites, self.time_ns if once else self.steady_ns, 0)
        if not steady.any():
            return None
        row = int(np.argmax(steady))
        time, activity = int(steady[row]), int(self.activity[row])
        outside = activity == OUTSIDE_CUDA
        # A public loop of 34 small kernels per step loads data for 22 % of this time; another that
        # works on the CPU after its batches does so for 53 %.
        # One pause of 5 ms per step is 62 % beside a hundred gaps between launches.
        works = (self.activity == OUTSIDE_CUDA) & (2 * self.long_ns > steady)
        mostly = 2 * int(steady[works].sum()) > int(steady.sum())
        return LateSite(
            pattern=int(self.pattern[row]),
            activity=activity,
            steady_ns=time,
            python=outside and 2 * int(self.python_ns[row]) > time,
            other_work=mostly and bool(works[row]),
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
        of_gap = groups.group(sites.ids, gap)
        spent_ns = groups.sums(of_gap, steady_ns)
        long_ns = np.where(spent_ns > ELSEWHERE_NS, spent_ns, 0)
        steady_ns = groups.sums(sites, steady_ns)
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
                long_ns=groups.added(sites.ids[of_gap.first], long_ns, sites.size),
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
