"""Remedies of idle time as edits of the replayed run.

Each function returns an edit for the forecast's graph, or None where nothing in the run is to be
changed. `rows` are rows of gaps: parts of idle gaps of one cause.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.gpu_idle import accidents
from traceview.facts.dependencies.blame import Part
from traceview.facts.dependencies.forecast import model
from traceview.facts.dependencies.graph import dependencies
from traceview.facts.dependencies.replay import Changed
from traceview.facts.idle.causes import idle_parts
from traceview.facts.idle.gap_bounds import gap_bounds
from traceview.facts.idle.gaps import gaps
from traceview.facts.idle.lines import IdleSamples
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.steps.steps import step_of_operations
from traceview.findings import Edit
from traceview.tables import Array, Integers
from traceview.trace import Trace
from traceview.vocabulary.causes import (
    ALLOCATION,
    GRAPH_LAUNCH,
    JIT_COMPILE,
    LAUNCH_LATE,
    MODULE_LOAD,
    SYNC_DRAIN,
)


def of_cause(trace: Trace, cause: int, rows: Array) -> Edit | None:
    """The remedy for idle time of a cause, as far as the cause alone says it."""
    if cause == LAUNCH_LATE:
        return launch_at_once(trace, rows)
    if cause == SYNC_DRAIN:
        return remove_waits(trace, rows)
    if cause in (ALLOCATION, MODULE_LOAD, JIT_COMPILE):
        return remove_calls(trace, _calls_in(trace, rows))
    if cause == GRAPH_LAUNCH:
        calls = _calls_in(trace, rows)
        return remove_calls(trace, calls[api_calls(trace).does[calls] == CallKind.GRAPH])
    return None


def launch_at_once(trace: Trace, rows: Array) -> Edit | None:
    """All work of a step is launched by one call, as by a CUDA graph; of the run without steps.

    Work that was launched after a wait still is: what the CPU read there may decide on it.
    """
    late = gaps(trace).after[rows]
    if not (operations(trace).call[late] >= 0).any():
        return None

    def edit(changed: Changed) -> None:
        launched, group = _launched_together(trace, late)
        item = model(trace).item_of_operation[launched]
        changed.launch_at_once(item[item >= 0], group[item >= 0])

    return edit


def _launched_together(trace: Trace, late: Array) -> tuple[Array, Array]:
    """Operations that one call could launch, and the number of the call.

    They are of one step and thread, no wait comes between their launches, and some of each group
    are among `late`. Copies stay as they are: the host memory of most must be ready. So do groups
    with an accident, which has an edit of its own, if there are others.
    """
    ops, calls, every = operations(trace), api_calls(trace), waits(trace)
    launched = np.flatnonzero((ops.call >= 0) & (ops.kind != Kind.COPY))
    call = ops.call[launched]
    thread, issued = calls.thread[call], calls.start_ns[call]
    waited = np.zeros(len(launched), np.int64)
    blocking = np.isin(every.does, (CallKind.SYNCHRONIZE, CallKind.COPY))
    for number, own in groups.rows_of(thread).items():
        ends = np.sort(every.end_ns[blocking & (every.thread == number)])
        waited[own] = np.searchsorted(ends, issued[own], side="right")
    group = groups.group(step_of_operations(trace)[launched], thread, waited).ids
    is_late = np.zeros(len(ops), bool)
    is_late[late] = True
    chosen = groups.isin(group, group[is_late[launched]])
    is_late[:] = False
    is_late[gaps(trace).after[accidents.in_accidents(trace)]] = True
    apart = groups.isin(group, group[is_late[launched]])
    if (chosen & ~apart).any():
        chosen &= ~apart
    return launched[chosen], group[chosen]


def remove_pauses(trace: Trace, rows: Array, samples: IdleSamples | None = None) -> Edit | None:
    """The threads do nothing outside of calls in these idle times.

    With samples, each pause shrinks by the share of its idle time that these stand for.
    """
    every = gaps(trace)
    share = np.ones(len(every))
    if samples is not None:
        took = np.bincount(samples.gap, samples.time_ns, len(every))
        share = np.minimum(took / np.maximum(every.idle_ns, 1), 1.0)
    call, row = _parts_in(trace, rows, (Part.HOST, Part.WAKE))
    kept = share[row] > 0
    call, left = call[kept], 1.0 - share[row[kept]]
    if not len(call):
        return None

    def edit(changed: Changed) -> None:
        item = model(trace).graph.item_of_call[call]
        changed.scale_pause(item[item >= 0], left[item >= 0])

    return edit


def remove_calls(trace: Trace, calls: Array) -> Edit | None:
    """These API calls (rows of api_calls) are not made."""
    if not len(calls):
        return None
    return lambda changed: changed.remove_calls(model(trace).calls(calls))


def usual_calls(trace: Trace, calls: Array, usual_ns: int) -> Edit | None:
    """These API calls take the usual time."""
    if not len(calls):
        return None

    def edit(changed: Changed) -> None:
        item = model(trace).calls(calls)
        changed.shorten(item, changed.own_ns[item] - np.minimum(changed.own_ns[item], usual_ns))

    return edit


def remove_waits(trace: Trace, rows: Array) -> Edit | None:
    """The synchronizations that let the GPU run dry wait for nothing."""
    wait = groups.different(gaps(trace).wait[rows])
    calls = waits(trace).call[wait[wait >= 0]]
    if not len(calls):
        return None
    return lambda changed: changed.wait_for_nothing(model(trace).calls(calls))


def _calls_in(trace: Trace, rows: Array) -> Array:
    """The API calls that threads were in during these idle times, each once."""
    return groups.different(_parts_in(trace, rows, (Part.LAUNCH, Part.CALL, Part.TAIL))[0])


def _parts_in(trace: Trace, rows: Array, kinds: tuple[Part, ...]) -> tuple[Array, Integers]:
    """The API calls of the parts of gaps of these kinds, and the row of gaps that each is in."""
    every, parts, graph = gaps(trace), idle_parts(trace), dependencies(trace)
    own = np.flatnonzero(np.isin(parts.kind, kinds) & groups.isin(parts.gap, every.gap[rows]))
    device = gap_bounds(trace).device[parts.gap[own]]
    row = np.full(len(own), -1, np.int64)
    for number, at in groups.rows_of(device).items():
        known = np.flatnonzero(every.device == number)
        known = known[np.argsort(every.start_ns[known], kind="stable")]
        # A part may lie in two rows: the one in which its middle is counts.
        middle = (parts.start_ns[own[at]] + parts.end_ns[own[at]]) // 2
        row[at] = known[np.searchsorted(every.start_ns[known], middle, side="right") - 1]
    inside = groups.isin(row, rows)
    return graph.call[parts.item[own[inside]]], row[inside]
