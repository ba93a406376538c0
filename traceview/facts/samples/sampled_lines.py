"""The line of the program at which Python samples show a thread during its waits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.samples.stack_lines import stack_lines
from traceview.tables import Integers
from traceview.trace import Trace, fact

LEAST_SAMPLES, LEAST_FRACTION = 5, 2 / 3
"""A line with fewer samples, or a smaller part of those during the waits, is not named."""


class SampledLine(NamedTuple):
    """A line of the program, and how many of the samples during some waits were at it."""

    file: str
    line: int
    function: str
    samples: int

    @property
    def place(self) -> str:
        """Such as `train.py:31`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@fact
def sample_waits(trace: Trace) -> Integers:
    """Row in `waits` of the wait around each Python sample, or −1; the last to begin of several."""
    samples, every = trace.recorded("python_samples"), waits(trace)
    result = np.full(len(samples), -1, np.int64)
    for thread in groups.different(samples["thread"]).tolist():
        own = np.flatnonzero(every.thread == thread)
        if not len(own):
            continue
        own = own[np.argsort(every.start_ns[own], kind="stable")]
        rows = np.flatnonzero(samples["thread"] == thread)
        time = samples["time_ns"][rows]
        wait = own[np.maximum(np.searchsorted(every.start_ns[own], time, side="right") - 1, 0)]
        within = (every.start_ns[wait] <= time) & (time < every.end_ns[wait])
        result[rows] = np.where(within, wait, -1)
    return result


def sampled_line(trace: Trace, rows: Integers) -> SampledLine | None:
    """The line with most of the samples during some waits, if these are enough to name it."""
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    inside = np.flatnonzero(groups.isin(sample_waits(trace), rows))
    frame = stack_lines(trace).frame[samples["stack"][inside]]
    known = frame[frame >= 0]
    if not len(known):
        return None
    each = groups.group(frames.texts("file").codes[known], frames["line"][known])
    count = groups.count(each)
    most = int(np.argmax(count))
    number = int(count[most])
    if number < LEAST_SAMPLES or number < LEAST_FRACTION * len(inside):
        return None
    row = int(known[each.first[most]])
    file, function = (str(frames.texts(name)[row]) for name in ("file", "function"))
    return SampledLine(file, int(frames["line"][row]), function, number)
