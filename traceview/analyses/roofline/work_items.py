"""Work items of the roofline: a kernel launch, or the kernels of one pass through a range."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.kernel_labels import kernel_labels
from traceview.facts.operations.kernel_classes import communication_kernels
from traceview.facts.ranges.selection import selected_kernels
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.estimate import Floats, WorkEstimate
from traceview.facts.work.from_metrics import alone
from traceview.facts.work.from_ranges import declared_in
from traceview.facts.work.kernel_work import DECLARED, kernel_work
from traceview.records import record
from traceview.tables import (
    Array,
    Integers,
    Mask,
    Table,
    Texts,
    constant,
    object_array,
    picked,
    unbroken,
)
from traceview.trace import Trace

_NO_GRID = -1
Sides = tuple[Integers, Integers, Integers]
"""Along x, y and z, one entry per work item each."""


@record
class WorkItems:
    """One entry per work item. `grid`, `block` and `registers` are -1 for several kernels.

    `name` is a kernel's base name, `label` as in kernel_labels, `full_name` the demangled name; for
    several kernels all three are the range's. `declared_in` is the range that declares a kernel's
    work, `device` a row of devices. `estimate`, `bytes_from` and `flop_from` are as in
    kernel_work.KernelWork. `alone` is False where other work ran on the GPU at the same time and
    shared the rates; `early` is True for warm-up.
    """

    name: Texts
    label: Texts
    full_name: Texts
    declared_in: Texts
    grid: Sides
    block: Sides
    registers: Integers
    device: Array
    duration_ns: Integers
    estimate: WorkEstimate
    bytes_from: Integers
    flop_from: Integers
    alone: Mask
    early: Mask
    of: Integers
    """The work item of each row of kernels, −1 for those of none."""

    @property
    def known(self) -> Mask:
        """True where bytes or FLOP are known."""
        result: Mask = (self.bytes_from >= 0) | (self.flop_from >= 0)
        return result


def work_items(trace: Trace) -> WorkItems:
    """The selected work of the trace without communication, whose time is mostly waiting."""
    chosen = selected_kernels(trace) & ~communication_kernels(trace)
    passages = kernel_work(trace).passages
    if passages is None or not (passages.of >= 0).any():
        return _kernels(trace, np.flatnonzero(chosen))
    alone = _kernels(trace, np.flatnonzero(chosen & (passages.of < 0)))
    return _joined(alone, _ranges(trace, np.flatnonzero(chosen & (passages.of >= 0))))


def _kernels(trace: Trace, rows: Integers) -> WorkItems:
    kernels, work, chosen = trace.recorded("kernels"), kernel_work(trace), unbroken(rows)
    return WorkItems(
        kernels.texts("short_name").take(chosen),
        kernel_labels(trace).take(chosen),
        kernels.texts("name").take(chosen),
        declared_in(trace).take(chosen),
        _sides(kernels, "grid", chosen),
        _sides(kernels, "block", chosen),
        _wide(picked(kernels["registers_per_thread"], chosen)),
        picked(kernels["device"], chosen),
        picked(kernels.duration_ns, chosen),
        _rows_of(work.estimate, chosen),
        picked(work.bytes_from, chosen),
        picked(work.flop_from, chosen),
        picked(alone(trace), chosen),
        picked(kernels_in_warm_up(trace), chosen),
        _item_of(trace, chosen, np.arange(len(rows))),
    )


def _item_of(trace: Trace, rows: Array | slice, items: Integers) -> Integers:
    result = np.full(len(trace.recorded("kernels")), -1)
    result[rows] = items
    return result


def _sides(kernels: Table, what: str, rows: Array | slice) -> Sides:
    x, y, z = (_wide(picked(kernels[f"{what}_{axis}"], rows)) for axis in "xyz")
    return x, y, z


def _wide(values: Array) -> Integers:
    """The values as int64; a `constant` stays one."""
    if len(values) and values.strides == (0,):
        return constant(int(values[0]), len(values), np.int64)
    return values.astype(np.int64)


def _ranges(trace: Trace, rows: Integers) -> WorkItems:
    """One work item for the kernels of each pass through a declaring range."""
    kernels, passages = trace.recorded("kernels"), kernel_work(trace).passages
    assert passages is not None
    passes = groups.group(passages.of[rows])
    duration_ns = groups.sums(passes, kernels.duration_ns[rows])
    place = passages.of[rows][passes.first]
    estimate = _rows_of(passages.estimate, place)
    none = np.full(len(place), _NO_GRID)
    names = Texts.of([passages.name[number] for number in place.tolist()])
    return WorkItems(
        names,
        names,
        names,
        Texts(none.astype(np.int32), object_array([])),
        (none, none, none),
        (none, none, none),
        none,
        kernels["device"][rows][passes.first],
        duration_ns,
        estimate,
        _source(estimate.bytes),
        _source(estimate.flop),
        groups.sums(passes, ~alone(trace)[rows]) == 0,
        groups.sums(passes, ~kernels_in_warm_up(trace)[rows]) == 0,
        _item_of(trace, rows, passes.ids),
    )


def _rows_of(estimate: WorkEstimate, rows: Array | slice) -> WorkEstimate:
    columns = (estimate.bytes, estimate.flop, estimate.kind)
    return WorkEstimate(*(picked(column, rows) for column in columns))


def _source(values: Floats) -> Integers:
    return np.where(np.isnan(values), -1, DECLARED)


def _joined(first: WorkItems, second: WorkItems) -> WorkItems:
    def both(a: Array, b: Array) -> Array:
        return np.concatenate((a, b))

    def texts(a: Texts, b: Texts) -> Texts:
        later = np.where(b.codes < 0, b.codes, b.codes + np.int32(len(a.values)))
        return Texts(both(a.codes, later), object_array([*a.values, *b.values]))

    def sides(a: Sides, b: Sides) -> Sides:
        x, y, z = (both(one, other) for one, other in zip(a, b, strict=True))
        return x, y, z

    return WorkItems(
        texts(first.name, second.name),
        texts(first.label, second.label),
        texts(first.full_name, second.full_name),
        texts(first.declared_in, second.declared_in),
        sides(first.grid, second.grid),
        sides(first.block, second.block),
        both(first.registers, second.registers),
        both(first.device, second.device),
        both(first.duration_ns, second.duration_ns),
        WorkEstimate(
            both(first.estimate.bytes, second.estimate.bytes),
            both(first.estimate.flop, second.estimate.flop),
            both(first.estimate.kind, second.estimate.kind),
        ),
        both(first.bytes_from, second.bytes_from),
        both(first.flop_from, second.flop_from),
        both(first.alone, second.alone),
        both(first.early, second.early),
        np.where(second.of >= 0, second.of + len(first.device), first.of),
    )
