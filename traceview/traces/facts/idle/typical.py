"""The idle time that stands for others like it: what "show in the timeline" opens."""

from __future__ import annotations

import numpy as np

from traceview.base.tables import Mask
from traceview.traces.facts.idle.gaps import Gaps
from traceview.traces.facts.steps.steps import pace, step_of_operations
from traceview.traces.trace import Trace

_ALIKE = 0.1


def typical_gap(trace: Trace, every: Gaps, chosen: Mask) -> int:
    """The row of a typical one of the chosen parts of gaps.

    Half of their time is in shorter ones, and of those as long it is the one in the most usual
    step. The longest one would often be an outlier, or lie behind the last step.
    """
    rows = np.flatnonzero(chosen)
    step, timed = step_of_operations(trace)[every.after[rows]], pace(trace)
    usual = step >= 0
    usual[usual] = ~(timed.warm_up | timed.outlier)[step[usual]]
    if usual.any():
        rows, step = rows[usual], step[usual]
    idle_ns = every.idle_ns[rows]
    order = np.argsort(idle_ns, kind="stable")
    passed = np.cumsum(idle_ns[order])
    middle_ns = idle_ns[order[np.searchsorted(passed, passed[-1] / 2)]]
    alike = np.flatnonzero(np.abs(idle_ns - middle_ns) <= _ALIKE * middle_ns)
    if not usual.any():
        return int(rows[alike[0]])
    off_ns = np.abs(timed.duration_ns - timed.median_ns)[step[alike]]
    return int(rows[alike[np.argmin(off_ns)]])
