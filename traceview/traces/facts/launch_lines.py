"""Which line of the program launches work: a sample is at the line that makes the next launch.

So a line is shown as often as its launches take time on the CPU, not by their number. A line that
runs a backward pass launches what the forward pass asks for: that line is the one to change.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups
from traceview.base.tables import Integers, RowNumbers
from traceview.traces.facts import operations
from traceview.traces.facts.idle.cpu_activity import ELSEWHERE_NS
from traceview.traces.facts.idle.lines import sampled_threads
from traceview.traces.facts.samples import SampledLine, line_of, program_frames, stack_lines
from traceview.traces.trace import Trace, fact

LEAST_SAMPLES, LEAST_FRACTION = 10, 0.5
"""With fewer samples, or a smaller part of them at one line, none is named."""
_UPDATES = re.compile(r"torch\.(optim|amp|nn\.utils)\b")
"""Libraries that launch beside the two passes."""


def launch_line(trace: Trace, rows: RowNumbers) -> tuple[SampledLine | None, bool]:
    """The line that makes most launches of some kernels, if samples show one.

    And whether it is that of the forward pass, most of them being made in the backward pass.
    """
    frame, call = _launching(trace)
    chosen = frame[
        groups.isin(
            call, operations.operations(trace).call[operations.kernel_operations(trace)[rows]]
        )
    ]
    line = line_of(trace, chosen, max(LEAST_SAMPLES, LEAST_FRACTION * len(chosen)))
    stack = trace.recorded("python_frames")["stack"]
    if line and stack_lines(trace).launches[stack[line.frame]] and (asks := forward_line(trace)):
        return asks, True
    return line, False


@fact
def forward_line(trace: Trace) -> SampledLine | None:
    """The innermost line that half of the launches of forward passes pass through, callees too.

    None without a backward pass, and where one of these passes through it as well, as through a
    function with the whole step.
    """
    lines, frames, rows = stack_lines(trace), trace.recorded("python_frames"), program_frames(trace)
    launching = frames["stack"][_launching(trace)[0]]
    inner = lines.inner.isin(
        [str(name) for name in lines.inner.values if _UPDATES.match(str(name))]
    )
    backward = lines.launches[launching]
    forward = launching[~backward & ~inner[launching]]
    if not backward.any() or not len(forward):
        return None
    each = groups.group(frames.texts("file").codes[rows], frames["line"][rows])
    # A line that calls itself is in a stack once.
    once = groups.group(frames["stack"][rows], each.ids).first
    stack, line = frames["stack"][rows[once]], each.ids[once]
    through, back = (
        np.bincount(line, np.bincount(chosen, minlength=len(lines.frame))[stack], each.size)
        for chosen in (forward, launching[backward])
    )
    fits = (back == 0) & (through >= max(LEAST_SAMPLES, LEAST_FRACTION * len(forward)))
    if not fits.any():
        return None
    depth = frames["depth"][rows[each.first]]
    innermost = min(np.flatnonzero(fits).tolist(), key=lambda at: (through[at], depth[at]))
    return line_of(trace, rows[each.first[innermost]][None], 1)


@fact
def _launching(trace: Trace) -> tuple[Integers, Integers]:
    """Samples in or shortly before a launch: the program's frame, and the row in api_calls."""
    samples, sampled_as, calls = (
        trace.recorded("python_samples"),
        sampled_threads(trace),
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
        near = (place < len(of_thread)) & (calls.start_ns[call] - time <= ELSEWHERE_NS)
        found.append(np.stack([frame[own[near]], call[near]]))
    both = np.concatenate(found, axis=1)
    return both[0], both[1]
