"""Nsight Compute counters, from the output of `ncu --csv --page raw`.

One row per kernel launch, metrics as columns, units in the row below the names; output of the
program and of ncu itself may come before and after.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from traceview.errors import InputError
from traceview.records import record
from traceview.tables import Cell, Table
from traceview.trace.ncu import counters
from traceview.trace.schema.gpu_work import KERNEL_COUNTERS

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
        values = {metric: counters.number(cell, self.decimal) for metric, cell in cells.items()}
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
            taken = list(islice(usable, counters.MOST_LAUNCHES))
            sheet = _sheet(path, names, units, taken)
            launches = [_launch(sheet, row) for row in taken]
            whole = [launch for launch in launches if launch is not None]
            table = Table.from_rows(KERNEL_COUNTERS.columns, whole)
            return table, counters.remarks(path.name, names, table)
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
    usable = {name: f for name, f in factors.items() if f is not None and counters.is_used(name)}
    return _Sheet(place, usable, counters.decimal_sign(cells))


def _factor(metric: str, unit: str) -> float | None:
    """Factor to bytes, instructions, bytes per second or seconds; None if it is another unit."""
    if metric.startswith("launch__"):
        return 1.0
    if metric.endswith(counters.RATE):
        return counters.rate_factor(unit)
    return counters.seconds_in(unit) if metric == counters.DURATION else counters.factor(unit)


def _launch(sheet: _Sheet, row: Sequence[str]) -> dict[str, Cell] | None:
    metrics = sheet.metrics(row)
    grid = _shape(sheet, row, "Grid") or counters.launch_size(metrics, "grid")
    block = _shape(sheet, row, "Block") or counters.launch_size(metrics, "block")
    if grid is None or block is None:
        return None
    process = counters.number(row[sheet.column["Process ID"]], sheet.decimal) or 0
    name = counters.base_name(row[sheet.column["Kernel Name"]])
    return counters.counted_launch(name, int(process), grid, block, metrics)


def _shape(sheet: _Sheet, row: Sequence[str], column: str) -> counters.Size | None:
    at = sheet.column.get(f"{column} Size")
    match = _SHAPE.fullmatch(row[at].strip()) if at is not None else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
