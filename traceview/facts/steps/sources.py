"""What the steps of a trace are taken from."""

from __future__ import annotations

import numpy as np

from traceview.facts.operations.operations import operations
from traceview.facts.ranges.origins import StepsSource, source_of
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.steps.steps import steps
from traceview.trace import Trace, fact


@fact
def steps_source(trace: Trace) -> StepsSource:
    """What the steps of a trace are taken from."""
    all_steps = steps(trace)
    # Without any GPU work recorded, steps of the CPU are steps as well.
    working = np.flatnonzero((all_steps.operations > 0) | (not len(operations(trace))))
    if not len(working):
        return "none"
    from_ranges = trace.recorded("ranges")
    row = int(range_tree(trace).row[all_steps.range[working[0]]])
    return source_of(from_ranges.texts("domain")[row], from_ranges.texts("name")[row] or "")
