"""Edits of launches: all of a range in one CUDA graph, and calls without the recorder's cost."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.edits.ranges import instances, named_ranges, no_range
from traceview.edits.requests import EditRequest
from traceview.edits.scope import AppliedEdit, EditScope
from traceview.errors import InputError
from traceview.facts.dependencies.forecast import RECORDER_CALL_NS
from traceview.facts.dependencies.replay import Changed
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.facts.operations.operations import operations
from traceview.facts.ranges import ancestors
from traceview.facts.ranges.ranges import attributed_operations, range_tree
from traceview.facts.steps.steps import step_of_operations, steps
from traceview.tables import Array, Integers
from traceview.trace.schema.torch_profiler import TORCH_PROFILER

_HOLDS = (CallKind.SYNCHRONIZE, CallKind.COPY)
"""Calls that no CUDA graph can hold: what is launched before and behind one is two graphs."""


def graph(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """What each instance of a range launches is launched at once, up to where the CPU waits."""
    trace, graph_ = scope.trace, scope.model.graph
    ops, calls = operations(trace), api_calls(trace)
    hit = named_ranges(trace, asked.target)
    if not hit.any():
        raise no_range(trace, asked.target)
    of_range = _instance_of_operations(scope, hit)
    rows = np.flatnonzero(scope.operations & (of_range >= 0) & ops.launched)
    blocking = np.zeros(len(calls), bool)
    blocking[waits(trace).call[np.isin(waits(trace).does, (*_HOLDS, CallKind.COPY_ASYNC))]] = True
    rows = rows[~blocking[ops.call[rows]] & (graph_.item_of_call[ops.call[rows]] >= 0)]
    if not len(rows):
        raise InputError(
            f"no launches are recorded in {asked.target[:80]!r}",
            "name a range around launch calls; traceview report TRACE --only launch-overhead "
            "lists launches",
        )
    part = _waits_before(scope, rows, blocking)
    group = groups.group(of_range[rows], part).ids
    item_of, call = scope.model.item_of_operation, graph_.item_of_call[ops.call[rows]]

    def change(changed: Changed) -> None:
        changed.launch_at_once(item_of[rows], group)

    measured = np.isin(rows, scope.measured_operations(rows))
    launches = len(groups.different(call[measured]))
    time = int(_calls_time(scope, groups.different(call)))
    values = {"graphs": scope.per_step(len(groups.different(group[measured])))}
    return AppliedEdit(
        asked, "launch", scope.per_step(launches), scope.per_step(time), change, values
    )


def _calls_time(scope: EditScope, item: Array) -> int:
    """The time that measured calls take by themselves."""
    rows = scope.measured_calls(scope.model.graph.call[item])
    calls = api_calls(scope.trace)
    return int((calls.end_ns[rows] - calls.start_ns[rows]).sum())


def _instance_of_operations(scope: EditScope, hit: Array) -> Array:
    """The range instance in which each operation was launched, −1 outside of all.

    Where the ranges are steps, autograd's launches belong to the step of the main thread.
    """
    trace, tree = scope.trace, range_tree(scope.trace)
    top = instances(trace, hit)
    step = steps(trace).range
    if len(step) and np.array_equal(np.flatnonzero(top == np.arange(len(top))), np.sort(step)):
        of = step_of_operations(trace)
        return np.where(of >= 0, step[of], -1)
    return ancestors.nearest(top, tree.parent, attributed_operations(trace).range)


def _waits_before(scope: EditScope, rows: Array, blocking: Array) -> Integers:
    """How many waits of its process came before the launch of each operation."""
    calls, ops = api_calls(scope.trace), operations(scope.trace)
    process = scope.trace.recorded("api_calls")["process"]
    result = np.zeros(len(rows), np.int64)
    for number, places in groups.rows_of(ops.process[rows]).items():
        times = np.sort(calls.start_ns[blocking & (process == number)])
        result[places] = np.searchsorted(times, calls.start_ns[ops.call[rows[places]]])
    return result


def no_recorder(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Each call takes less by what the recorder adds to one."""
    if scope.trace.recorder == TORCH_PROFILER:
        raise InputError(
            "what torch.profiler adds to a call is not known",
            "leave out no-recorder, or record with nsys, whose cost is known",
        )
    graph_ = scope.model.graph
    rows = graph_.call[scope.calls[graph_.call]]
    if not len(rows):
        how = scope.trace.how_to_record("api_calls")
        raise InputError("the recording has no CUDA calls", f"record them with: {how}")

    others = np.flatnonzero(~scope.calls[graph_.call])
    before_others = np.isin(graph_.begin.of, others)

    def change(changed: Changed) -> None:
        kept, kept_begin = changed.own_ns[others], changed.begin_ns[before_others]
        changed.cheaper_calls(RECORDER_CALL_NS)
        changed.own_ns[others], changed.begin_ns[before_others] = kept, kept_begin

    measured = scope.measured_calls(rows)
    calls = api_calls(scope.trace)
    time = int((calls.end_ns[measured] - calls.start_ns[measured]).sum())
    values = {"recorder_call_ns": float(RECORDER_CALL_NS)}
    return AppliedEdit(
        asked, "call", scope.per_step(len(measured)), scope.per_step(time), change, values
    )
