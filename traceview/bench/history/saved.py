"""Read the measurements that `traceview bench --json` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from traceview.bench.comparison import BenchReport, VersionResult
from traceview.errors import InputError, unreadable

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
    if any(not _is_consistent(row) for row in saved.rows):
        raise InputError(f"{path} is damaged: a time is not above 0", _AGAIN)
    if len({row.key for row in saved.rows}) < len(saved.rows):
        raise InputError(f"{path} is damaged: a version is listed twice", _AGAIN)
    return saved


def saved_bench(report: BenchReport) -> SavedBench:
    """A run that was just measured, in the form of a saved one."""
    names = SavedMachine.__struct_fields__
    machine = SavedMachine(**{name: getattr(report.machine, name) for name in names})
    return SavedBench(report.operation.name, report.over, machine, tuple(map(_saved, report.rows)))


def benches_of(
    given: str | Path | BenchReport | Sequence[str | Path | BenchReport],
) -> tuple[SavedBench, ...]:
    """The runs of files or reports. Raises InputError as `read_bench`, and without any."""
    listed = [given] if isinstance(given, (str, Path, BenchReport)) else [*given]
    if not listed:
        raise InputError("a side without runs", "pass at least one file of traceview bench --json")
    return tuple(
        saved_bench(each) if isinstance(each, BenchReport) else read_bench(Path(each))
        for each in listed
    )


def _saved(row: VersionResult) -> SavedResult:
    timing = row.timing
    return SavedResult(
        row.size,
        row.dtype,
        row.version,
        row.status,
        row.value,
        timing.clock if timing else None,
        timing.cache if timing else None,
        row.median_ns,
        timing.samples_ns if timing else (),
        SavedWidth(row.width.bits) if row.width else None,
    )


def _is_consistent(row: SavedResult) -> bool:
    """Whether times are above 0; files of earlier versions of traceview lack the samples."""
    times = (*row.samples_ns, *(() if row.median_ns is None else (row.median_ns,)))
    return min(times, default=1.0) > 0 and (row.median_ns is not None or not row.samples_ns)
