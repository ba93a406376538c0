"""Whether passes call the same modules, as steps do, or others, as layers do.

Stacks of torch.profiler number the modules (`nn.Module: Linear_3`), and ranges of FSDP name them by
their path (`FSDP::pre_forward (blocks.3)`).
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.facts.ranges.origins import program_ranges, range_name_forms
from traceview.tables import Array, Integers
from traceview.trace import Trace

_LEAST_SAMPLES, _MOST_SHARED = 100, 0.1
_NUMBERED_MODULE = re.compile(r".*[A-Za-z_]\.[\d#]+[._)]")
_ARGUMENTS = ", op_id = "


def call_other_modules(
    trace: Trace, process: int, thread: int, begin: Integers, end: Integers
) -> bool:
    """Whether few modules of a pass, from its `begin` to its `end`, are in the next pass but one.

    The next pass may begin within a module of this one. False where modules were not recorded in
    all passes, or too few of their stacks.
    """
    time, stack = _stacks(trace, thread)
    if len(time) >= _LEAST_SAMPLES and _are_others(time, stack, begin, end):
        return True
    return _are_others(*_named_modules(trace, process), begin, end)


def _are_others(time: Integers, module: Array, begin: Integers, end: Integers) -> bool:
    edges = np.searchsorted(time, begin), np.searchsorted(time, end)
    of_pass = [module[first:last] for first, last in zip(*edges, strict=True)]
    if not all(map(len, of_pass)):
        return False
    pairs = zip(of_pass, of_pass[2:], strict=False)
    again = np.concatenate([np.isin(one, later) for one, later in pairs])
    return bool(np.mean(again) <= _MOST_SHARED)


def _stacks(trace: Trace, thread: int) -> tuple[Integers, Array]:
    """Times and stacks of those samples of a thread whose stack has modules, by time."""
    if "python_samples" not in trace.tables or "python_frames" not in trace.tables:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    of_modules = groups.different(frames["stack"][frames.texts("file").isin([""])])
    rows = np.flatnonzero((samples["thread"] == thread) & groups.isin(samples["stack"], of_modules))
    return samples["time_ns"][rows], samples["stack"][rows]


def _named_modules(trace: Trace, process: int) -> tuple[Integers, Array]:
    """Start and name of the library ranges whose name has a numbered module, by start."""
    ranges = trace.recorded("ranges")
    names = ranges.texts("name")
    mask = range_name_forms(trace).matching(_NUMBERED_MODULE)[names.codes]
    rows = np.flatnonzero(mask & ~program_ranges(trace) & (ranges["process"] == process))
    rows = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
    called = [str(names[row]).partition(_ARGUMENTS)[0] for row in rows.tolist()]
    return ranges["start_ns"][rows], np.unique(called, return_inverse=True)[1]
