"""Which line of the program launches work: a sample is at the line that makes the next launch.

So a line is shown as often as its launches take time on the CPU, not by their number. A line that
runs a backward pass launches what the forward pass asks for: that line is the one to change.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.tables import Integers, Mask, RowNumbers
from traceview.traces.facts import operations
from traceview.traces.facts.idle.cpu_activity import ELSEWHERE_NS
from traceview.traces.facts.idle.lines import sampled_threads
from traceview.traces.facts.samples import (
    SampledLine,
    line_of,
    program_frames,
    stack_lines,
    stacks_through,
)
from traceview.traces.trace import Trace, fact

LEAST_SAMPLES, LEAST_FRACTION, LEAST_NAMED = 10, 0.5, 0.05
"""With fewer samples at a line, or a smaller part of them than the last, none is named. One with
less than half is named with its part, as `gpu-idle` names lines."""
_UPDATES = re.compile(r"torch\.(optim|amp|nn\.utils)\b")
"""Libraries that launch beside the two passes."""
_LONG_PASS = 4
"""Launches between two backward passes count at most as so many usual forward passes."""
_DERIVATIVES = re.compile(r"torch/autograd/__init__\.py::grad$")


class LaunchLine(NamedTuple):
    """The line that makes most launches of some kernels, or more of them than any other.

    `of_forward` is True where it is that of a forward pass, the launches being made in the backward
    pass, and `fraction` is its part of the samples, 1 where it is most.
    """

    line: SampledLine
    of_forward: bool
    fraction: float


def launch_line(trace: Trace, rows: RowNumbers) -> LaunchLine | None:
    """The line that makes most launches of some kernels, if samples show one."""
    frame, call = _launching(trace)
    chosen = frame[
        groups.isin(
            call, operations.operations(trace).call[operations.kernel_operations(trace)[rows]]
        )
    ]
    line = line_of(trace, chosen, max(LEAST_SAMPLES, LEAST_NAMED * len(chosen)))
    if line is None:
        return None
    part = line.samples / len(chosen)
    part = 1.0 if part >= LEAST_FRACTION else part
    stack = trace.recorded("python_frames")["stack"]
    if in_backward(trace)[stack[line.frame]] and (asks := forward_line(trace)):
        return LaunchLine(asks, True, part)
    return LaunchLine(line, False, part)


@fact
def in_backward(trace: Trace) -> Mask:
    """True for the stacks that run a backward pass; torch.autograd.grad is asked for by its line.

    A loss with a gradient penalty, or an equation with derivatives, calls that in a forward pass.
    """
    return stack_lines(trace).launches & ~stacks_through(trace, _DERIVATIVES)


@fact
def forward_line(trace: Trace) -> SampledLine | None:
    """The innermost line that half of the launches of forward passes pass through, callees too.

    None without a backward pass, and where most of these pass through it as well, as through a
    function with the whole step. A rollout or an evaluation asks for no backward pass, however much
    it launches between two of them: it counts as a few forward passes.
    """
    lines, frames, rows = stack_lines(trace), trace.recorded("python_frames"), program_frames(trace)
    frame, call = _launching(trace)
    in_order = np.argsort(operations.api_calls(trace).start_ns[call], kind="stable")
    launching = frames["stack"][frame[in_order]]
    inner = lines.inner.isin(
        [str(name) for name in lines.inner.values if _UPDATES.match(str(name))]
    )
    backward = in_backward(trace)[launching]
    chosen = ~backward & ~inner[launching]
    forward = launching[chosen]
    if not backward.any() or not len(forward):
        return None
    asks = groups.group(np.cumsum(groups.opens(backward))[chosen])
    number = groups.count(asks)
    part = np.minimum(1, _LONG_PASS * np.median(number) / number)[asks.ids]
    each = groups.group(frames.texts("file").codes[rows], frames["line"][rows])
    # A line that calls itself is in a stack once.
    once = groups.group(frames["stack"][rows], each.ids).first
    stack, line = frames["stack"][rows[once]], each.ids[once]
    stacks = len(lines.frame)
    through, back, parts = (
        np.bincount(line, np.bincount(at, weights, stacks)[stack], each.size)
        for at, weights in ((forward, None), (launching[backward], None), (forward, part))
    )
    fits = (2 * back < np.count_nonzero(backward)) & (through >= LEAST_SAMPLES)
    fits &= parts >= LEAST_FRACTION * part.sum()
    if not fits.any():
        return None
    depth = frames["depth"][rows[each.first]]
    innermost = min(np.flatnonzero(fits).tolist(), key=lambda at: (parts[at], depth[at]))
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
