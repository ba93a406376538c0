"""The line of the program whose call was compiled, from samples of Python stacks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.phases.compilation import compilation
from traceview.facts.samples import compiler_frames, stack_lines
from traceview.findings import Subject
from traceview.tables import Cell, Mask
from traceview.trace import Trace

LEAST_SAMPLES, LEAST_FRACTION = 5, 0.5
"""A line with fewer samples, or a smaller part of those in the program, is not named."""


class CompileCall(NamedTuple):
    """A line of the program; `source` is its text, None where that was not recorded."""

    file: str
    line: int
    source: str | None

    def subject(self) -> Subject:
        name = f"{self.file.rpartition('/')[2]}:{self.line}"
        return Subject("line", name, self.file, self.line)

    def place(self) -> tuple[str, dict[str, Cell]]:
        """` at {site} (`{source}`)`, as a template and its values."""
        template, values = " at {site}", dict[str, Cell](site=self.subject().name)
        if self.source:
            template, values = template + " (`{source}`)", {**values, "source": self.source}
        return template, values


def compile_call(trace: Trace, process: int, chosen: Mask) -> CompileCall | None:
    """The line that called the compiler in most samples of the chosen windows of `compilation`.

    In a stack, that is the innermost line of the program outside of the compiler. Stacks of threads
    that autograd starts have none.
    """
    if "python_samples" not in trace.tables or "python_frames" not in trace.tables:
        return None
    samples, frames = trace.tables["python_samples"], trace.tables["python_frames"]
    windows = compilation(trace)
    covered = intervals.union(windows.start_ns[chosen], windows.end_ns[chosen])
    rows = np.flatnonzero(samples["process"] == process)
    stack = samples["stack"][rows[intervals.inside(covered, samples["time_ns"][rows])]]
    compiler, caller = compiler_frames(trace).row[stack], stack_lines(trace).frame[stack]
    # By stack, innermost frame first: callers of the compiler come after it.
    known = caller[(compiler >= 0) & (caller > compiler)]
    if len(known) < LEAST_SAMPLES:
        return None
    each = groups.group(frames.texts("file").codes[known], frames["line"][known])
    most = int(np.argmax(groups.count(each)))
    if int(groups.count(each)[most]) < max(LEAST_SAMPLES, LEAST_FRACTION * len(known)):
        return None
    row = int(known[each.first[most]])
    source = frames.texts("source")[row]
    return CompileCall(str(frames.texts("file")[row]), int(frames["line"][row]), source)
