"""Which compilation comes again and again inside a loop, so that each step pays for it."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.code import compilers
from traceview.facts.phases.compilation import compilation, compiling, launch_times
from traceview.facts.steps.steps import steps, warm_up_end_ns
from traceview.tables import Integers, Mask
from traceview.trace import Trace, fact

RECURS = 3
"""From this many compilations after warm-up on, they are recompilation."""
RECURS_WITHOUT_STEPS = 6


@fact
def recompilation(trace: Trace) -> Mask:
    """True for the windows of `compilation` that lie in a loop which compiles again and again."""
    result = np.zeros(len(compilation(trace)), bool)
    for process in groups.different(compilation(trace).process).tolist():
        result |= _recurring(trace, process)
    return result


def recompiling(trace: Trace, start: Integers, end: Integers) -> Mask:
    """True for the times [start, end) of which recompilation takes more than half."""
    return compiling(trace, start, end, recompilation(trace))


def _recurring(trace: Trace, process: int) -> Mask:
    """The windows of a process that lie in its loop, if enough of them do, in more than one step.

    Trials of algorithms do not count, nor windows before which nothing was launched.
    """
    windows = compilation(trace)
    start = windows.start_ns
    own = (windows.process == process) & (windows.tool != compilers.CUDNN)
    launched = np.searchsorted(launch_times(trace, process), start[own])
    own[own] = launched > np.append(0, launched[:-1])
    known, warm_up_end = steps(trace), warm_up_end_ns(trace)
    stepped = warm_up_end > np.iinfo(np.int64).min and bool((known.process == process).any())
    warm = own & (start >= warm_up_end) if stepped else own
    many = int(warm.sum()) >= (RECURS if stepped else RECURS_WITHOUT_STEPS)
    if stepped:
        begins = np.sort(known.cpu_start_ns[known.process == process])
        step = np.searchsorted(begins, start[warm], side="right")
        many = many and len(groups.different(step)) > 1
    return warm if many else np.zeros(len(own), bool)
