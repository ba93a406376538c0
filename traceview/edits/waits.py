"""The edit that removes waits: synchronizations at a line, by name or in a range."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceview import groups
from traceview.edits.places import line_place, wait_lines
from traceview.edits.ranges import named_ranges
from traceview.edits.requests import EditRequest
from traceview.edits.scope import AppliedEdit, EditScope, globbed, no_match
from traceview.errors import InputError
from traceview.facts.dependencies.replay import Changed
from traceview.facts.operations import copies
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import CallKind
from traceview.facts.operations.operations import calls_that_enqueue, operations
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.ranges.selection import windows_of, within
from traceview.facts.waits.call_sites import wait_sites
from traceview.tables import Array, Mask

_WAITING = (CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.COPY_ASYNC)


def no_sync(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Synchronizations, and copies that block for a result, wait for nothing."""
    every, graph = waits(scope.trace), scope.model.graph
    able = np.flatnonzero(_removable(scope))
    if not len(able):
        raise InputError(
            "the recording has no synchronizations or blocking copies of results",
            "leave out no-sync",
        )
    rows = able[_at(scope, asked.target, able)]
    if not len(rows):
        raise _no_wait(scope, asked.target, able)
    calls = every.call[rows]
    items = groups.different(graph.item_of_call[calls])

    def change(changed: Changed) -> None:
        changed.wait_for_nothing(items)

    measured = np.isin(calls, scope.measured_calls(calls))
    time = int((every.end_ns - every.start_ns)[rows[measured]].sum())
    return AppliedEdit(
        asked, "wait", scope.per_step(int(measured.sum())), scope.per_step(time), change
    )


def _removable(scope: EditScope) -> Mask:
    """True for the waits that can be removed: not for uploads, whose bytes the CPU moves itself."""
    trace = scope.trace
    every, graph, ops = waits(trace), scope.model.graph, operations(trace)
    upload = calls_that_enqueue(ops, len(trace.recorded("api_calls")), copies.uploads(trace))
    item = graph.item_of_call[every.call]
    modelled = np.diff(graph.finish.first)[np.maximum(item, 0)] > 0 if len(graph) else item >= 0
    able = np.isin(every.does, _WAITING) | modelled
    result: Mask = able & scope.calls[every.call] & ~upload[every.call]
    return result


def _at(scope: EditScope, text: str, rows: Array) -> Mask:
    """True for the waits at a line, else by the name of the call or what called it, else in a
    range.
    """
    trace, every = scope.trace, waits(scope.trace)
    if place := line_place(text):
        hit = wait_lines(trace).at(place)[rows]
        if hit.any():
            return hit
    pattern = globbed(text)
    names = trace.recorded("api_calls").texts("name").take(every.call[rows])
    hit = names.matching(lambda name: bool(pattern.fullmatch(name)))
    hit |= wait_sites(trace).hint.take(rows).matching(lambda name: bool(pattern.fullmatch(name)))
    if not hit.any():
        ranges = windows_of(range_tree(trace), named_ranges(trace, text))
        hit = within(ranges, every.process[rows], every.start_ns[rows])
    return hit


def _no_wait(scope: EditScope, text: str, rows: Array) -> InputError:
    """The error for a place without waits, with the lines or the names of those that there are."""
    trace, every = scope.trace, waits(scope.trace)
    if line_place(text):
        if counts := wait_lines(trace).counts():
            return no_match("line that waits", text, counts)
        return InputError(
            f"the recording does not say which lines wait, such as {text[:80]!r}",
            f"record them with: {trace.how_to_record('call_sites')}; or name the call, such as "
            "cudaStreamSynchronize",
        )
    names = trace.recorded("api_calls").texts("name").take(every.call[rows])
    hints = wait_sites(trace).hint.take(rows)
    counts = Counter(str(name) for texts in (names, hints) for name in texts.decode() if name)
    counts.update(Counter({str(path): 0 for path in range_tree(trace).patterns}))
    return no_match("wait", text, counts)
