"""Which line of the program launches work: a sample is at the line that makes the next launch.

So a line is shown as often as its launches take time on the CPU, not by their number.
"""

from __future__ import annotations

import numpy as np

from traceview.base import groups
from traceview.base.tables import Integers, RowNumbers
from traceview.traces.facts import operations
from traceview.traces.facts.idle import cpu_activity, lines
from traceview.traces.facts.samples import SampledLine, line_of, stack_lines
from traceview.traces.trace import Trace, fact

LEAST_SAMPLES, LEAST_FRACTION = 10, 0.5
"""With fewer samples, or a smaller part of them at one line, none is named."""


def launch_line(trace: Trace, rows: RowNumbers) -> SampledLine | None:
    """The line that makes most launches of some kernels, if samples show one."""
    frame, call = _launching(trace)
    chosen = frame[
        groups.isin(
            call, operations.operations(trace).call[operations.kernel_operations(trace)[rows]]
        )
    ]
    return line_of(trace, chosen, max(LEAST_SAMPLES, LEAST_FRACTION * len(chosen)))


@fact
def _launching(trace: Trace) -> tuple[Integers, Integers]:
    """Samples in or shortly before a launch: the program's frame, and the row in api_calls."""
    samples, sampled_as, calls = (
        trace.recorded("python_samples"),
        lines.sampled_threads(trace),
        operations.api_calls(trace),
    )
    frame = stack_lines(trace).frame[samples["stack"]]
    found = [np.zeros((2, 0), np.int64)]
    launches = np.flatnonzero(operations.call_kinds(trace) == operations.CallKind.LAUNCH)
    launches = launches[np.argsort(calls.end_ns[launches], kind="stable")]
    for thread in groups.different(samples["thread"]).tolist():
        of_thread = launches[sampled_as[calls.thread[launches]] == thread]
        own = np.flatnonzero((samples["thread"] == thread) & (frame >= 0))
        if not len(of_thread) or not len(own):
            continue
        time = samples["time_ns"][own]
        place = np.searchsorted(calls.end_ns[of_thread], time, side="right")
        call = of_thread[np.minimum(place, len(of_thread) - 1)]
        near = (place < len(of_thread)) & (calls.start_ns[call] - time <= cpu_activity.ELSEWHERE_NS)
        found.append(np.stack([frame[own[near]], call[near]]))
    both = np.concatenate(found, axis=1)
    return both[0], both[1]
