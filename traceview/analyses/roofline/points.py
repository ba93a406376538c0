"""Points of the roofline: equal work items with their rates, percent of peak and bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from traceview import groups
from traceview.analyses.roofline.work_items import Sides, WorkItems
from traceview.facts.work.estimate import KINDS, Floats
from traceview.facts.work.kernel_work import MEASURED, SOURCES
from traceview.facts.work.peaks import Peaks
from traceview.records import record
from traceview.tables import Integers

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
