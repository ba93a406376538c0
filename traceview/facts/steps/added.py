"""The steps that `traceview record` adds to a program, used where it marks none of its own.

The recorder begins a step before it can know whether it is one; a step is complete if an optimizer
ran in it. Where the program has steps of its own, the added ones are removed, since they would
cross its ranges. The other added ranges stay as labels.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.ranges.origins import added_ranges, candidates_for_steps
from traceview.facts.steps.series import is_epoch
from traceview.facts.steps.sources import steps_source
from traceview.facts.steps.steps import steps
from traceview.tables import NULL, Mask
from traceview.trace import Trace

_OPTIMIZER = "optimizer"


def with_added_steps(trace: Trace) -> Trace:
    """The trace without added steps that are incomplete or beside steps of the program's own."""
    step = added_ranges(trace) & candidates_for_steps(trace)
    if not step.any():
        return trace
    without = _without(trace, step)
    if _marks_steps(without):
        return without
    return _without(trace, step & ~_complete(trace, step))


def _marks_steps(trace: Trace) -> bool:
    """Whether the program has ranges that are steps and not only epochs."""
    names = steps(trace).names
    used = groups.different(names.codes)
    return steps_source(trace) == "user-ranges" and not all(
        is_epoch(str(names.values[code])) for code in used[used >= 0]
    )


def _without(trace: Trace, rows: Mask) -> Trace:
    """The trace without some of its ranges."""
    if not rows.any():
        return trace
    return trace.with_ranges(trace.recorded("ranges").take(~rows))


def _complete(trace: Trace, step: Mask) -> Mask:
    """True for the added steps that ended after an optimizer had worked in them."""
    ranges = trace.recorded("ranges")
    start, end, process = ranges["start_ns"], ranges["end_ns"], ranges["process"]
    optimizer = added_ranges(trace) & ranges.texts("name").isin([_OPTIMIZER])
    result = np.zeros(len(ranges), bool)
    for number in groups.different(process[step]):
        rows = np.flatnonzero(step & (process == number) & (end != NULL))
        worked = np.sort(start[optimizer & (process == number)])
        result[rows] = np.searchsorted(worked, end[rows]) > np.searchsorted(worked, start[rows])
    return result
