"""Edits of work on the GPU and of launches: faster work, another GPU, CUDA graphs, no cost
of the recorder.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np

from traceview.base import groups
from traceview.base.errors import InputError
from traceview.base.hardware.rates import Rates, product_named
from traceview.base.tables import Array, Integers, Mask, Texts
from traceview.traces.analyses.roofline_points import NEAR_PCT
from traceview.traces.edits.requests import EditRequest
from traceview.traces.edits.scope import (
    AppliedEdit,
    EditScope,
    globbed,
    instances,
    named_ranges,
    no_match,
    no_range,
)
from traceview.traces.facts import kernel_classes, operations
from traceview.traces.facts.dependencies.replay import Changed
from traceview.traces.facts.launches import cuda_graphs, waits
from traceview.traces.facts.ranges import nesting, ranges
from traceview.traces.facts.steps.steps import step_of_operations, steps
from traceview.traces.facts.work.kernel_work import kernel_work
from traceview.traces.facts.work.peaks import KINDS, Floats, Peaks, peaks
from traceview.traces.trace import Trace, schema

_HOST = ("H2D", "D2H")
_PAGEABLE = "pageable"


def kernels(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Kernels whose demangled, base or readable name matches take a part of their time."""
    rows, missing = _named(scope, asked)
    return replace(_scaled(scope, asked, rows, "kernel"), names=missing)


def _named(scope: EditScope, asked: EditRequest) -> tuple[Array, dict[str, str]]:
    """The kernels that one of the patterns matches, and the patterns that match none."""
    chosen = _rows(scope, operations.Kind.KERNEL)
    row = operations.operations(scope.trace).row[chosen]
    hits = {text: _of_name(scope.trace, text)[row] for text in asked.target.split("|")}
    hit = np.logical_or.reduce([*hits.values()])
    if not hit.any():
        hint = "a pattern matches a whole name: put * around a part of one"
        names = _by_time(scope, chosen, kernel_classes.kernel_labels(scope.trace))
        raise no_match("kernel", asked.target, names, hint)
    missing = [text for text, own in hits.items() if not own.any()]
    return chosen[hit], {"unmatched": ", ".join(missing)} if missing else {}


def _of_name(trace: Trace, text: str) -> Mask:
    """True for the rows of kernels with a name that the pattern matches."""
    table, pattern = trace.recorded("kernels"), globbed(text)
    names = (table.texts("name"), table.texts("short_name"), kernel_classes.kernel_labels(trace))
    hits = [each.matching(lambda name: bool(pattern.fullmatch(name))) for each in names]
    return np.logical_or.reduce(hits)


def fuse(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Kernels that match and follow each other become one, of a part of their time."""
    named, missing = _named(scope, asked)
    # Operations that follow each other on a stream, from one of `named` to another, and their run.
    # A run has several of them, is of one thread and step, and ends where the CPU waits. Memsets
    # and copies within the GPU between its kernels belong to it. Nodes of a CUDA graph follow only
    # each other.
    trace, ops, calls = (
        scope.trace,
        operations.operations(scope.trace),
        operations.api_calls(scope.trace),
    )
    order = operations.operations_by_stream(trace)
    matches, call = groups.marked(named, len(ops))[order], ops.call[order]
    own = matches | (_helps(trace) & scope.operations)[order]
    by, waited = np.full(len(order), -1, np.int64), np.zeros(len(order), np.int64)
    launched = np.flatnonzero(own & (call >= 0))
    by[launched] = calls.thread[call[launched]]
    waited[launched] = _waits_before(scope, order[launched], _blocking(trace))
    by = np.where(cuda_graphs(trace).node[order], -2 - call, by)
    step = step_of_operations(trace)[order]
    run = np.cumsum(groups.opens(ops.stream[order], step, by, waited, own))
    # Those before the first and behind the last kernel of a run are others'.
    whole, until = np.bincount(run, matches), np.cumsum(matches)
    since = until - np.append(0, np.cumsum(whole))[run]
    inside = own & (whole[run] > 1) & (matches | ((since > 0) & (since < whole[run])))
    rows, chain = order[inside], run[inside]
    if not len(rows):
        raise InputError(
            f"no two kernels that match {asked.target[:80]!r} follow each other on a stream",
            "name all kernels of a chain, with | between; kernel scales each by itself",
        )
    item, usual_ns = scope.model.item_of_operation[rows], scope.model.usual_ns

    def change(changed: Changed) -> None:
        changed.fuse(item, chain, asked.factor, usual_ns)

    measured = np.isin(rows, scope.measured_operations(rows))
    values = {"chains": scope.per_step(len(groups.different(chain[measured])))}
    number = scope.per_step(int(measured.sum()))
    return AppliedEdit(asked, "operation", number, _time(scope, rows), change, values, missing)


def _helps(trace: Trace) -> Mask:
    """True for memsets and for copies within a GPU."""
    ops = operations.operations(trace)
    result: Mask = ops.kind == operations.Kind.SET
    copies = np.flatnonzero(ops.kind == operations.Kind.COPY)
    within = trace.recorded("copies").texts("direction").isin(["D2D"])
    result[copies] = within[ops.row[copies]]
    return result


def copies(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Copies whose direction, such as D2H, matches take a part of their time."""
    chosen, pattern = _rows(scope, operations.Kind.COPY), globbed(asked.target)
    directions = scope.trace.recorded("copies").texts("direction")
    hit = directions.matching(lambda name: bool(pattern.fullmatch(name)))
    rows = chosen[hit[operations.operations(scope.trace).row[chosen]]]
    if not len(rows):
        raise no_match("copy", asked.target, _by_time(scope, chosen, directions))
    return _scaled(scope, asked, rows, "copy")


def link(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Copies between host and GPU take a part of their time."""
    table, chosen = scope.trace.recorded("copies"), _rows(scope, operations.Kind.COPY)
    directions = table.texts("direction")
    rows = chosen[directions.isin(_HOST)[operations.operations(scope.trace).row[chosen]]]
    if not len(rows):
        raise InputError("no copies between host and GPU are recorded here", "leave out link")
    pageable = table.texts("source_memory").isin([_PAGEABLE])
    pageable |= table.texts("destination_memory").isin([_PAGEABLE])
    slow = rows[pageable[operations.operations(scope.trace).row[rows]]]
    return _scaled(scope, asked, rows, "copy", pageable_ns=_time(scope, slow))


def _rows(scope: EditScope, kind: operations.Kind) -> Array:
    """The selected operations of a kind that are in the graph."""
    return np.flatnonzero(scope.operations & (operations.operations(scope.trace).kind == kind))


def _time(scope: EditScope, rows: Array) -> float:
    """Their time per step."""
    measured = scope.measured_operations(rows)
    return scope.per_step(int(operations.operations(scope.trace).duration_ns[measured].sum()))


def _scaled(
    scope: EditScope, asked: EditRequest, rows: Array, noun: str, **values: float
) -> AppliedEdit:
    items = scope.model.operations(rows)

    def change(changed: Changed) -> None:
        changed.scale(items, asked.factor)

    number = scope.per_step(len(scope.measured_operations(rows)))
    return AppliedEdit(asked, noun, number, _time(scope, rows), change, values)


def _by_time(scope: EditScope, rows: Array, names: Texts) -> Counter[str]:
    """The time of some operations by name in their own table."""
    ops = operations.operations(scope.trace)
    code = names.codes[ops.row[rows]]
    rows, code = rows[code >= 0], code[code >= 0]
    if not len(rows):
        return Counter()
    each = groups.group(code)
    time = groups.sums(each, ops.duration_ns[rows]).tolist()
    named = map(names.value, code[each.first].tolist())
    return Counter(dict(zip(named, time, strict=True)))


# Another GPU: a kernel near a ceiling of this GPU takes the ratio of that ceiling, unless it would
# be above the other ceiling there. Kernels near none, or of unknown bytes and FLOP, stay.


def gpu(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Kernels take as long as their nearest ceiling has it on another GPU."""
    product = product_named(asked.target)
    chosen, trace = _rows(scope, operations.Kind.KERNEL), scope.trace
    rows = operations.operations(trace).row[chosen]
    work = _Roofline(trace, product, rows)
    if not (work.memory | work.compute).any():
        raise InputError(
            "no kernel is known to be near a ceiling of the recorded GPU: "
            + ("bytes and FLOP are unknown" if not work.known.any() else "all are far from both"),
            "record with traceview record (which keeps the code of Triton kernels), or give "
            "counters of Nsight Compute with --ncu FILE"
            if not work.known.any()
            else "another GPU of this kind would change little",
        )
    items = scope.model.operations(chosen)

    def change(changed: Changed) -> None:
        changed.scale(items, work.factor)

    time = partial(_time, scope)
    values = {
        "memory_bound_ns": time(chosen[work.memory]),
        "compute_bound_ns": time(chosen[work.compute]),
        "far_from_ceilings_ns": time(chosen[work.known & ~work.memory & ~work.compute]),
        "unknown_ns": time(chosen[~work.known]),
    }
    number = scope.per_step(len(scope.measured_operations(chosen[work.memory | work.compute])))
    return AppliedEdit(
        asked, "kernel", number, time(chosen), change, values, {"product": product.product}
    )


class _Roofline:
    """Which ceiling each of some kernels is near, and the part of its time on another GPU."""

    def __init__(self, trace: Trace, product: Rates, rows: Array) -> None:
        table, work = trace.recorded("kernels"), kernel_work(trace)
        size, flop = work.estimate.bytes[rows], work.estimate.flop[rows]
        kind, time = work.estimate.kind[rows], table.duration_ns[rows].astype(np.float64)
        if work.passages is not None and len(work.passages.name):
            # Kernels that share a declaration share its rates.
            of = work.passages.of[rows]
            inside = of >= 0
            whole = np.bincount(of[inside], time[inside], len(work.passages.name))
            part = time[inside] / np.maximum(whole[of[inside]], 1)
            size, flop, kind = size.copy(), flop.copy(), kind.copy()
            size[inside] = work.passages.estimate.bytes[of[inside]] * part
            flop[inside] = work.passages.estimate.flop[of[inside]] * part
            kind[inside] = work.passages.estimate.kind[of[inside]]
        self.known: Mask = ~(np.isnan(size) & np.isnan(flop))
        device = table["device"][rows]
        old = _ceilings(size, flop, kind, [_rates(each) for each in peaks(trace)], device)
        to = {**product.flop_per_s, "bandwidth": product.memory_bytes_per_s or np.nan}
        new = _ceilings(size, flop, kind, [to], np.zeros(len(device), np.int64))
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = [np.nan_to_num(each / time, nan=0.0, posinf=0.0) for each in old]
            ratio = [np.nan_to_num(b / a, nan=0.0) for a, b in zip(old, new, strict=True)]
            least = np.nan_to_num(np.fmax(*new) / time, nan=0.0, posinf=0.0)
        near = np.maximum(*reached) >= NEAR_PCT / 100
        self.memory: Mask = near & (reached[0] >= reached[1]) & (ratio[0] > 0)
        self.compute: Mask = near & (reached[0] < reached[1]) & (ratio[1] > 0)
        factor = np.where(self.memory, ratio[0], np.where(self.compute, ratio[1], 1.0))
        raised = np.where(self.memory | self.compute, np.fmax(factor, least), 1.0)
        # Kernels above a ceiling of this GPU are served by caches: they keep the plain ratio.
        self.factor: Floats = np.where(np.maximum(*reached) > 1, factor, raised)


def _rates(known: Peaks) -> dict[str, float]:
    return {name: peak.value for name, peak in known.items()}


def _ceilings(
    size: Floats, flop: Floats, kind: Array, rates: list[dict[str, float]], device: Array
) -> tuple[Floats, Floats]:
    """The least time in ns for the bytes and for the FLOP of each kernel; NaN where unknown."""
    bandwidth = np.array([each.get("bandwidth", np.nan) for each in rates])
    peak = np.array([[each.get(name, np.nan) for name in KINDS] + [np.nan] for each in rates])
    return size / bandwidth[device] * 1e9, flop / peak[device, kind] * 1e9


_HOLDS = (operations.CallKind.SYNCHRONIZE, operations.CallKind.COPY)
"""Calls that no CUDA graph can hold: what is launched before and behind one is two graphs."""


def graph(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """What each instance of a range launches is launched at once, up to where the CPU waits."""
    trace, graph_ = scope.trace, scope.model.graph
    ops = operations.operations(trace)
    hit = named_ranges(trace, asked.target)
    if not hit.any():
        raise no_range(trace, asked.target)
    of_range = _instance_of_operations(scope, hit)
    rows = np.flatnonzero(scope.operations & (of_range >= 0) & ops.launched)
    blocking = _blocking(trace)
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


def _blocking(trace: Trace) -> Mask:
    """True for the API calls that wait for work."""
    every = waits(trace)
    held = np.isin(every.does, (*_HOLDS, operations.CallKind.COPY_ASYNC))
    return groups.marked(every.call[held], len(operations.api_calls(trace)))


def _calls_time(scope: EditScope, item: Array) -> int:
    """The time that measured calls take by themselves."""
    rows = scope.measured_calls(scope.model.graph.call[item])
    calls = operations.api_calls(scope.trace)
    return int((calls.end_ns[rows] - calls.start_ns[rows]).sum())


def _instance_of_operations(scope: EditScope, hit: Array) -> Array:
    """The range instance in which each operation was launched, −1 outside of all.

    Where the ranges are steps, autograd's launches belong to the step of the main thread.
    """
    trace, tree = scope.trace, ranges.range_tree(scope.trace)
    top = instances(trace, hit)
    step = steps(trace).range
    if len(step) and np.array_equal(np.flatnonzero(top == np.arange(len(top))), np.sort(step)):
        of = step_of_operations(trace)
        return np.where(of >= 0, step[of], -1)
    return nesting.nearest(top, tree.parent, ranges.attributed_operations(trace).range)


def _waits_before(scope: EditScope, rows: Array, blocking: Array) -> Integers:
    """How many waits of its process came before the launch of each operation."""
    calls, ops = operations.api_calls(scope.trace), operations.operations(scope.trace)
    process = scope.trace.recorded("api_calls")["process"]
    result = np.zeros(len(rows), np.int64)
    for number, places in groups.rows_of(ops.process[rows]).items():
        times = np.sort(calls.start_ns[blocking & (process == number)])
        result[places] = np.searchsorted(times, calls.start_ns[ops.call[rows[places]]])
    return result


def no_recorder(scope: EditScope, asked: EditRequest) -> AppliedEdit:
    """Each call takes less by what the recorder adds to one."""
    if scope.trace.recorder == schema.TORCH_PROFILER:
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
        scope.model.cheaper(changed)
        changed.own_ns[others], changed.begin_ns[before_others] = kept, kept_begin

    measured = scope.measured_calls(rows)
    calls = operations.api_calls(scope.trace)
    time = int((calls.end_ns[measured] - calls.start_ns[measured]).sum())
    values = {"recorder_call_ns": float(scope.model.call_ns)}
    return AppliedEdit(
        asked, "call", scope.per_step(len(measured)), scope.per_step(time), change, values
    )
