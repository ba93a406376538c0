"""Loops that something outside of CUDA paces: a stream of frames, a rate limiter, another process.

Each pass of such a loop ends in a wait for the next turn, and what proves it is that the waits make
up for what the passes differ by: from wake to wake passes differ far less than the work in them. A
sleep of fixed length, or a wait for a process that works beside, leaves them as different. Where
the GPU works during the waits the thread may wait for it.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, RowNumbers, row_numbers
from traceview.base.vocabulary.activities import ACTIVITIES, PROCESS, SLEEP
from traceview.traces.facts.operations import CallKind, api_calls, operations
from traceview.traces.trace import Trace, fact_without_ranges

_SLEEPS, _WAITS = (re.compile(ACTIVITIES[doing].os_calls) for doing in (SLEEP, PROCESS))
_OWN_WORKERS = re.compile(r"/multiprocessing/|/torch/utils/data/|/concurrent/futures/")
_LEAST_NS, _LEAST_PASSES = 200_000, 20
_STEADY, _MADE_UP_FOR = 0.05, 0.5
"""Passes differ by at most this part of their period, and of what the work in them differs by."""
_LEAST_OF_PASS, _MOST_BUSY = 0.1, 0.5


@record
class PacedLoop:
    """A loop of a thread: `api` waits `waited_ns` in front of each `call`, a row of api_calls.

    Passes follow each other at `period_ns`, the median.
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
    """The paced loops of the threads that launch, as far as calls of the OS prove them."""
    threads = groups.different(trace.recorded("os_calls")["thread"]).tolist()
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
    waits, calls = trace.recorded("os_calls"), api_calls(trace)
    names = waits.texts("name")
    own = np.flatnonzero(calls.thread == thread)
    own = own[np.argsort(calls.start_ns[own], kind="stable")]
    rows = (waits["thread"] == thread) & (waits.duration_ns >= _LEAST_NS)
    awaits = names.matching(_SLEEPS.fullmatch)
    rows &= awaits if _may_have_workers(trace) else awaits | names.matching(_WAITS.fullmatch)
    # Within a call of CUDA the thread waits for the GPU.
    rows &= ~intervals.inside(intervals.covered(calls, own), waits["start_ns"])
    launches = calls.start_ns[own[calls.does[own] == CallKind.LAUNCH]]
    # The longest wait between two launches.
    chosen = np.flatnonzero(rows)
    turn = np.searchsorted(launches, waits["start_ns"][chosen])
    order = np.lexsort((-waits.duration_ns[chosen], turn))
    chosen = chosen[order[groups.opens(turn[order])]] if len(chosen) else chosen
    wake_ns, waited_ns = waits["end_ns"][chosen], waits.duration_ns[chosen]
    following = np.searchsorted(calls.start_ns[own], wake_ns)
    known = following < len(own)
    if np.count_nonzero(known) < _LEAST_PASSES:
        return None
    pass_ns = np.diff(wake_ns)
    period_ns, differ_ns = int(np.median(pass_ns)), _spread(pass_ns)
    worked = intervals.intersection(
        intervals.covered(operations(trace)), intervals.covered(waits, chosen)
    )
    steady = differ_ns < min(_STEADY * period_ns, _MADE_UP_FOR * _spread(pass_ns - waited_ns[1:]))
    waits_much = waited_ns[1:].sum() >= _LEAST_OF_PASS * pass_ns.sum()
    if not steady or not waits_much or worked.total() > _MOST_BUSY * waited_ns.sum():
        return None
    call = row_numbers(own[following[known]])
    return PacedLoop(thread, str(names[int(chosen[0])]), call, waited_ns[known], period_ns)


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
