"""Where in the roofline equal runs of work are: rates, shares of the peaks, and what binds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from traceview import groups
from traceview.analyses.roofline.work_items import Sides, Worked
from traceview.facts.work.estimate import KINDS, Floats
from traceview.facts.work.kernel_work import MEASURED, SOURCES
from traceview.facts.work.peaks import Peaks
from traceview.tables import Integers

NEAR_PCT = 60.0
MEMORY = "bandwidth"
_MOST = float(1 << 62)


class Place:
    """Some equal runs: their work, and what of the peaks of their GPU they reach, in per cent.

    `grid`, `block` and `registers` are None for several kernels.

    Of bytes that nobody measured, faster than the memory can deliver them, there is no share: a
    cache answered.
    """

    def __init__(self, runs: Worked, roofs: tuple[Peaks, ...], mine: Integers) -> None:
        first = int(mine[0])
        self.device = int(runs.device[first])
        self.name, self.whole, self.calls = runs.name[first], runs.whole[first], len(mine)
        self.label, self.inside = runs.label[first], runs.inside[first]
        self.total_ns = int(runs.took[mine].sum())
        self.beside_ns = int(runs.took[mine[~runs.alone[mine]]].sum())
        self.steady_ns = int(runs.took[mine[~runs.early[mine]]].sum())
        self.bytes_from, self.flop_from = int(runs.bytes_from[first]), int(runs.flop_from[first])
        self.bytes = float(runs.part.bytes[mine].sum()) if self.bytes_from >= 0 else None
        self.flop = float(runs.part.flop[mine].sum()) if self.flop_from >= 0 else None
        kind = int(runs.part.kind[first])
        self.kind = KINDS[kind] if kind >= 0 and self.flop else None
        self.grid, self.block = _sides(runs.grid, first), _sides(runs.threads, first)
        registers = int(runs.registers[first])
        self.registers = None if registers < 0 else registers
        self._roofs = roofs[self.device]

    @property
    def flop_per_byte(self) -> float | None:
        return self.flop / self.bytes if self.flop is not None and self.bytes else None

    @cached_property
    def memory_pct(self) -> float | None:
        share = self._share(self.bytes, MEMORY)
        from_cache = self.bytes_from > MEASURED and share is not None and share > 100
        return None if from_cache else share

    @cached_property
    def compute_pct(self) -> float | None:
        return 0.0 if self.flop == 0 else self._share(self.flop, self.kind)

    def _share(self, amount: float | None, roof: str | None) -> float | None:
        peak, rate = self.peak(roof), self.rate(amount)
        return None if rate is None or peak is None else 100 * rate / peak

    def rate(self, amount: float | None) -> float | None:
        """Of that amount, a second."""
        return amount / self.total_ns * 1e9 if amount is not None and self.total_ns else None

    def peak(self, roof: str | None) -> float | None:
        """MEMORY in bytes, or a kind of FLOP, a second; None where nobody knows it."""
        known = self._roofs.get(roof or "")
        return known.value if known else None

    @property
    def least_ns(self) -> int | None:
        """Time at the nearer roof; None where neither is known."""
        shares = [share for share in (self.memory_pct, self.compute_pct) if share is not None]
        return round(self.total_ns * min(max(shares) / 100, 1.0)) if shares else None

    @property
    def bound(self) -> str:
        """What holds the runs back: memory, compute, latency or unknown."""
        memory, compute = self.memory_pct, self.compute_pct
        nearest = max(memory or 0.0, compute or 0.0)
        if nearest >= NEAR_PCT:
            return "memory" if nearest == memory else "compute"
        return "unknown" if memory is None or compute is None else "latency"

    @property
    def basis(self) -> str:
        """The sources of bytes and FLOP, once if they are the same."""
        if self.bytes_from == self.flop_from:
            return SOURCES[self.bytes_from]
        told = (("bytes", self.bytes_from), ("FLOP", self.flop_from))
        return ", ".join(f"{what}: {SOURCES[of]}" for what, of in told if of >= 0)


def places(runs: Worked, roofs: tuple[Peaks, ...]) -> list[Place]:
    """Runs of equal name, GPU, grid, block, registers, basis and work together, most time first.

    What was measured differs from run to run. What is known beforehand is the same for all, or
    they are not alike: one kernel of Triton has one name for all data types. Nor are runs alike
    that other ranges declare: they may do the same work with another stride.
    """
    found = [Place(runs, roofs, mine) for mine in _alike(runs)]
    return sorted(found, key=lambda place: -place.total_ns)


def _alike(runs: Worked) -> Iterator[Integers]:
    mine = np.flatnonzero(runs.known)
    texts = (runs.name.codes, runs.whole.codes, runs.inside.codes)
    keys = (*texts, runs.device, *runs.grid, *runs.threads, runs.registers, runs.part.kind)
    work = (
        _foreknown(runs.part.bytes, runs.bytes_from),
        _foreknown(runs.part.flop, runs.flop_from),
    )
    found = groups.group(*(key[mine] for key in (*keys, runs.bytes_from, runs.flop_from, *work)))
    order = np.argsort(found.ids, kind="stable")
    ends = np.cumsum(np.bincount(found.ids, minlength=found.size))[:-1]
    yield from np.split(mine[order], ends) if found.size else ()


def _sides(sides: Sides, run: int) -> str | None:
    said = [int(axis[run]) for axis in sides]
    return "x".join(map(str, said)) if min(said) >= 0 else None


def _foreknown(amount: Floats, source: Integers) -> Integers:
    """The work where nobody measured it, whole; −1 elsewhere."""
    told = (source > MEASURED) & (amount < _MOST)
    return np.where(told, amount, -1).astype(np.int64)
