"""Bandwidth of each version over sizes, relative to the peak of the GPU's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from traceview.bench.comparison import BenchReport, measure
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
    rows = []
    for row in report.rows:
        if row.timing:
            rate, moved = row.bytes_per_s or 0.0, row.bytes_moved or 0
            peak_pct = 100 * rate / peak if peak else None
            in_cache = moved <= cache if cache else None
            rows.append(BandwidthRow(row.version, row.size, moved, rate, peak_pct, in_cache))
    saturated_from: dict[str, int] = {}
    for version in dict.fromkeys(row.version for row in rows):
        by_size = sorted((r for r in rows if r.version == version), key=lambda r: -r.size)
        enough = _SATURATED_FRACTION * max(r.bytes_per_s for r in by_size)
        for measured in by_size:
            if measured.bytes_per_s < enough:
                break
            saturated_from[version] = measured.size
        saturated_from.setdefault(version, by_size[0].size)
    return Bandwidth(peak, tuple(rows), saturated_from, report)
