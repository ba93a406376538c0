"""Loops that something outside of CUDA paces: a stream of frames, a rate limiter, another process.

Each pass of such a loop ends in a wait for the next turn, and what proves it is that the waits make
up for what the passes differ by: from wake to wake passes differ far less than the work in them. A
sleep of fixed length, or a wait for a process that works beside, leaves them as different. Where
the GPU works during the waits the thread may wait for it. Where no calls of the OS were recorded,
scheduling shows the waits as time off the CPU: not if other threads work during most of it.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, Texts, row_numbers
from traceview.base.vocabulary.activities import ACTIVITIES, PROCESS, SLEEP
from traceview.traces.facts.operations import CallKind, api_calls, operations
from traceview.traces.trace import Trace, fact_without_ranges

_SLEEPS, _WAITS = (re.compile(ACTIVITIES[doing].os_calls) for doing in (SLEEP, PROCESS))
_OWN_WORKERS = re.compile(r"/multiprocessing/|/torch/utils/data/|/concurrent/futures/")
_LEAST_NS, _LEAST_PASSES = 200_000, 20
_STEADY, _MADE_UP_FOR = 0.08, 0.5
"""Passes differ by at most this part of their period, and of what the work in them differs by. Two
public recordings of videos with 25 frames per second differ by 3 and 7 %."""
_LEAST_OF_PASS, _MOST_BUSY = 0.1, 0.5


@record
class PacedLoop:
    """A loop of a thread: `api` waits `waited_ns` in front of each `call`, a row of api_calls.

    `api` is empty where only scheduling shows the waits. Passes follow each other at `period_ns`,
    the median.
    """

    thread: int
    api: str
    call: RowNumbers
    waited_ns: Integers
    period_ns: int

    @property
    def usual_wait_ns(self) -> int:
        return int(np.median(self.waited_ns))


@fact_without_ranges
def paced_loops(trace: Trace) -> tuple[PacedLoop, ...]:
    """The paced loops of the threads that launch, as far as calls of the OS prove them.

    Without a recording of these, as far as time off the CPU does.
    """
    calls, runs = trace.recorded("os_calls"), trace.recorded("thread_runs")
    threads = groups.different((calls if len(calls) else runs)["thread"]).tolist()
    return tuple(loop for each in threads if (loop := _paced(trace, each)))


def paced(trace: Trace, device: int) -> PacedLoop | None:
    """The paced loop of the thread that launches most of the work of a device; None without one."""
    ops, loops = operations(trace), paced_loops(trace)
    call = ops.call[(ops.device == device) & ops.launched] if loops else groups.NO_ROWS
    if not len(call):
        return None
    launches = np.bincount(api_calls(trace).thread[call])
    return next((loop for loop in loops if loop.thread == np.argmax(launches)), None)


def _paced(trace: Trace, thread: int) -> PacedLoop | None:
    calls = api_calls(trace)
    own = np.flatnonzero(calls.thread == thread)
    own = own[np.argsort(calls.start_ns[own], kind="stable")]
    launches = calls.start_ns[own[calls.does[own] == CallKind.LAUNCH]]
    if len(launches) < _LEAST_PASSES:
        return None
    waits, names = _waits(trace, thread)
    # Within a call of CUDA the thread waits for the GPU.
    long: Mask = waits.length >= _LEAST_NS
    chosen = np.flatnonzero(long & ~intervals.inside(intervals.covered(calls, own), waits.start))
    # The longest wait between two launches.
    turn = np.searchsorted(launches, waits.start[chosen])
    order = np.lexsort((-waits.length[chosen], turn))
    chosen = chosen[order[groups.opens(turn[order])]] if len(chosen) else chosen
    waits = Intervals(waits.start[chosen], waits.end[chosen])
    waited_ns, pass_ns = waits.length, np.diff(waits.end)
    following = np.searchsorted(calls.start_ns[own], waits.end)
    known = following < len(own)
    if np.count_nonzero(known) < _LEAST_PASSES:
        return None
    period_ns, differ_ns = int(np.median(pass_ns)), _spread(pass_ns)
    steady = differ_ns < min(_STEADY * period_ns, _MADE_UP_FOR * _spread(pass_ns - waited_ns[1:]))
    waits_much = waited_ns[1:].sum() >= _LEAST_OF_PASS * pass_ns.sum()
    if not steady or not waits_much or _works_meanwhile(trace, thread, waits, names is None):
        return None
    api = str(names[int(chosen[0])]) if names else ""
    return PacedLoop(thread, api, row_numbers(own[following[known]]), waited_ns[known], period_ns)


def _waits(trace: Trace, thread: int) -> tuple[Intervals, Texts | None]:
    """The waits of a thread for what may pace it, in order, and their calls, where recorded."""
    calls, workers = trace.recorded("os_calls"), _may_have_workers(trace)
    if not len(calls):
        return (intervals.EMPTY if workers else off_cpu(trace, thread)), None
    names = calls.texts("name")
    awaits = names.matching(_SLEEPS.fullmatch)
    awaits = awaits if workers else awaits | names.matching(_WAITS.fullmatch)
    rows = np.flatnonzero(awaits & (calls["thread"] == thread))
    return Intervals(calls["start_ns"][rows], calls["end_ns"][rows]), names.take(rows)


def off_cpu(trace: Trace, thread: int) -> Intervals:
    """Time in which the thread was off the CPU, where thread scheduling was recorded."""
    runs = trace.recorded("thread_runs")
    own: Mask = runs["thread"] == thread
    return intervals.gaps(intervals.covered(runs, own))


def _works_meanwhile(trace: Trace, thread: int, waits: Intervals, for_any: bool) -> bool:
    """Whether the GPU works during most of these waits; where they are `for_any`, other threads."""
    busy, runs = [intervals.covered(operations(trace))], trace.recorded("thread_runs")
    if for_any:
        busy.append(intervals.covered(runs, np.flatnonzero(runs["thread"] != thread)))
    most_ns = _MOST_BUSY * waits.total()
    return any(intervals.intersection(each, waits).total() > most_ns for each in busy)


def _may_have_workers(trace: Trace) -> bool:
    """Whether what a thread polls may be processes that the program started to load its data."""
    files = trace.recorded("python_frames").texts("file")
    if len(files):
        return bool(files.matching(_OWN_WORKERS.search).any())
    return any("python" in str(name) for name in trace.processes.texts("name").decode())


def _spread(values: Array) -> float:
    """Half the distance from the 10th to the 90th percentile."""
    low, high = np.quantile(values, (0.1, 0.9))
    return float(high - low) / 2
