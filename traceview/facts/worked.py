"""What the report calls one run of work: a kernel, or several kernels in one declaring range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.kernel_work import DECLARED, kernel_work
from traceview.facts.operations import kernel_operations
from traceview.facts.selection import selected_operations
from traceview.facts.set_up import set_up_kernels
from traceview.facts.work_part import Floats, Part
from traceview.facts.work_sampled import alone
from traceview.tables import Array, Integers, Mask, Texts, object_array
from traceview.trace import Trace

_NO_GRID = -1


@dataclass(frozen=True)
class Worked:
    """One entry a run. `grid` is −1 for several kernels; `device` is a row of devices.

    `name` is a kernel's base name, `whole` that with templates and arguments, by which types are
    told apart; of several kernels both are the range's. `part`, `bytes_from` and `flop_from` are as
    in kernel_work.KernelWork. `alone` is False where other work ran on the GPU at the same time,
    which takes its part of the rates; `early` is True for the work of set-up.
    """

    name: Texts
    whole: Texts
    grid: tuple[Integers, Integers, Integers]
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
    x, y, z = (kernels[f"grid_{axis}"][rows].astype(np.int64) for axis in "xyz")
    part = Part(work.part.bytes[rows], work.part.flop[rows], work.part.kind[rows])
    took = (kernels["end_ns"] - kernels["start_ns"])[rows]
    name, device = kernels.texts("short_name").take(rows), kernels["device"][rows]
    sources = work.bytes_from[rows], work.flop_from[rows]
    whole, early = kernels.texts("name").take(rows), set_up_kernels(trace)[rows]
    return Worked(name, whole, (x, y, z), device, took, part, *sources, alone(trace)[rows], early)


def _ranges(trace: Trace, rows: Integers) -> Worked:
    """The kernels of each passage as one."""
    kernels, passages = trace.recorded("kernels"), kernel_work(trace).passages
    assert passages is not None
    found = groups.group(passages.of[rows])
    took = groups.sums(found, (kernels["end_ns"] - kernels["start_ns"])[rows])
    place = passages.of[rows][found.first]
    part = Part(passages.part.bytes[place], passages.part.flop[place], passages.part.kind[place])
    none = np.full(len(place), _NO_GRID)
    names = Texts.of([passages.name[number] for number in place.tolist()])
    return Worked(
        names,
        names,
        (none, none, none),
        kernels["device"][rows][found.first],
        took,
        part,
        _source(part.bytes),
        _source(part.flop),
        groups.sums(found, ~alone(trace)[rows]) == 0,
        groups.sums(found, ~set_up_kernels(trace)[rows]) == 0,
    )


def _source(values: Floats) -> Integers:
    return np.where(np.isnan(values), -1, DECLARED)


def _joined(first: Worked, second: Worked) -> Worked:
    def both(a: Array, b: Array) -> Array:
        return np.concatenate((a, b))

    def texts(a: Texts, b: Texts) -> Texts:
        shift = np.int32(len(a.values))
        return Texts(both(a.codes, b.codes + shift), object_array([*a.values, *b.values]))

    x, y, z = (both(a, b) for a, b in zip(first.grid, second.grid, strict=True))
    return Worked(
        texts(first.name, second.name),
        texts(first.whole, second.whole),
        (x, y, z),
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
