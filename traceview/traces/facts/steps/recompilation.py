"""Which compilation comes again and again inside a loop, so that each step pays for it."""

from __future__ import annotations

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.tables import Integers, Mask
from traceview.traces.facts import code, python_events
from traceview.traces.facts.compilation import (
    compilation,
    compiles_for_the_first_time,
    compiling,
    launch_times,
)
from traceview.traces.facts.steps.steps import steps, warm_up_end_ns
from traceview.traces.trace import Trace, fact

RECURS = 3
"""From this many compilations after warm-up on, they are recompilation."""
_RECURS_AS_TOLD = 6
_MOST_STEPS = 0.5
"""In this part of the steps, and that many, torch.compile recompiles each step; else it learns
sizes that vary, and is done."""


@fact
def recompilation(trace: Trace) -> Mask:
    """True for the windows of `compilation` that lie in a loop which compiles again and again."""
    windows, known, warm_up_end = compilation(trace), steps(trace), warm_up_end_ns(trace)
    start, result = windows.start_ns, np.zeros(len(windows), bool)
    for process in groups.different(windows.process).tolist():
        # Trials of algorithms do not count, nor windows before which nothing was launched.
        own = (windows.process == process) & (windows.tool != code.CUDNN)
        launched = np.searchsorted(launch_times(trace, process), start[own])
        own[own] = launched > np.append(0, launched[:-1])
        loop = known.process == process
        begins = np.sort(known.cpu_start_ns[loop])
        # Without steps there is no loop, and each window may compile something else, as those do
        # that come after the last step.
        if warm_up_end > np.iinfo(np.int64).min and len(begins):
            warm = own & (start >= warm_up_end) & (start < known.cpu_end_ns[loop].max())
            warm &= ~compiles_for_the_first_time(trace)
            step = np.searchsorted(begins, start[warm], side="right")
            # Enough of them, in more than one step.
            if int(warm.sum()) >= RECURS and len(groups.different(step)) > 1:
                result |= warm
        # Steps that do little else are one window, and never warm.
        result[own] |= (
            intervals.overlap(
                _in_each_step(trace, process, begins), start[own], windows.end_ns[own]
            )
            > 0
        )
    return result


def _in_each_step(trace: Trace, process: int, begins: Integers) -> Intervals:
    """When torch.compile recompiled, as it said, if it did so in most steps since it began to."""
    events = python_events.events_of(trace, python_events.RECOMPILATION)
    events = events.take(events["process"] == process)
    step = np.searchsorted(begins, events["start_ns"], side="right")
    hit = groups.different(step[step > 0])
    enough = len(hit) >= max(_RECURS_AS_TOLD, _MOST_STEPS * (len(begins) + 1 - hit[:1].sum()))
    return intervals.covered(events) if enough else intervals.EMPTY


def recompiling(trace: Trace, start: Integers, end: Integers) -> Mask:
    """True for the times [start, end) of which recompilation takes more than half."""
    return compiling(trace, start, end, recompilation(trace))
