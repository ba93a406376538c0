"""Bandwidth of each version over sizes, relative to the peak of the GPU's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from traceview.bench.comparison import BenchReport, VersionResult, measure
from traceview.bench.operation import Operation
from traceview.bench.plan import BenchRequest
from traceview.records import record

_SATURATED_FRACTION = 0.9


@record
class BandwidthRow:
    """One version at one size. `in_cache`: its traffic fits in L2, so it may exceed the peak."""

    version: str
    size: int
    bytes_moved: int
    bytes_per_s: float
    peak_pct: float | None
    in_cache: bool | None


@record
class Bandwidth:
    """Bandwidth of each version by size.

    `saturated_from` maps a version to the smallest size from which its bandwidth stays above 90 %
    of its maximum. Below it there is too little work to fill the GPU.
    """

    peak_bytes_per_s: float | None
    rows: tuple[BandwidthRow, ...]
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
    """Measure the bandwidth of versions over sizes, from the operation's minimum traffic.

    Raises InputError as `measure` does.
    """
    dtypes = (dtype,) if dtype else ()
    request = BenchRequest(
        sizes, dtypes, versions, trials=trials, cold=cold, widths=False, peaks=peaks
    )
    report = measure(operation, request)
    peak, cache = report.peaks.memory_bytes_per_s, report.machine.l2_cache_bytes
    rows = tuple(_row(row, peak, cache) for row in report.rows if row.timing)
    names = dict.fromkeys(row.version for row in rows)
    return Bandwidth(peak, rows, {name: _saturated_from(rows, name) for name in names}, report)


def _row(row: VersionResult, peak: float | None, cache: int | None) -> BandwidthRow:
    rate, moved = row.bytes_per_s or 0.0, row.bytes_moved or 0
    peak_pct = 100 * rate / peak if peak else None
    return BandwidthRow(
        row.version, row.size, moved, rate, peak_pct, moved <= cache if cache else None
    )


def _saturated_from(rows: Iterable[BandwidthRow], version: str) -> int:
    by_size = sorted((row for row in rows if row.version == version), key=lambda row: row.size)
    maximum = max(row.bytes_per_s for row in by_size)
    size = by_size[-1].size
    for row in reversed(by_size):
        if row.bytes_per_s < _SATURATED_FRACTION * maximum:
            break
        size = row.size
    return size
