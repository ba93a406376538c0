"""Work items of the roofline, and its points: equal items with their rates and percent of peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import (
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
from traceview.traces.facts.kernel_classes import communication_kernels, kernel_labels
from traceview.traces.facts.operations import kernel_operations
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.steps.steps import kernels_in_warm_up
from traceview.traces.facts.work.from_ranges import declared_in
from traceview.traces.facts.work.kernel_work import DECLARED, MEASURED, SOURCES, alone, kernel_work
from traceview.traces.facts.work.peaks import KINDS, Floats, Peaks, WorkEstimate
from traceview.traces.trace import Trace, fact

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
        return (self.bytes_from >= 0) | (self.flop_from >= 0)


@fact
def work_items(trace: Trace) -> WorkItems:
    """The selected work of the trace without communication, whose time is mostly waiting."""
    chosen = selected_operations(trace)[kernel_operations(trace)] & ~communication_kernels(trace)
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
        _extents(kernels, "grid", chosen),
        _extents(kernels, "block", chosen),
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


def _extents(kernels: Table, what: str, rows: Array | slice) -> Sides:
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


NEAR_PCT = 60.0
MEMORY = "bandwidth"
_MOST = float(1 << 62)


@record
class RooflinePoint:
    """Equal work items of one GPU: their total work, and how much of its peaks they reach.

    `name`, `label`, `full_name` and `declared_in` are as in WorkItems; `grid`, `block` and
    `registers` are None for several kernels. `bytes` and `flop` are of all `calls`, None where
    unknown; their sources are indices into SOURCES, -1 where unknown. Of `total_ns`, `beside_ns`
    is in calls beside which other work ran, and `steady_ns` in calls after warm-up. `items` are the
    numbers of the work items.
    """

    device: int
    name: str | None
    label: str | None
    full_name: str | None
    declared_in: str | None
    grid: str | None
    block: str | None
    registers: int | None
    calls: int
    total_ns: int
    beside_ns: int
    steady_ns: int
    bytes: float | None
    flop: float | None
    kind: str | None
    bytes_from: int
    flop_from: int
    peaks: Peaks
    items: Integers = field(compare=False, repr=False)

    @property
    def flop_per_byte(self) -> float | None:
        """Arithmetic intensity."""
        return self.flop / self.bytes if self.flop is not None and self.bytes else None

    @cached_property
    def memory_pct(self) -> float | None:
        """Percent of peak bandwidth.

        None where bytes that were not measured give more than 100: caches served part of them.
        """
        pct = self._pct_of_peak(self.bytes, MEMORY)
        cached = self.bytes_from > MEASURED and pct is not None and pct > 100
        return None if cached else pct

    @cached_property
    def compute_pct(self) -> float | None:
        """Percent of the peak rate of its kind of FLOP."""
        return 0.0 if self.flop == 0 else self._pct_of_peak(self.flop, self.kind)

    def _pct_of_peak(self, amount: float | None, figure: str | None) -> float | None:
        peak, rate = self.peak(figure), self.rate(amount)
        return None if rate is None or peak is None else 100 * rate / peak

    def rate(self, amount: float | None) -> float | None:
        """An amount of work per second of GPU time."""
        return amount / self.total_ns * 1e9 if amount is not None and self.total_ns else None

    def peak(self, figure: str | None) -> float | None:
        """The peak of MEMORY, in bytes per second, or of a kind of FLOP; None where unknown."""
        known = self.peaks.get(figure or "")
        return known.value if known else None

    @property
    def least_ns(self) -> int | None:
        """Time at the nearer ceiling; None where neither is known."""
        reached = [pct for pct in (self.memory_pct, self.compute_pct) if pct is not None]
        return round(self.total_ns * min(max(reached) / 100, 1.0)) if reached else None

    @property
    def bound(self) -> str:
        """`memory` or `compute` at 60 % of its peak or more, else `latency`, or `unknown`."""
        memory, compute = self.memory_pct, self.compute_pct
        nearest = max(memory or 0.0, compute or 0.0)
        if nearest >= NEAR_PCT:
            return "memory" if nearest == memory else "compute"
        return "unknown" if memory is None or compute is None else "latency"

    @property
    def basis(self) -> str:
        """The sources of bytes and FLOP, as one where they are the same."""
        if self.bytes_from == self.flop_from:
            return SOURCES[self.bytes_from]
        sources = (("bytes", self.bytes_from), ("FLOP", self.flop_from))
        return ", ".join(f"{what}: {SOURCES[source]}" for what, source in sources if source >= 0)


def points(items: WorkItems, peaks: Sequence[Peaks]) -> list[RooflinePoint]:
    """One point for all items equal in name, GPU, grid, block, registers, work and its sources.

    The longest total time comes first. Work that was measured may differ from call to call. Work
    known beforehand must be equal: a Triton kernel has one name for all data types. Items that
    different ranges declare stay apart, as they may do the same work with another stride.
    """
    of_items = [_point(items, peaks, rows) for rows in _equal_items(items)]
    return sorted(of_items, key=lambda point: -point.total_ns)


def _point(items: WorkItems, peaks: Sequence[Peaks], rows: Integers) -> RooflinePoint:
    first, duration_ns = int(rows[0]), items.duration_ns[rows]
    device, registers = int(items.device[first]), int(items.registers[first])
    bytes_from, flop_from = int(items.bytes_from[first]), int(items.flop_from[first])
    flop = float(items.estimate.flop[rows].sum()) if flop_from >= 0 else None
    kind = int(items.estimate.kind[first])
    return RooflinePoint(
        device=device,
        name=items.name[first],
        label=items.label[first],
        full_name=items.full_name[first],
        declared_in=items.declared_in[first],
        grid=_sides(items.grid, first),
        block=_sides(items.block, first),
        registers=None if registers < 0 else registers,
        calls=len(rows),
        total_ns=int(duration_ns.sum()),
        beside_ns=int(duration_ns[~items.alone[rows]].sum()),
        steady_ns=int(duration_ns[~items.early[rows]].sum()),
        bytes=float(items.estimate.bytes[rows].sum()) if bytes_from >= 0 else None,
        flop=flop,
        kind=KINDS[kind] if kind >= 0 and flop else None,
        bytes_from=bytes_from,
        flop_from=flop_from,
        peaks=peaks[device],
        items=rows,
    )


def _equal_items(items: WorkItems) -> Iterator[Integers]:
    known = np.flatnonzero(items.known)
    keys = (
        *(items.name.codes, items.full_name.codes, items.declared_in.codes, items.device),
        *(*items.grid, *items.block, items.registers, items.estimate.kind),
        *(items.bytes_from, items.flop_from),
        _known_beforehand(items.estimate.bytes, items.bytes_from),
        _known_beforehand(items.estimate.flop, items.flop_from),
    )
    equal = groups.group(*(key[known] for key in keys))
    order = np.argsort(equal.ids, kind="stable")
    ends = np.cumsum(np.bincount(equal.ids, minlength=equal.size))[:-1]
    yield from np.split(known[order], ends) if equal.size else ()


def _sides(sides: Sides, item: int) -> str | None:
    extents = [int(axis[item]) for axis in sides]
    return "x".join(map(str, extents)) if min(extents) >= 0 else None


def _known_beforehand(amount: Floats, source: Integers) -> Integers:
    """Work that was not measured, rounded down; -1 elsewhere."""
    return np.where((source > MEASURED) & (amount < _MOST), amount, -1).astype(np.int64)
