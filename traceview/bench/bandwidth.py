"""Bytes a second of each version over sizes, against what the GPU's memory can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from traceview.bench.comparison import BenchReport, Row, measure
from traceview.bench.operation import Operation
from traceview.bench.plan import Asked

_SATURATED = 0.9


@dataclass(frozen=True)
class Reached:
    """One version at one size. `in_cache`: its traffic fits into L2, so it may pass the peak."""

    version: str
    size: int
    bytes_moved: int
    bytes_per_s: float
    peak_pct: float | None
    in_cache: bool | None


@dataclass(frozen=True)
class Bandwidth:
    """What each version reached, by size.

    `saturated_from` is, by version, the least size from which on it stays above 90 % of the most
    it reached: under it there is too little work to fill the GPU.
    """

    peak_bytes_per_s: float | None
    rows: tuple[Reached, ...]
    saturated_from: Mapping[str, int]
    report: BenchReport


def bandwidth(
    operation: Operation,
    sizes: Sequence[int] = (),
    *,
    dtype: str | None = None,
    versions: Sequence[str] = (),
    trials: int = 30,
    cold: bool = True,
    peaks: str | Iterable[str] | Mapping[str, float] = (),
) -> Bandwidth:
    """Measure versions over sizes; bytes are the least traffic that the operation needs.

    Raises InputError as `measure` does.
    """
    dtypes = (dtype,) if dtype else ()
    asked = Asked(sizes, dtypes, versions, trials=trials, cold=cold, widths=False, peaks=peaks)
    report = measure(operation, asked)
    peak, cache = report.peaks.memory_bytes_per_s, report.machine.l2_cache_bytes
    rows = tuple(_reached(row, peak, cache) for row in report.rows if row.timing)
    names = dict.fromkeys(row.version for row in rows)
    return Bandwidth(peak, rows, {name: _knee(rows, name) for name in names}, report)


def _reached(row: Row, peak: float | None, cache: int | None) -> Reached:
    rate, moved = row.bytes_per_s or 0.0, row.bytes_moved or 0
    share = 100 * rate / peak if peak else None
    return Reached(row.version, row.size, moved, rate, share, moved <= cache if cache else None)


def _knee(rows: Iterable[Reached], version: str) -> int:
    own = sorted((row for row in rows if row.version == version), key=lambda row: row.size)
    most = max(row.bytes_per_s for row in own)
    size = own[-1].size
    for row in reversed(own):
        if row.bytes_per_s < _SATURATED * most:
            break
        size = row.size
    return size
