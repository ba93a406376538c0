"""Nsight Compute counters, from the output of `ncu --csv --page raw`.

One row per kernel launch, metrics as columns, units in the row below the names; output of the
program and of ncu itself may come before and after. These metrics are used if present:

- bytes: `dram__bytes_read.sum` + `dram__bytes_write.sum`, or `dram__bytes.sum`, or either as a
  rate (`.sum.per_second`) times `gpu__time_duration`;
- FLOP of the CUDA cores: `smsp__` or `sm__sass_thread_inst_executed_op_{d,f,h}{add,mul,fma}_
  pred_on.sum`. An FMA is 2 FLOP; fp16 instructions work on pairs, as Nsight Compute's own
  roofline counts them. A precision counts only if all three of its counters are present;
- FLOP of the tensor cores: `sm__ops_path_tensor_src_*.sum`; a multiply-add counts as 2.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from traceview.errors import InputError
from traceview.tables import Cell, Table
from traceview.trace.ncu.numbers import decimal_sign, factor, number, rate_factor, seconds_in
from traceview.trace.schema import KERNEL_COUNTERS

HOW = (
    "run ncu --csv --page raw --metrics … PROGRAM, or ncu --csv --page raw --import REPORT.ncu-rep"
)
_HEADER = re.compile(r'\ufeff?"?ID"?([,;\t])"?Process ID"?\1')
_MOST_LINES_BEFORE = 100_000
_MOST_LAUNCHES = 1_000_000
_SHAPE = re.compile(r"\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?")
_CUDA_CORES = {"fp64": "d", "fp32": "f", "fp16-lanes": "h"}
_TENSOR = re.compile(r"sm__ops_path_tensor_src_([a-z]+\d+)(_dst_[a-z]+\d+)?\.sum")
_TENSOR_KINDS = {"fp64": "fp64-tensor"}
_NO_FLOP = {"int1", "int4"}
_PRODUCT = re.compile(r"(?i)gemm|nvjet|matmul|cutlass|xmma|cudnn|conv|flash|attention|fmha|_mm_")


@dataclass(frozen=True)
class _Sheet:
    """Column index and unit of each metric, and the decimal separator of its numbers."""

    column: Mapping[str, int]
    unit: Mapping[str, str]
    decimal: str

    def value(self, row: Sequence[str], metric: str) -> float | None:
        if metric not in self.column:
            return None
        found, by = number(row[self.column[metric]], self.decimal), factor(self.unit[metric])
        return None if found is None or by is None else found * by


def read_counters(path: Path) -> tuple[Table, tuple[str, ...]]:
    """Read the kernel_counters table from a CSV file of Nsight Compute, and warnings about it.

    Raises InputError if the file is not such a CSV, or has none of the metrics used.
    """
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return _read(path, file)
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror})", "pass the CSV output of ncu"
        ) from error
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file of Nsight Compute ({error})", HOW) from error


def _read(path: Path, lines: Iterator[str]) -> tuple[Table, tuple[str, ...]]:
    header, delimiter = _header(path, lines)
    rows = csv.reader(lines, delimiter=delimiter)
    names = next(csv.reader([header], delimiter=delimiter))
    if "Metric Name" in names:
        raise InputError(f"{path} has one metric per line, not the raw page", HOW)
    units = next(rows, [])
    if len(units) != len(names) or units[0]:
        raise InputError(f"{path} has no row of units below the metric names", HOW)
    usable = (row for row in rows if len(row) == len(names) and row[0].strip().isdigit())
    taken = list(islice(usable, _MOST_LAUNCHES))
    sheet = _sheet(path, names, units, taken)
    done = [_launch(sheet, row) for row in taken]
    whole = [launch for launch in done if launch is not None]
    table = Table.from_rows(KERNEL_COUNTERS.columns, whole)
    return table, _remarks(path, names, table)


def _header(path: Path, lines: Iterator[str]) -> tuple[str, str]:
    first = ""
    for line in islice(lines, _MOST_LINES_BEFORE):
        first = first or line
        if found := _HEADER.match(line):
            return line, found[1]
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
    return _Sheet(place, {name: units[place[name]] for name in names}, decimal_sign(cells))


def _remarks(path: Path, names: Sequence[str], table: Table) -> tuple[str, ...]:
    remarks = []
    if not len(table):
        remarks.append(f"{path.name} contains no kernel launches")
    elif not any(_TENSOR.fullmatch(name) for name in names):
        remarks.append(
            f"{path.name} has no sm__ops_path_tensor_src_* metrics, so tensor-core FLOP are missing"
        )
    return tuple(remarks)


def _launch(sheet: _Sheet, row: Sequence[str]) -> dict[str, Cell] | None:
    grid, block = _shape(sheet, row, "Grid", "grid"), _shape(sheet, row, "Block", "block")
    if grid is None or block is None:
        return None
    name = base_name(row[sheet.column["Kernel Name"]])
    flop = _flop(sheet, row)
    total = sum(flop.values()) if flop else None
    if total == 0 and _PRODUCT.search(name):
        # A GEMM with 0 FLOP ran on units that this file does not count.
        total = None
    process = number(row[sheet.column["Process ID"]], sheet.decimal) or 0
    return {
        "short_name": name,
        **{f"grid_{axis}": side for axis, side in zip("xyz", grid, strict=True)},
        **{f"block_{axis}": side for axis, side in zip("xyz", block, strict=True)},
        "process_id": int(process),
        "bytes": _bytes(sheet, row),
        "flop": total,
        "flop_kind": max(flop, key=lambda kind: flop[kind]) if total else None,
    }


def _shape(
    sheet: _Sheet, row: Sequence[str], column: str, metric: str
) -> tuple[int, int, int] | None:
    at = sheet.column.get(f"{column} Size")
    found = _SHAPE.fullmatch(row[at].strip()) if at is not None else None
    if found:
        return int(found[1]), int(found[2]), int(found[3])
    sides = [sheet.value(row, f"launch__{metric}_dim_{axis}") for axis in "xyz"]
    x, y, z = (None if side is None else int(side) for side in sides)
    return None if x is None or y is None or z is None else (x, y, z)


def _bytes(sheet: _Sheet, row: Sequence[str]) -> float | None:
    both = [_moved(sheet, row, f"dram__bytes_{way}.sum") for way in ("read", "write")]
    read, written = both
    if read is not None and written is not None:
        return read + written
    return _moved(sheet, row, "dram__bytes.sum")


def _moved(sheet: _Sheet, row: Sequence[str], metric: str) -> float | None:
    """Bytes, or bytes per second times the duration that ncu measured (at its own clocks)."""
    counted = sheet.value(row, metric)
    rate, time = f"{metric}.per_second", "gpu__time_duration.sum"
    if counted is not None or rate not in sheet.column or time not in sheet.column:
        return counted
    speed = number(row[sheet.column[rate]], sheet.decimal)
    lasted = number(row[sheet.column[time]], sheet.decimal)
    per_second, seconds = rate_factor(sheet.unit[rate]), seconds_in(sheet.unit[time])
    if speed is None or lasted is None or per_second is None or seconds is None:
        return None
    return speed * per_second * lasted * seconds


def _flop(sheet: _Sheet, row: Sequence[str]) -> dict[str, float]:
    """FLOP by data type, of the types that were counted."""
    found: dict[str, float] = {}
    for kind, letter in _CUDA_CORES.items():
        lanes = 2 if letter == "h" else 1
        parts = [_thread_ops(sheet, row, f"{letter}{what}") for what in ("add", "mul", "fma")]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            found[kind] = lanes * (known[0] + known[1] + 2 * known[2])
    for kind, ops in _tensor(sheet, row).items():
        found[kind] = found.get(kind, 0) + ops
    return found


def _thread_ops(sheet: _Sheet, row: Sequence[str], what: str) -> float | None:
    values = (
        sheet.value(row, f"{unit}__sass_thread_inst_executed_op_{what}_pred_on.sum")
        for unit in ("smsp", "sm")
    )
    return next((value for value in values if value is not None), None)


def _tensor(sheet: _Sheet, row: Sequence[str]) -> dict[str, float]:
    """Tensor-core FLOP by source type: the total counter if present, else the sum over results."""
    whole: dict[str, float] = {}
    parts: dict[str, float] = {}
    for name in sheet.column:
        found = _TENSOR.fullmatch(name)
        if not found or found[1] in _NO_FLOP or (ops := sheet.value(row, name)) is None:
            continue
        kind = _TENSOR_KINDS.get(found[1], found[1])
        into = parts if found[2] else whole
        into[kind] = into.get(kind, 0) + ops
    return {**parts, **whole}


def base_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters."""
    bare: list[str] = []
    depth = 0
    for character in name.replace("(anonymous namespace)", "")[:10_000]:
        opens, closes = character in "<([{", character in ">)]}"
        if opens and character == "(" and depth == 0 and "".join(bare).strip():
            break
        depth += opens
        if depth == 0:
            bare.append(character)
        depth = max(depth - closes, 0)
    words = "".join(bare).replace("::", " ").split()
    return words[-1] if words else name[:80]


def launches_of(table: Table) -> dict[tuple[Any, ...], list[int]]:
    """Rows of kernel_counters by base name, grid and block, in launch order."""
    keys = ("short_name", *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"))
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*(table.cells(name) for name in keys), strict=True)):
        found.setdefault(key, []).append(row)
    return found
