"""Results of earlier `traceview bench` runs, and the difference to this one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from traceview.base.errors import ComparisonRefusedError, InputError, unreadable
from traceview.base.records import record
from traceview.base.statistics import difference_bounds
from traceview.trials.bench.comparison import BenchReport

# Read the measurements that `traceview bench --json` wrote.

_AGAIN = "write it with: traceview bench FILE.py --json OLD.json"
_MOST_BYTES = 1 << 28
Key = tuple[int, int | None, str, str]
"""Size, swept value, data type, version."""


class SavedWidth(msgspec.Struct, frozen=True):
    """The load width of a version."""

    bits: int | None = None


class SavedMachine(msgspec.Struct, frozen=True):
    """The properties of a machine that bear on times."""

    gpu: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    torch_version: str | None = None
    triton_version: str | None = None


class SavedResult(msgspec.Struct, frozen=True):
    """One version at one size and data type. `samples_ns` is empty if it was not timed."""

    size: int
    dtype: str
    version: str
    status: str
    value: int | None = None
    clock: str | None = None
    cache: str | None = None
    median_ns: float | None = None
    samples_ns: tuple[float, ...] = ()
    load_width: SavedWidth | None = None

    @property
    def key(self) -> Key:
        """The key that identifies the same row in another run."""
        return self.size, self.value, self.dtype, self.version

    @property
    def load_bits(self) -> int | None:
        """Bits per thread per load."""
        return self.load_width.bits if self.load_width else None


class SavedBench(msgspec.Struct, frozen=True):
    """One run of `traceview bench` on an operation."""

    operation: str
    over: str
    machine: SavedMachine
    rows: tuple[SavedResult, ...]


class _Kind(msgspec.Struct):
    schema_version: int
    operation: str | None = None
    program: str | None = None


def read_bench(path: Path) -> SavedBench:
    """The run in a file of `traceview bench --json`. Raises InputError for any other file."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(f"{path} is not from traceview bench: it is too large", _AGAIN)
        kind = msgspec.json.decode(content, type=_Kind)
        if kind.program is not None:
            raise InputError(f"{path} is of a program, not of an operation", _AGAIN)
        saved = msgspec.json.decode(content, type=SavedBench)
    except OSError as error:
        raise unreadable(path, error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not from traceview bench ({error})", _AGAIN) from error
    for row in saved.rows:
        # Files of earlier versions of traceview lack the samples.
        times = (*row.samples_ns, row.median_ns or 0.0) if row.samples_ns else (row.median_ns,)
        if any(time is not None and time <= 0 for time in times):
            raise InputError(f"{path} is damaged: a time is not above 0", _AGAIN)
    if len({row.key for row in saved.rows}) < len(saved.rows):
        raise InputError(f"{path} is damaged: a version is listed twice", _AGAIN)
    return saved


def saved_bench(report: BenchReport) -> SavedBench:
    """A run that was just measured, in the form of a saved one."""
    names = SavedMachine.__struct_fields__
    machine = SavedMachine(**{name: getattr(report.machine, name) for name in names})
    rows = tuple(
        SavedResult(
            row.size,
            row.dtype,
            row.version,
            row.status,
            row.value,
            row.timing.clock if row.timing else None,
            row.timing.cache if row.timing else None,
            row.median_ns,
            row.timing.samples_ns if row.timing else (),
            SavedWidth(row.width.bits) if row.width else None,
        )
        for row in report.rows
    )
    return SavedBench(report.operation.name, report.over, machine, rows)


def benches_of(
    runs: str | Path | BenchReport | Sequence[str | Path | BenchReport],
) -> tuple[SavedBench, ...]:
    """The runs of files or reports. Raises InputError as `read_bench`, and without any."""
    listed = [runs] if isinstance(runs, (str, Path, BenchReport)) else [*runs]
    if not listed:
        raise InputError("a side without runs", "pass at least one file of traceview bench --json")
    return tuple(
        saved_bench(run) if isinstance(run, BenchReport) else read_bench(Path(run))
        for run in listed
    )


# The difference between two sets of bench runs, per version, size and data type.

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


_VERSIONS = {
    "gpu": "GPU",
    "driver_version": "driver",
    "cuda_version": "CUDA",
    "torch_version": "torch",
    "triton_version": "Triton",
}


def bench_difference(
    before: Sequence[SavedBench], after: Sequence[SavedBench], force: bool = False
) -> BenchDifference:
    """Compare runs of an operation.

    Raises ComparisonRefusedError if the operations differ, or the GPUs unless `force`.
    """
    check_alike(map(Measured.of, (*before, *after)), force=force)
    rows_of: dict[Key, tuple[list[SavedResult], list[SavedResult]]] = {}
    # Versions of the later side come first.
    for side, runs in ((1, after), (0, before)):
        for row in (row for run in runs for row in run.rows):
            rows_of.setdefault(row.key, ([], []))[side].append(row)
    notes = []
    for name, word in _VERSIONS.items():
        old, new = (
            ", ".join(dict.fromkeys(str(getattr(run.machine, name)) for run in side))
            for side in (before, after)
        )
        if old != new:
            notes.append(f"{word} {new} instead of {old}")
    return BenchDifference(
        after[0].operation,
        len(before),
        len(after),
        LEVEL,
        tuple(notes),
        tuple(_difference(key, *sides) for key, sides in rows_of.items()),
    )


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


def _difference(
    key: Key, before: Sequence[SavedResult], after: Sequence[SavedResult]
) -> VersionDifference:
    size, value, dtype, version = key
    timed = [[row for row in side if row.median_ns is not None] for side in (before, after)]
    medians = [[row.median_ns or 0.0 for row in side] for side in timed]
    old, new = (fmean(times) if times else None for times in medians)
    methods = [{(row.clock, row.cache) for row in side} for side in timed]
    delta = low = high = None
    basis: Basis = "none"
    if old is not None and new is not None and methods[0] == methods[1]:
        delta, tail = new - old, (1 - LEVEL) / 2
        if len(before) == len(after) == 1:
            samples = before[0].samples_ns, after[0].samples_ns
            low, high = difference_bounds(*samples, tail) if all(samples) else (None, None)
            basis = "none" if low is None else "trials"
        else:
            basis, (low, high) = "runs", difference_bounds(medians[0], medians[1], tail)
    change: Change = "unclear"
    if not before or not after:
        change = "vanished" if before else "appeared"
    elif delta is None:
        change = "untimed"
    # The bounds are of means: outliers can move these where the medians say the opposite.
    elif low is not None and low > 0 and delta > 0:
        change = "slower"
    elif high is not None and high < 0 and delta < 0:
        change = "faster"
    excludes_zero = low is not None and high is not None and (low > 0 or high < 0)
    return VersionDifference(
        size=size,
        value=value,
        dtype=dtype,
        version=version,
        change=change,
        basis=basis,
        is_certain=basis == "runs" and excludes_zero,
        before_ns=old,
        after_ns=new,
        delta_pct=100 * delta / old if delta is not None and old else None,
        low_ns=low,
        high_ns=high,
        status_before=before[-1].status if before else None,
        status_after=after[-1].status if after else None,
        load_bits_before=before[-1].load_bits if before else None,
        load_bits_after=after[-1].load_bits if after else None,
    )
