"""What the profiler took from the GPU work that was recorded.

It counts in the processes that have GPU work, from the first of it to the last and after set-up:
a compiler that starts beside them delays none of it, nor does what the profiler itself sets up
before or writes out after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups, intervals
from traceview.facts.idle.gaps import profilers_own
from traceview.facts.operations.operations import operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.tables import NULL, Integers
from traceview.trace import Trace, fact


@dataclass(frozen=True)
class Cost:
    """Time that the profiler took, of how much, and what most of it was for.

    `after_set_up` is False where no set-up is known, so that all GPU work counts.
    """

    lost_ns: int
    span_ns: int
    mostly: str
    after_set_up: bool


@fact
def profiler_cost(trace: Trace) -> Cost | None:
    """None where it took nothing."""
    overheads = trace.recorded("overheads")
    mine = overheads.take(profilers_own(trace))
    first, last = _working(trace)
    process = np.where(mine["process"] == NULL, len(trace.processes), mine["process"])
    start, end = (
        np.clip(mine[name], first[process], last[process]) for name in ("start_ns", "end_ns")
    )
    lost = intervals.union(start, end).total()
    if not lost:
        return None
    names = mine.texts("name")
    each = groups.group(names.codes)
    mostly = int(each.first[np.argmax(groups.sums(each, end - start))])
    span = int(last[-1] - first[-1])
    return Cost(lost, span, str(names[mostly]), warm_up_end_ns(trace) > np.iinfo(np.int64).min)


def _working(trace: Trace) -> tuple[Integers, Integers]:
    """From when to when each process has GPU work after set-up, and in the last row all of them."""
    done, many = operations(trace), len(trace.processes)
    never = np.iinfo(np.int64)
    first, last = np.full(many + 1, never.max), np.zeros(many + 1, np.int64)
    np.minimum.at(first, done.process, done.start_ns)
    np.maximum.at(last, done.process, done.end_ns)
    first[-1], last[-1] = first.min(), last.max()
    last = np.maximum(last, warm_up_end_ns(trace))
    return np.clip(first, warm_up_end_ns(trace), last), last
