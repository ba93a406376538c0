"""Checks of `trace-health` on recordings of first passes: that they are cold, and what is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base import groups
from traceview.base.tables import picked
from traceview.base.units import Value
from traceview.traces.analyses.gpu_idle.beside_work import beside_gpu_work
from traceview.traces.analyses.gpu_idle.gap_evidence import operation_name, path_of_calls
from traceview.traces.analyses.trace_health_checks import Check, lost_events
from traceview.traces.analyses.wording import of_torch
from traceview.traces.facts.idle.first_calls import (
    cold_passes,
    first_batch,
    is_start_up_alone,
    runs_kernels,
)
from traceview.traces.facts.launches import cut_window, waits
from traceview.traces.facts.operations import CallKind, Kind, api_calls, call_kinds, operations
from traceview.traces.facts.ranges.nesting import nest
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.samples import LEAST_SAMPLES, line_of, stack_lines
from traceview.traces.trace import Trace, model, schema

_COLD = (
    "The recording is cold, so it does not tell how later passes run[: {once_ns} of {total_ns} are "
    "first uses and compilation][: its passes take {least_ns} to {most_ns}]."
)
_LONGEST = (
    " The longest call is one {api} of {call_ns}[, the first launch of {operation}][ in {within}]."
)
_BEFORE = (
    " {before_ns} pass before the first GPU work[, {part_ns} of it in {part}][, by samples "
    "{line_pct} of it {line:at}]."
)
_RECORD_MORE = "Record more passes, ten or so after those that load and compile the code."
_NO_RESULT = (
    "All GPU work is {launches:launch|launches} of {kernel}. No memory was allocated or copied, so "
    "the program gets no result from it."
)
_RECORD_COMPUTING = "Record a part of the program that computes on the GPU, if there is one."
_MUCH = 0.25
"""A call that takes so much of the time of first uses is named."""
_LEAST_BEFORE_NS = 1_000_000_000
"""What a recorder and a runtime need to start takes some 0.3 s (public recordings)."""


def cold(trace: Trace) -> Iterator[Check]:
    """A warning where a start or first passes were recorded, which say nothing of the others.

    Not where another finding says so: of compilation, or of CPU work that the run is about. Nor
    where much is missing: later passes may be. More passes of a kernel that gives the program
    nothing tell as little.
    """
    if any(each.all_in_doubt for each in lost_events(trace)):
        return
    values: dict[str, Value] = {}
    longest: dict[str, Value] = {}
    if passes := cold_passes(trace):
        values = {"once_ns": passes.once_ns, "total_ns": passes.total_ns}
        if passes.uneven_ns:
            values = {"least_ns": min(passes.uneven_ns), "most_ns": max(passes.uneven_ns)}
        warns = bool(passes.passes) or passes.is_almost_all or runs_kernels(trace)
        warns &= not passes.is_compilation
        longest = _longest_call(trace, passes.total_ns if passes.uneven_ns else passes.once_ns)
    else:
        seen = np.isin(operations(trace).kind, (Kind.KERNEL, Kind.GRAPH)).any()
        warns = is_start_up_alone(trace) and bool(seen) and "kernels" in trace.tables
        warns = warns and not first_batch(trace)
        warns = warns and all(each.severity != "high" for each in beside_gpu_work(trace))
    if warns and (given := _without_result(trace)):
        yield Check("result", "warning", _NO_RESULT, _RECORD_COMPUTING, given)
    elif warns:
        before = _before_gpu_work(trace)
        text = f"{_COLD}{_LONGEST if longest else ''}{_BEFORE if before else ''}"
        values |= longest | before
        yield Check("cold", "warning", text, _RECORD_MORE, values, all_in_doubt=bool(passes))


def _without_result(trace: Trace) -> dict[str, Value]:
    """The kernel, and its launches, where one is all that ran, and gives the program nothing."""
    ops, names = operations(trace), trace.kernels.texts("short_name")
    needs = [CallKind.ALLOCATE, CallKind.COPY, CallKind.COPY_ASYNC]
    moves = np.isin(call_kinds(trace), needs).any() or (ops.kind != Kind.KERNEL).any()
    if len(groups.different(names.codes)) != 1 or moves or not len(trace.recorded("api_calls")):
        return {}
    # A profiler within the program sees a window of it: what it computes on may be there before.
    if trace.recorder == schema.TORCH_PROFILER or trace.selection or cut_window(trace):
        return {}
    if model.recording_options(trace).bounded:
        return {}
    return {"launches": len(ops), "kernel": str(names[0])}


def _longest_call(trace: Trace, once_ns: int) -> dict[str, Value]:
    """The longest call of CUDA but for waits, where it takes much of the time of first uses."""
    calls = api_calls(trace)
    took_ns = calls.duration_ns.copy()
    took_ns[waits(trace).call] = 0
    if not len(took_ns) or took_ns.max() < _MUCH * once_ns:
        return {}
    call = int(np.argmax(took_ns))
    path, ops = int(path_of_calls(trace, np.array([call]))[0]), operations(trace)
    # Of operators inside one another the innermost tells most, and the range around them.
    *around, inner = str(range_tree(trace).paths[path]).split("/") if path >= 0 else [""]
    around = [each for each in around if not each.startswith("aten::")]
    launched = np.flatnonzero(ops.launched & (ops.call == call) & (ops.kind == Kind.KERNEL))
    names = trace.recorded("kernels").texts("name").codes
    values: dict[str, Value] = {
        "api": str(trace.recorded("api_calls").texts("name")[call]),
        "call_ns": int(took_ns[call]),
        "within": "/".join([*around[-1:], inner]) or None,
    }
    if len(launched):
        of_name = np.flatnonzero(names == names[ops.row[launched[0]]])
        starts = trace.recorded("kernels")["start_ns"]
        if of_name[np.argmin(starts[of_name])] == ops.row[launched[0]]:
            values["operation"] = operation_name(trace, int(launched[0]))
    return values


def _before_gpu_work(trace: Trace) -> dict[str, Value]:
    """The time before the first GPU work where it is longer than all the rest, and its ranges.

    A recorder of whole programs shows there that they import their libraries.
    """
    if not of_torch(trace) or trace.run.get("backend") == "torch":
        return {}
    first, last = recorded_span(trace)
    begun = int(operations(trace).start_ns.min())
    if begun - first < max(_LEAST_BEFORE_NS, last - begun):
        return {}
    values, tree = dict[str, Value](before_ns=begun - first), range_tree(trace)
    rows = np.flatnonzero(tree.nesting.start < begun)
    if len(rows):
        track, end = tree.nesting.track[rows], np.minimum(tree.nesting.end[rows], begun)
        own_ns = nest(track, tree.nesting.start[rows], end).own_ns
        names = trace.recorded("ranges").texts("name").take(picked(tree.row, rows))
        each = groups.group(names.codes)
        took_ns = groups.sums(each, own_ns)
        most = int(np.argmax(took_ns))
        if took_ns[most] >= _MUCH * (begun - first):
            name = str(names[int(each.first[most])])
            values |= {"part": name, "part_ns": int(took_ns[most])}
    samples = trace.recorded("python_samples")
    frame = stack_lines(trace).frame[samples["stack"][samples["time_ns"] < begun]]
    line = line_of(trace, frame[frame >= 0], max(LEAST_SAMPLES, _MUCH * len(frame)))
    if line and "part" not in values:
        values |= {"line": line.place, "line_pct": 100 * line.samples / len(frame)}
    return values


def loaded(trace: Trace) -> Iterator[Check]:
    """A warning where one batch is all that was recorded, most of it the wait for its data."""
    if times := first_batch(trace):
        values = dict(zip(("loading_ns", "work_ns"), times, strict=True))
        yield Check("first batch", "warning", _LOADED, _RECORD_BATCHES, values, all_in_doubt=True)


_LOADED = (
    "The DataLoader takes {loading_ns} for the first batch, and what the GPU does then {work_ns}: "
    "savings of GPU time say little of the program."
)
_RECORD_BATCHES = (
    "Record ten batches or so: the first one waits until the workers have started. If the others "
    "take as long, load with more workers (num_workers) or do less per sample."
)
