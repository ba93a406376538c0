"""Idle time in few calls or pauses of the CPU that are long for once: accidents, not the rule.

Fewer launches, or less CPU work between them, would not help there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.lines import idle_samples
from traceview.facts.operations.cuda_api import api_calls
from traceview.facts.steps.steps import pace
from traceview.findings import severity_of
from traceview.records import record
from traceview.tables import Array, Mask
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import GRAPH_LAUNCH, LAUNCH_LATE

LONG = 10
"""Times the median. Launch calls of one program vary by a factor of 2 or 3 (4 to 15 µs on an H200's
host); those that block take 0.2 to 40 ms (pytorch/pytorch#162466)."""
LEAST_NS = 200_000
"""Shorter ones are in the noise of a host, such as a wake-up of the thread."""
MOST, MOST_OF_STEPS = 3, 0.1
"""What comes more often than that, or in more than this part of the steps where there are some, is
a habit. One is none, unless there is one step only."""
OTHERS = 4
"""For each long one there are at least so many others: a median of fewer says nothing."""


@record
class Accident:
    """Steady idle time of a GPU (row in devices) with one cause, in few long calls or pauses.

    `gaps` are rows of gaps. `calls` are rows of api_calls, none for pauses outside of calls.
    `usual_ns` is the median of such a call, or of the other idle times of the cause; 0 where there
    are too few calls of the name.
    """

    device: int
    cause: int
    gaps: Array
    calls: Array
    usual_ns: int


def of_cause(trace: Trace, device: int, cause: int) -> list[Accident]:
    return [each for each in _all(trace) if (each.device, each.cause) == (device, cause)]


def in_accidents(trace: Trace) -> Mask:
    """True for the rows of gaps that are in accidents."""
    result = np.zeros(len(gaps(trace)), bool)
    for accident in _all(trace):
        result[accident.gaps] = True
    return result


@fact
def _all(trace: Trace) -> tuple[Accident, ...]:
    return tuple(
        accident
        for device in steady_spans_ns(trace)
        for cause in (LAUNCH_LATE, GRAPH_LAUNCH)
        for accident in _accidents(trace, device, cause)
    )


def _most(steps: int) -> float:
    if not steps:
        return MOST
    return max(MOST_OF_STEPS * steps, 1 if steps > 1 else 0)


def _accidents(trace: Trace, device: int, cause: int) -> Iterator[Accident]:
    every, calls = gaps(trace), api_calls(trace)
    own = np.flatnonzero((every.cause == cause) & (every.device == device) & ~every.one_time)
    if not len(own):
        return
    usual_ns = round(float(np.median(every.idle_ns[own])))
    long = own[every.idle_ns[own] >= max(LONG * usual_ns, LEAST_NS)]
    names = trace.recorded("api_calls").texts("name").codes
    call = every.within[long]
    sampled = np.zeros(len(every), bool)
    sampled[idle_samples(trace).gap] = True
    steps = int(np.count_nonzero(pace(trace).timed & ~pace(trace).warm_up))
    of_name = np.where(call >= 0, names[call], -1) if len(names) else np.full(len(long), -1)
    for name, places in groups.rows_of(of_name).items():
        rows, within = long[places], call[places]
        usual = usual_ns
        if name >= 0:
            alike = calls.duration_ns[names == name]
            usual = round(float(np.median(alike))) if len(alike) > OTHERS * len(rows) else 0
            took = calls.duration_ns[within]
            kept = (took >= max(LONG * usual, LEAST_NS)) & (2 * took >= every.idle_ns[rows])
        else:
            # Where samples show the line, that says more.
            kept = ~sampled[rows]
        rows, within = rows[kept], within[kept]
        # What else held these gaps up belongs to it, as the first launch of a new graph.
        rows = own[groups.isin(every.gap[own], every.gap[rows])]
        few = len(within) <= _most(steps) and len(own) > OTHERS * len(within)
        lost_ns, span_ns = int(every.idle_ns[rows].sum()), steady_spans_ns(trace)[device]
        if len(rows) and few and severity_of(lost_ns, span_ns) in ("high", "medium"):
            yield Accident(device, cause, rows, within[within >= 0], usual)
