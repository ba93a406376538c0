"""Whether the Python stacks of passes tell layers from steps.

torch.profiler numbers the modules that are called (`nn.Module: Linear_3`), so the stacks of two
layers differ, and those of two steps are the same.
"""

from __future__ import annotations

import numpy as np

from traceview.tables import Integers
from traceview.trace import Trace

_LEAST_SAMPLES, _MOST_SHARED = 100, 0.1


def call_other_modules(trace: Trace, thread: int, begin: Integers, end: Integers) -> bool:
    """Whether the stacks of each pass, from its `begin` to its `end`, are not in the next but one.

    The next one may begin within a module of this one. False where modules were not recorded in
    all passes, or too few of their stacks.
    """
    if "python_samples" not in trace.tables or "python_frames" not in trace.tables:
        return False
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    of_modules = np.unique(frames["stack"][frames.texts("file").isin([""])])
    rows = np.flatnonzero((samples["thread"] == thread) & np.isin(samples["stack"], of_modules))
    time, stack = samples["time_ns"][rows], samples["stack"][rows]
    edges = np.searchsorted(time, begin), np.searchsorted(time, end)
    of_pass = [stack[first:last] for first, last in zip(*edges, strict=True)]
    if len(stack) < _LEAST_SAMPLES or not all(map(len, of_pass)):
        return False
    pairs = zip(of_pass, of_pass[2:], strict=False)
    again = np.concatenate([np.isin(one, later) for one, later in pairs])
    return bool(np.mean(again) <= _MOST_SHARED)
