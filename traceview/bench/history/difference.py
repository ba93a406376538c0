"""The difference between two sets of bench runs, per version, size and data type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from traceview.bench.history.saved import Key, SavedBench, SavedResult
from traceview.errors import ComparisonRefusedError
from traceview.records import record
from traceview.statistics import Bounds, difference_bounds

LEVEL = 0.95
Basis = Literal["runs", "trials", "none"]
Change = Literal["faster", "slower", "unclear", "appeared", "vanished", "untimed"]


@record
class VersionDifference:
    """One version at one size and data type, before and after.

    Times are the medians of a run, averaged over the runs of a side; statuses and load widths are
    those of the last run. `low_ns` and `high_ns` bound the difference of the means at 95 %. With
    several runs per side the bounds come from the runs. With one they come from its trials, which
    scatter less than runs do, so they understate the noise. `change` is faster or slower if the
    bounds exclude 0, `is_certain` if they also come from runs.
    """

    size: int
    value: int | None
    dtype: str
    version: str
    change: Change
    basis: Basis
    is_certain: bool
    before_ns: float | None
    after_ns: float | None
    delta_pct: float | None
    low_ns: float | None
    high_ns: float | None
    status_before: str | None
    status_after: str | None
    load_bits_before: int | None
    load_bits_after: int | None


@record
class BenchDifference:
    """All versions of an operation. `notes` are differences of the machines, a possible cause."""

    operation: str
    runs_before: int
    runs_after: int
    level: float
    notes: tuple[str, ...]
    rows: tuple[VersionDifference, ...]


def bench_difference(
    before: Sequence[SavedBench], after: Sequence[SavedBench], force: bool = False
) -> BenchDifference:
    """Compare runs of an operation.

    Raises ComparisonRefusedError if the operations differ, or the GPUs unless `force`.
    """
    check_alike(map(Measured.of, (*before, *after)), force=force)
    old, new = _by_key(before), _by_key(after)
    keys = dict.fromkeys([*new, *old])
    rows = tuple(_difference(key, old.get(key, []), new.get(key, [])) for key in keys)
    notes = tuple(_notes(before, after))
    return BenchDifference(after[0].operation, len(before), len(after), LEVEL, notes, rows)


@record
class Measured:
    """The subject of a measurement: operation, swept parameter, and GPU (None without one)."""

    operation: str
    over: str
    gpu: str | None

    @classmethod
    def of(cls, run: SavedBench) -> Measured:
        return cls(run.operation, run.over, run.machine.gpu)


def check_alike(runs: Iterable[Measured], *, force: bool = False) -> None:
    """Raise ComparisonRefusedError if the operations differ, or the GPUs unless `force`."""
    listed = list(runs)
    operations = list(dict.fromkeys(run.operation for run in listed))
    swept = list(dict.fromkeys(run.over for run in listed))
    if len(operations) > 1 or len(swept) > 1:
        raise ComparisonRefusedError(
            f"these are of {' and '.join(operations)} over {' and '.join(swept)}",
            "compare runs of one operation",
        )
    gpus = list(dict.fromkeys(run.gpu or "no GPU" for run in listed))
    if len(gpus) > 1 and not force:
        raise ComparisonRefusedError(
            f"these were measured on {' and '.join(gpus)}",
            "measure both on one GPU, or pass force=True",
            "measure both on one GPU, or pass --force",
        )


def _by_key(runs: Sequence[SavedBench]) -> Mapping[Key, list[SavedResult]]:
    rows_by_key: dict[Key, list[SavedResult]] = {}
    for run in runs:
        for row in run.rows:
            rows_by_key.setdefault(row.key, []).append(row)
    return rows_by_key


def _notes(before: Sequence[SavedBench], after: Sequence[SavedBench]) -> list[str]:
    words = {
        "gpu": "GPU",
        "driver_version": "driver",
        "cuda_version": "CUDA",
        "torch_version": "torch",
        "triton_version": "Triton",
    }
    sides = [
        {name: ", ".join(dict.fromkeys(str(getattr(run.machine, name)) for run in side))
         for name in words}
        for side in (before, after)
    ]  # fmt: skip
    return [
        f"{word} {sides[1][name]} instead of {sides[0][name]}"
        for name, word in words.items()
        if sides[0][name] != sides[1][name]
    ]


def _difference(
    key: Key, before: Sequence[SavedResult], after: Sequence[SavedResult]
) -> VersionDifference:
    size, value, dtype, version = key
    old, new = _mean_ns(before), _mean_ns(after)
    delta = new - old if old is not None and new is not None else None
    comparable = delta is not None and _methods(before) == _methods(after)
    basis, (low, high) = _bounds(before, after) if comparable else ("none", (None, None))
    return VersionDifference(
        size=size,
        value=value,
        dtype=dtype,
        version=version,
        change=_change(before, after, delta if comparable else None, low, high),
        basis=basis,
        is_certain=basis == "runs" and _excludes_zero(low, high),
        before_ns=old,
        after_ns=new,
        delta_pct=100 * delta / old if comparable and delta is not None and old else None,
        low_ns=low,
        high_ns=high,
        status_before=before[-1].status if before else None,
        status_after=after[-1].status if after else None,
        load_bits_before=before[-1].load_bits if before else None,
        load_bits_after=after[-1].load_bits if after else None,
    )


def _mean_ns(rows: Sequence[SavedResult]) -> float | None:
    times = [row.median_ns for row in rows if row.median_ns is not None]
    return fmean(times) if times else None


def _methods(rows: Sequence[SavedResult]) -> set[tuple[str | None, str | None]]:
    return {(row.clock, row.cache) for row in rows if row.median_ns is not None}


def _bounds(before: Sequence[SavedResult], after: Sequence[SavedResult]) -> tuple[Basis, Bounds]:
    tail = (1 - LEVEL) / 2
    if len(before) == len(after) == 1:
        samples = before[0].samples_ns, after[0].samples_ns
        bounds = difference_bounds(*samples, tail) if all(samples) else (None, None)
        return ("none" if bounds[0] is None else "trials"), bounds
    medians = [[row.median_ns for row in side if row.median_ns] for side in (before, after)]
    return "runs", difference_bounds(medians[0], medians[1], tail)


def _change(
    before: Sequence[SavedResult],
    after: Sequence[SavedResult],
    delta: float | None,
    low: float | None,
    high: float | None,
) -> Change:
    if not before or not after:
        return "vanished" if before else "appeared"
    if delta is None:
        return "untimed"
    # The bounds are of means: outliers can move these where the medians say the opposite.
    if low is not None and low > 0 and delta > 0:
        return "slower"
    return "faster" if high is not None and high < 0 and delta < 0 else "unclear"


def _excludes_zero(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and (low > 0 or high < 0)
