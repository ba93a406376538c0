"""Nsight Compute's counters from its CSV: bytes and FLOP of kernel launches."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.base.tables import Cell, Table
from traceview.base.vocabulary.kernel_words import KernelClass
from traceview.base.vocabulary.libraries import classify
from traceview.kernels.ptx import producers
from traceview.traces.trace.schema import KERNEL_COUNTERS

# Bytes and FLOP of kernel launches from the metrics of Nsight Compute.
#
# These metrics are used if present:
#
# - bytes: `dram__bytes_read.sum` + `dram__bytes_write.sum`, or `dram__bytes.sum`, or either as a
# rate (`.sum.per_second`) times `gpu__time_duration`; - FLOP of the CUDA cores: `smsp__` or
# `sm__sass_thread_inst_executed_op_{d,f,h}{add,mul,fma}_ pred_on.sum`. An FMA is 2 FLOP; fp16
# instructions work on pairs, as Nsight Compute's own roofline counts them. A precision counts
# only if all three of its counters are present; - FLOP of the tensor cores:
# `sm__ops_path_tensor_src_*.sum`; a multiply-add counts as 2.

# Numbers and units as Nsight Compute prints them, in any locale.

_GROUPING_COMMA = re.compile(r"\d{1,3}(,\d{3})+\.\d+|\d{1,3}(,\d{3}){2,}")
_GROUPING_POINT = re.compile(r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}")
_SPACES = str.maketrans("", "", " '_\u00a0\u2009\u202f’")
_LONGEST = 40
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNIT = re.compile(r"([KMGTP]?)(?:[Bb]ytes?|B|inst|)")
_SECONDS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
_TIME_UNIT = re.compile(r"([num]?)s(?:econds?)?")


def decimal_sign(cells: Iterable[str]) -> str:
    """The decimal separator: a comma if points separate thousands, else a point."""
    for cell in cells:
        if len(cell) <= _LONGEST:
            if _GROUPING_COMMA.fullmatch(cell):
                return "."
            if _GROUPING_POINT.fullmatch(cell):
                return ","
    return "."


def number(cell: str, decimal: str) -> float | None:
    """The number in a cell; None if it holds none (n/a, nan, empty)."""
    if not cell or len(cell) > _LONGEST:
        return None
    plain = cell.translate(_SPACES).replace("," if decimal == "." else ".", "")
    try:
        value = float(plain.replace(",", "."))
    except ValueError:
        return None
    return sound(value)


def sound(value: float) -> float | None:
    """A value that a counter can have; None for a negative, infinite or absurd one."""
    return value if 0 <= value < 1e24 else None


def factor(unit: str) -> float | None:
    """Factor from that unit to bytes or instructions; None if it is no such unit."""
    match = _UNIT.fullmatch(unit.strip())
    return _PREFIXES[match[1]] if match else None


def rate_factor(unit: str) -> float | None:
    """Factor from that unit to bytes per second; None if it is no such unit."""
    size, slash, time = unit.strip().partition("/")
    amount, seconds = factor(size), seconds_in(time)
    return amount / seconds if slash and amount is not None and seconds is not None else None


def seconds_in(unit: str) -> float | None:
    """Length of a unit of time in seconds; None if it is no such unit."""
    match = _TIME_UNIT.fullmatch(unit.strip())
    return _SECONDS[match[1]] if match else None


MOST_LAUNCHES = 1_000_000
_LARGEST = 1 << 62
RATE = ".per_second"
DURATION = "gpu__time_duration.sum"
_USED = re.compile(
    r"dram__bytes(_read|_write)?\.sum(\.per_second)?|gpu__time_duration\.sum"
    r"|sms?p?__sass_thread_inst_executed_op_[dfh](add|mul|fma)_pred_on\.sum"
    r"|sm__ops_path_tensor_src_.*\.sum|launch__(grid|block)_dim_[xyz]"
)
_OPERATIONS = ("add", "mul", "fma")
_CUDA_CORES = {"fp64": "d", "fp32": "f", "fp16-lanes": "h"}
_TENSOR = re.compile(r"sm__ops_path_tensor_src_([a-z]+\d+)(_dst_[a-z]+\d+)?\.sum")
_TENSOR_KINDS = {"fp64": "fp64-tensor"}
_NO_FLOP = {"int1", "int4"}
_PRODUCTS = (KernelClass.GEMM, KernelClass.CONVOLUTION, KernelClass.ATTENTION)

Metrics = Mapping[str, float]
"""Values of the used metrics of a launch: bytes, instructions, bytes per second or seconds."""
Size = tuple[int, int, int]


def is_used(metric: str) -> bool:
    """Whether `counted_launch` reads a metric."""
    return _USED.fullmatch(metric) is not None


def counted_launch(
    name: str, process: int, grid: Size, block: Size, metrics: Metrics
) -> dict[str, Cell]:
    """A row of kernel_counters. `name` is the base name of the kernel."""
    flop = _flop(metrics)
    total = sum(flop.values()) if flop else None
    if total == 0 and classify(name) in _PRODUCTS:
        # A GEMM with 0 FLOP ran on units that were not counted.
        total = None
    read, written = (_moved(metrics, f"dram__bytes_{way}.sum") for way in ("read", "write"))
    moved = _moved(metrics, "dram__bytes.sum")
    if read is not None and written is not None:
        moved = read + written
    sides = {f"grid_{axis}": side for axis, side in zip("xyz", grid, strict=True)}
    sides |= {f"block_{axis}": side for axis, side in zip("xyz", block, strict=True)}
    return {
        "short_name": name,
        # Columns are int64, and a damaged file may hold anything.
        **{axis: min(side, _LARGEST) for axis, side in sides.items()},
        "process_id": min(process, _LARGEST),
        "bytes": moved,
        "flop": total,
        "flop_kind": max(flop, key=lambda kind: flop[kind]) if total else None,
    }


def launch_size(metrics: Metrics, what: str) -> Size | None:
    """The size of the grid or block (`what`) by its metrics."""
    x, y, z = (metrics.get(f"launch__{what}_dim_{axis}") for axis in "xyz")
    return None if x is None or y is None or z is None else (int(x), int(y), int(z))


def remarks(file: str, metrics: Collection[str], table: Table) -> tuple[str, ...]:
    """Warnings about the metrics that a file lacks."""
    if not len(table):
        return (f"{file} contains no kernel launches",)
    if not any(_TENSOR.fullmatch(name) for name in metrics):
        return (
            f"{file} has no sm__ops_path_tensor_src_* metrics, so tensor-core FLOP are missing",
        )
    return ()


def _moved(metrics: Metrics, metric: str) -> float | None:
    """Bytes, or bytes per second times the duration that ncu measured (at its own clocks)."""
    counted, rate = metrics.get(metric), metrics.get(f"{metric}{RATE}")
    if counted is not None or rate is None or DURATION not in metrics:
        return counted
    return rate * metrics[DURATION]


def _flop(metrics: Metrics) -> dict[str, float]:
    """FLOP by data type, for the types whose counters are complete."""
    flop: dict[str, float] = {}
    for kind, letter in _CUDA_CORES.items():
        lanes = 2 if letter == "h" else 1
        whats = [
            f"__sass_thread_inst_executed_op_{letter}{what}_pred_on.sum" for what in _OPERATIONS
        ]
        parts = [metrics.get(f"smsp{what}", metrics.get(f"sm{what}")) for what in whats]
        counted = [part for part in parts if part is not None]
        if len(counted) == len(parts):
            flop[kind] = lanes * (counted[0] + counted[1] + 2 * counted[2])
    for kind, ops in _tensor(metrics).items():
        flop[kind] = flop.get(kind, 0) + ops
    return flop


def _tensor(metrics: Metrics) -> dict[str, float]:
    """Tensor-core FLOP by source type: the total counter, else the sum over result types."""
    whole: dict[str, float] = {}
    parts: dict[str, float] = {}
    for name, ops in metrics.items():
        match = _TENSOR.fullmatch(name)
        if not match or match[1] in _NO_FLOP:
            continue
        kind = _TENSOR_KINDS.get(match[1], match[1])
        into = parts if match[2] else whole
        into[kind] = into.get(kind, 0) + ops
    return {**parts, **whole}


def launches_of(table: Table) -> dict[tuple[Any, ...], list[int]]:
    """Rows of kernel_counters by base name, grid and block, in launch order."""
    keys = ("short_name", *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"))
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*(table.cells(name) for name in keys), strict=True)):
        rows.setdefault(key, []).append(row)
    return rows


# Nsight Compute counters, from the output of `ncu --csv --page raw`.
#
# One row per kernel launch, metrics as columns, units in the row below the names; output of the
# program and of ncu itself may come before and after.

HOW = "pass a report (.ncu-rep), or the output of ncu --csv --page raw --metrics … PROGRAM"
_HEADER = re.compile(r'\ufeff?"?ID"?([,;\t])"?Process ID"?\1')
_MOST_LINES_BEFORE = 100_000
_SHAPE = re.compile(r"\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?")


@record
class _Sheet:
    """Index of each column, the factors of the used metrics, and the decimal separator."""

    column: Mapping[str, int]
    factor: Mapping[str, float]
    decimal: str

    def metrics(self, row: Sequence[str]) -> dict[str, float]:
        """The values of the used metrics in a row, in base units."""
        cells = {metric: row[self.column[metric]] for metric in self.factor}
        values = {metric: number(cell, self.decimal) for metric, cell in cells.items()}
        return {m: value * self.factor[m] for m, value in values.items() if value is not None}


def read_counters(path: Path) -> tuple[Table, tuple[str, ...]]:
    """Read the kernel_counters table from a CSV file of Nsight Compute, and warnings about it.

    Raises InputError if the file is not such a CSV, or has none of the metrics used.
    """
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            header, delimiter = _header(path, file)
            rows = csv.reader(file, delimiter=delimiter)
            names = next(csv.reader([header], delimiter=delimiter))
            if "Metric Name" in names:
                raise InputError(f"{path} has one metric per line, not the raw page", HOW)
            units = next(rows, [])
            if len(units) != len(names) or units[0]:
                raise InputError(f"{path} has no row of units below the metric names", HOW)
            usable = (row for row in rows if len(row) == len(names) and row[0].strip().isdigit())
            taken = list(islice(usable, MOST_LAUNCHES))
            sheet = _sheet(path, names, units, taken)
            launches = [_launch(sheet, row) for row in taken]
            whole = [launch for launch in launches if launch is not None]
            table = Table.from_rows(KERNEL_COUNTERS.columns, whole)
            return table, remarks(path.name, names, table)
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror})", "pass the CSV output of ncu"
        ) from error
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file of Nsight Compute ({error})", HOW) from error


def _header(path: Path, lines: Iterator[str]) -> tuple[str, str]:
    first = ""
    for line in islice(lines, _MOST_LINES_BEFORE):
        first = first or line
        if match := _HEADER.match(line):
            return line, match[1]
    seen = f"it starts with {first.strip()[:40]!r}" if first.strip() else "it is empty"
    raise InputError(f"{path} is not a CSV file of Nsight Compute ({seen})", HOW)


def _sheet(
    path: Path, names: Sequence[str], units: Sequence[str], rows: Sequence[Sequence[str]]
) -> _Sheet:
    place = {name: at for at, name in enumerate(names)}
    used = [name for name in names if name.startswith(("dram__bytes", "gpu__time", "sm"))]
    if "Kernel Name" not in place or not any(
        name.startswith(("dram__bytes", "sm")) for name in used
    ):
        what = f"{path} has no metrics of device-memory bytes or FLOP"
        raise InputError(what, f"add --metrics dram__bytes_read.sum,dram__bytes_write.sum; {HOW}")
    cells = chain.from_iterable((row[place[name]] for name in used) for row in rows[:1000])
    factors = {name: _factor(name, unit) for name, unit in zip(names, units, strict=True)}
    usable = {name: f for name, f in factors.items() if f is not None and is_used(name)}
    return _Sheet(place, usable, decimal_sign(cells))


def _factor(metric: str, unit: str) -> float | None:
    """Factor to bytes, instructions, bytes per second or seconds; None if it is another unit."""
    if metric.startswith("launch__"):
        return 1.0
    if metric.endswith(RATE):
        return rate_factor(unit)
    return seconds_in(unit) if metric == DURATION else factor(unit)


def _launch(sheet: _Sheet, row: Sequence[str]) -> dict[str, Cell] | None:
    metrics = sheet.metrics(row)
    grid = _shape(sheet, row, "Grid") or launch_size(metrics, "grid")
    block = _shape(sheet, row, "Block") or launch_size(metrics, "block")
    if grid is None or block is None:
        return None
    process = number(row[sheet.column["Process ID"]], sheet.decimal) or 0
    name = producers.base_name(row[sheet.column["Kernel Name"]])
    return counted_launch(name, int(process), grid, block, metrics)


def _shape(sheet: _Sheet, row: Sequence[str], column: str) -> Size | None:
    at = sheet.column.get(f"{column} Size")
    match = _SHAPE.fullmatch(row[at].strip()) if at is not None else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
