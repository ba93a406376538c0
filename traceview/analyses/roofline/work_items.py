"""What the report calls one run of work: a kernel, or several kernels in one declaring range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations.kernel_labels import kernel_labels
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.estimate import Floats, Part
from traceview.facts.work.from_metrics import alone
from traceview.facts.work.from_ranges import declared_in
from traceview.facts.work.kernel_work import DECLARED, kernel_work
from traceview.tables import Array, Integers, Mask, Table, Texts, object_array
from traceview.trace import Trace

_NO_GRID = -1
Sides = tuple[Integers, Integers, Integers]
"""Along x, y and z, an entry a run."""


@dataclass(frozen=True)
class Worked:
    """One entry a run. `grid`, `threads` (of a block) and `registers` are −1 for several kernels.

    `name` is a kernel's base name, `label` as in kernel_labels, `whole` that with templates and
    arguments, by which types are told apart; of several kernels all are the range's. `inside` is
    the range that declares a kernel's work, `device` a row of devices. `part`, `bytes_from` and
    `flop_from` are as in kernel_work.KernelWork. `alone` is False where other work ran on the GPU
    at the same time, which takes its part of the rates; `early` is True for the work of set-up.
    """

    name: Texts
    label: Texts
    whole: Texts
    inside: Texts
    grid: Sides
    threads: Sides
    registers: Integers
    device: Array
    took: Integers
    part: Part
    bytes_from: Integers
    flop_from: Integers
    alone: Mask
    early: Mask

    @property
    def known(self) -> Mask:
        """True where some source tells bytes or FLOP."""
        result: Mask = (self.bytes_from >= 0) | (self.flop_from >= 0)
        return result


def worked(trace: Trace) -> Worked:
    """The selected runs of the trace."""
    chosen = selected_operations(trace)[kernel_operations(trace)]
    passages = kernel_work(trace).passages
    if passages is None or not (passages.of >= 0).any():
        return _kernels(trace, np.flatnonzero(chosen))
    alone = _kernels(trace, np.flatnonzero(chosen & (passages.of < 0)))
    return _joined(alone, _ranges(trace, np.flatnonzero(chosen & (passages.of >= 0))))


def _kernels(trace: Trace, rows: Integers) -> Worked:
    kernels, work = trace.recorded("kernels"), kernel_work(trace)
    return Worked(
        kernels.texts("short_name").take(rows),
        kernel_labels(trace).take(rows),
        kernels.texts("name").take(rows),
        declared_in(trace).take(rows),
        _sides(kernels, "grid", rows),
        _sides(kernels, "block", rows),
        kernels["registers_per_thread"][rows].astype(np.int64),
        kernels["device"][rows],
        kernels.duration_ns[rows],
        Part(work.part.bytes[rows], work.part.flop[rows], work.part.kind[rows]),
        work.bytes_from[rows],
        work.flop_from[rows],
        alone(trace)[rows],
        kernels_in_warm_up(trace)[rows],
    )


def _sides(kernels: Table, what: str, rows: Integers) -> Sides:
    x, y, z = (kernels[f"{what}_{axis}"][rows].astype(np.int64) for axis in "xyz")
    return x, y, z


def _ranges(trace: Trace, rows: Integers) -> Worked:
    """The kernels of each passage as one."""
    kernels, passages = trace.recorded("kernels"), kernel_work(trace).passages
    assert passages is not None
    found = groups.group(passages.of[rows])
    took = groups.sums(found, kernels.duration_ns[rows])
    place = passages.of[rows][found.first]
    part = Part(passages.part.bytes[place], passages.part.flop[place], passages.part.kind[place])
    none = np.full(len(place), _NO_GRID)
    names = Texts.of([passages.name[number] for number in place.tolist()])
    return Worked(
        names,
        names,
        names,
        Texts(none.astype(np.int32), object_array([])),
        (none, none, none),
        (none, none, none),
        none,
        kernels["device"][rows][found.first],
        took,
        part,
        _source(part.bytes),
        _source(part.flop),
        groups.sums(found, ~alone(trace)[rows]) == 0,
        groups.sums(found, ~kernels_in_warm_up(trace)[rows]) == 0,
    )


def _source(values: Floats) -> Integers:
    return np.where(np.isnan(values), -1, DECLARED)


def _joined(first: Worked, second: Worked) -> Worked:
    def both(a: Array, b: Array) -> Array:
        return np.concatenate((a, b))

    def texts(a: Texts, b: Texts) -> Texts:
        later = np.where(b.codes < 0, b.codes, b.codes + np.int32(len(a.values)))
        return Texts(both(a.codes, later), object_array([*a.values, *b.values]))

    def sides(a: Sides, b: Sides) -> Sides:
        x, y, z = (both(one, other) for one, other in zip(a, b, strict=True))
        return x, y, z

    return Worked(
        texts(first.name, second.name),
        texts(first.label, second.label),
        texts(first.whole, second.whole),
        texts(first.inside, second.inside),
        sides(first.grid, second.grid),
        sides(first.threads, second.threads),
        both(first.registers, second.registers),
        both(first.device, second.device),
        both(first.took, second.took),
        Part(
            both(first.part.bytes, second.part.bytes),
            both(first.part.flop, second.part.flop),
            both(first.part.kind, second.part.kind),
        ),
        both(first.bytes_from, second.bytes_from),
        both(first.flop_from, second.flop_from),
        both(first.alone, second.alone),
        both(first.early, second.early),
    )
