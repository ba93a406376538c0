"""Which line of the program launches work: a sample is at the line that makes the next launch.

So a line is shown as often as its launches take time on the CPU, not by their number. A line that
runs a backward pass launches what the forward pass asks for: that line is the one to change.

A few long kernels among many short ones are in few samples. Kernels of one name and grid, behind
one of the same name, are launched by the same line in each pass, so one sample of them shows the
line of all, and with it whose kernels take the most time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.tables import Array, Cell, Integers, Mask, RowNumbers
from traceview.traces.facts import operations
from traceview.traces.facts.idle.cpu_activity import ELSEWHERE_NS
from traceview.traces.facts.idle.lines import sampled_threads
from traceview.traces.facts.ranges.origins import added_ranges
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
LEAST_TIME, LEAST_AT_LINE = 0.1, 2
"""A line that launches a smaller part of the time, or that fewer samples show, is not told for it:
in llama2.c and nanoMoE, recorded on an H200, the line to change launches 21 and 12 % (2 samples),
the next 5 and 1 %."""
LEAST_BELOW = 5
"""Samples of a line that launches most in a function, as of native functions in `gpu-idle`."""
_UPDATES = re.compile(r"torch\.(optim|amp|nn\.utils)\b")
"""Libraries that launch beside the two passes."""
_LONG_PASS = 4
"""Launches between two backward passes count at most as so many usual forward passes."""
_DERIVATIVES = re.compile(r"torch/autograd/__init__\.py::grad$")


class LaunchLine(NamedTuple):
    """The line that makes most launches of some kernels, or more of them than any other.

    `forward` is that line with what launches below it where it is one of a forward pass, the
    launches being made in the backward pass, and `fraction` is its part of the samples, 1 where it
    is most; with `of_time`, its part of the kernels' time.
    """

    line: SampledLine
    forward: ForwardLine | None
    fraction: float
    of_time: bool = False


def launch_line(trace: Trace, rows: RowNumbers, gpu_limits: bool) -> LaunchLine | None:
    """The line to change for some kernels, if samples show one.

    Where the time of the kernels is what limits the program, that is the line whose kernels take
    most of it; else the one that launches most of them, the forward pass of the backward pass that
    does, or the line that launches more than any other.
    """
    by_number = _by_number(trace, rows)
    by_time = _by_time(trace, rows) if gpu_limits else None
    if by_time is None:
        return by_number
    is_most = by_number and by_number.fraction == 1 and by_number.line.place == by_time.line.place
    return by_number if is_most else by_time


def _by_number(trace: Trace, rows: RowNumbers) -> LaunchLine | None:
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
    asks = forward_line(trace) if in_backward(trace)[stack[line.frame]] else None
    if asks and asks.fraction == 1:
        return LaunchLine(asks.line, asks, part)
    return LaunchLine(line, None, part)


def _by_time(trace: Trace, rows: RowNumbers) -> LaunchLine | None:
    """The line whose kernels take most of the time of these that forward passes launch.

    As far as is known: kinds that samples show at several lines count for none.
    """
    if len(_launching(trace)[0]) < LEAST_SAMPLES:
        return None
    frame, kernel = _sampled_kernels(trace)
    kinds, kernels = _kinds(trace), trace.recorded("kernels")
    time_ns = np.bincount(kinds[rows], kernels.duration_ns[rows], int(kinds.max(initial=0)) + 1)
    of_these = time_ns[kinds[kernel]] > 0
    frame, kind = frame[of_these], kinds[kernel[of_these]]
    if len(frame) < LEAST_SAMPLES:
        return None
    frames = trace.recorded("python_frames")
    each = groups.group(frames.texts("file").codes[frame], frames["line"][frame])
    of_kind = groups.group(kind)
    first = of_kind.first[groups.distinct(of_kind, each.ids) == 1]
    first = first[~in_backward(trace)[frames["stack"][frame[first]]]]
    at_line_ns = np.bincount(each.ids[first], time_ns[kind[first]], each.size)
    most = int(np.argmax(at_line_ns))
    part = float(at_line_ns[most] / time_ns.sum())
    if part < LEAST_TIME or at_line_ns[most] < LEAST_FRACTION * at_line_ns.sum():
        return None
    line = line_of(trace, frame[each.ids == most], LEAST_AT_LINE)
    return LaunchLine(line, None, part, of_time=True) if line else None


@fact
def _kinds(trace: Trace) -> Integers:
    """Kernels that one place launches: of one name and grid, behind one name on their stream."""
    kernels, ops = trace.recorded("kernels"), operations.kernel_operations(trace)
    row = np.full(len(operations.operations(trace)), -1)
    row[ops] = np.arange(len(ops))
    in_order = row[operations.operations_by_stream(trace)]
    in_order = in_order[in_order >= 0]
    name = kernels.texts("name").codes
    before = np.zeros(len(name), np.int64)
    before[in_order[1:]] = name[in_order[:-1]]
    return groups.group(name, kernels["grid_x"], kernels["grid_y"], before).ids


@fact
def _sampled_kernels(trace: Trace) -> tuple[Integers, Integers]:
    """Samples in or shortly before the launch of one kernel: the program's frame, and its row."""
    frame, call = _launching(trace)
    calls = operations.operations(trace).call[operations.kernel_operations(trace)]
    order = np.argsort(calls, kind="stable")
    at, end = (np.searchsorted(calls[order], call, side=side) for side in ("left", "right"))
    alone = end - at == 1
    return frame[alone], order[at[alone]]


@fact
def in_backward(trace: Trace) -> Mask:
    """True for the stacks that run a backward pass; torch.autograd.grad is asked for by its line.

    A loss with a gradient penalty, or an equation with derivatives, calls that in a forward pass.
    """
    return stack_lines(trace).launches & ~stacks_through(trace, _DERIVATIVES)


class ForwardLine(NamedTuple):
    """`line` is the innermost line that half of the launches of forward passes pass through.

    `below` is the line that launches most in the innermost function with half of them, callees too,
    if that is called from `line`. Without one, it is that of the function with most of them that
    `line` calls, be it through a library, such as a solver; `below_fraction` is its part of all.
    With a `fraction` below 1, no line has half: `line` launches that part, more than any other
    under the function that runs the backward pass.
    """

    line: SampledLine
    below: SampledLine | None
    fraction: float = 1.0
    below_fraction: float = 1.0

    @property
    def below_values(self) -> dict[str, Cell]:
        """The values of BELOW; none without a line below."""
        if self.below is None:
            return {}
        part = {} if self.below_fraction == 1 else {"below_pct": 100 * self.below_fraction}
        return {"most_below": self.below.site, **part}


BELOW = "[, where {most_below} launches most][ ({below_pct})]"
"""The clause behind a line that asks for a backward pass."""


@fact
def forward_line(trace: Trace) -> ForwardLine | None:
    """The lines at which forward passes launch.

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
    chosen = ~backward & ~inner[launching] & ~_after_updates(trace)[call[in_order]]
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

    def at_line(launching: Integers, weight: Array | None = None) -> Array:
        return np.bincount(line, np.bincount(launching, weight, stacks)[stack], each.size)

    may_ask = at_line(forward) >= LEAST_SAMPLES
    may_ask &= 2 * at_line(launching[backward]) < np.count_nonzero(backward)
    whole, parts = float(part.sum()), at_line(forward, part)
    fits = may_ask & (parts >= LEAST_FRACTION * whole)
    has_half = bool(fits.any())
    if not has_half:
        # As with an actor and critics: the largest of the networks, and what has half of it.
        beside = part * _in_function_of(trace, launching[backward])[forward]
        asked_for = np.where(may_ask, at_line(forward, beside), 0)
        through = stack[line == np.argmax(asked_for)]
        part = beside * np.isin(forward, through)
        # Of two that launch alike, neither is the one to change.
        alike = np.flatnonzero(asked_for == asked_for.max())
        is_one = np.isin(stack[np.isin(line, alike)], through).all()
        if not is_one or part.sum() < max(LEAST_TIME * whole, 1):
            return None
        fits = may_ask & (at_line(forward, part) >= LEAST_FRACTION * part.sum())
    inside = np.flatnonzero(fits[line])
    inside = inside[np.lexsort((frames["depth"][rows[once[inside]]], stack[inside]))]
    inside = inside[groups.opens(stack[inside])]
    weight = np.bincount(forward, part, stacks)[stack[inside]]
    innermost = int(np.argmax(np.bincount(line[inside], weight, each.size)))
    asked = line_of(trace, rows[each.first[innermost]][None], 1)
    if asked and not has_half:
        return ForwardLine(asked, None, float(parts[innermost] / whole))
    called = np.full(stacks, -1)
    of_line = rows[once[line == innermost]]
    called[frames["stack"][of_line]] = frames["depth"][of_line]
    below, below_part = _most_below(trace, called, np.bincount(forward, part, stacks))
    return ForwardLine(asked, below, below_fraction=below_part) if asked else None


def _in_function_of(trace: Trace, backward: Integers) -> Mask:
    """True for the stacks with the function of the program in which most of these have ended."""
    frames, rows = trace.recorded("python_frames"), program_frames(trace)
    each = groups.group(frames.texts("file").codes[rows], frames.texts("function").codes[rows])
    function = np.full(len(frames), -1)
    function[rows] = each.ids
    frame = stack_lines(trace).frame
    most = np.argmax(np.bincount(function[frame[backward]]))
    result = np.zeros(len(frame), bool)
    result[frames["stack"][function == most]] = True
    return result


def _most_below(trace: Trace, called: Integers, weight: Array) -> tuple[SampledLine | None, float]:
    """The line with most of the weight in the innermost function that has half of all, and 1.

    Where none has, the line and part of the function that is called first, if it stands out.
    `called` is, of each stack, the depth of the frame from which the function is called, −1 for
    stacks without it; `weight` is that of each stack.
    """
    frames, rows = trace.recorded("python_frames"), program_frames(trace)
    rows = rows[frames["depth"][rows] < called[frames["stack"][rows]]]
    rows = rows[np.lexsort((-frames["depth"][rows], frames["stack"][rows]))]
    number = np.arange(len(rows))
    opened = np.where(groups.opens(frames["stack"][rows]), number, 0)
    level = number - np.maximum.accumulate(opened)
    found, part, through = None, 1.0, called >= 0
    for below in range(int(level.max(initial=-1)) + 1):
        at = rows[(level == below) & through[frames["stack"][rows]]]
        function = groups.group(frames.texts("file").codes[at], frames.texts("function").codes[at])
        sums = np.bincount(function.ids, weight[frames["stack"][at]], function.size)
        if not len(sums):
            break
        if sums.max() < LEAST_FRACTION * weight.sum():
            *_, second, most = np.sort(np.append(sums, 0.0))
            if below or most < max(second + LEAST_BELOW, LEAST_TIME * weight.sum()):
                break
            part = float(most / weight.sum())
        at = at[function.ids == np.argmax(sums)]
        through = np.isin(np.arange(len(weight)), frames["stack"][at])
        line = groups.group(frames["line"][at])
        sums = np.bincount(line.ids, weight[frames["stack"][at]], line.size)
        is_most = np.count_nonzero(sums == sums.max()) == 1 and sums.max() >= LEAST_BELOW
        found = at[line.first[np.argmax(sums)]][None] if is_most else None
        if part < 1:
            break
    return (None, 1.0) if found is None else (line_of(trace, found, 1), part)


@fact
def _after_updates(trace: Trace) -> Mask:
    """True for API calls between an optimizer's step and the next forward pass, where marked.

    There averages of weights are kept, of which no backward pass is asked.
    """
    ranges, calls = trace.recorded("ranges"), operations.api_calls(trace)
    names, added = ranges.texts("name"), added_ranges(trace)
    forward = names.isin([str(each) for each in names.values if str(each).startswith("forward ")])
    result = np.zeros(len(calls), bool)
    for thread in groups.different(ranges["thread"][added & forward]).tolist():
        own, of_thread = added & (ranges["thread"] == thread), calls.thread == thread
        start = np.sort(ranges["start_ns"][own & forward])
        end = np.sort(ranges["end_ns"][own & names.isin(["optimizer"])])
        time = calls.start_ns[of_thread]
        update, passed = (
            np.insert(each, 0, np.iinfo(np.int64).min)[np.searchsorted(each, time, side="right")]
            for each in (end, start)
        )
        result[of_thread] = update > passed
    return result


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
