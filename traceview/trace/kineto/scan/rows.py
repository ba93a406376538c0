"""Scanned events as rows of the tables that events of Python are gathered in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from traceview.tables import Array, Integers, RowNumbers
from traceview.trace.kineto.cpu_work import CpuWork, named_with_sizes
from traceview.trace.kineto.gpu_work import GpuWork
from traceview.trace.kineto.scan.scanner import Scan, ScannedTable
from traceview.trace.kineto.stacks.calls import PythonCalls
from traceview.trace.kineto.values import Codes

_CATEGORIES = {
    ScannedTable.KERNELS: "kernel",
    ScannedTable.COPIES: "gpu_memcpy",
    ScannedTable.SETS: "gpu_memset",
    ScannedTable.CALLS: "cuda_runtime",
    ScannedTable.OPERATORS: "cpu_op",
    ScannedTable.ANNOTATIONS: "user_annotation",
    ScannedTable.PYTHON: "python_function",
}
_PLACE = ("device", "context_id", "stream_id", "correlation_id", "node")
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared")
_START, _END, _NAME, _THREAD, _ARGUMENTS = range(5)


@dataclass
class _FinalNumbers:
    """The final number of each text as written, by its number in the scans."""

    numbers: RowNumbers = field(default_factory=lambda: np.zeros(0, np.int32))

    def of(self, scanned: Integers, new: Sequence[int]) -> RowNumbers:
        if new:
            self.numbers = np.append(self.numbers, np.array(new, np.int32))
        return self.numbers[scanned]


@dataclass
class ScannedRows:
    """Adds the rows of scans to what the other events of a trace say."""

    gpu: GpuWork
    cpu: CpuWork
    python: PythonCalls
    _names: list[_FinalNumbers] = field(
        default_factory=lambda: [_FinalNumbers() for _ in ScannedTable]
    )
    _threads: _FinalNumbers = field(default_factory=_FinalNumbers)

    def add(self, scan: Scan) -> list[int]:
        """Add all rows. Returns the row of each table that its first new one has become."""
        self.cpu.negative += scan.negative
        self._threads.of(_NONE, [self.cpu.owners.number(*_owner(raw)) for raw in scan.threads])
        first = []
        for table, add in enumerate(self._adders()):
            rows = scan.columns[table]
            names = self._names[table].of(rows[_NAME], self._codes(table, scan.names[table]))
            first.append(self.cpu.calls.rows if table == ScannedTable.CALLS else 0)
            if rows.shape[1]:
                add(rows, names)
        return first

    def _codes(self, table: int, raw: Sequence[bytes]) -> list[int]:
        codes: Codes | None = {
            ScannedTable.KERNELS: self.gpu.names,
            ScannedTable.COPIES: self.gpu.copy_names,
            ScannedTable.CALLS: self.cpu.call_names,
            ScannedTable.OPERATORS: self.cpu.operators.names,
            ScannedTable.ANNOTATIONS: self.cpu.annotations.names,
            ScannedTable.PYTHON: self.python.names,
        }.get(ScannedTable(table))
        if codes is None or not raw:
            return [0] * len(raw)
        numbers: list[int] = codes.of([_name(each) for each in raw]).tolist()
        return numbers

    def _adders(self) -> tuple[Callable[[Integers, RowNumbers], None], ...]:
        return (
            self._kernels,
            self._copies,
            self._sets,
            self._calls,
            self._operators,
            self._annotations,
            self._python,
        )

    def _kernels(self, rows: Integers, names: RowNumbers) -> None:
        self.gpu.kernels.add(**_named(rows, (*_PLACE, *_SHAPE)), name=names)

    def _copies(self, rows: Integers, names: RowNumbers) -> None:
        self.gpu.copies.add(**_named(rows, (*_PLACE, "bytes")), name=names)

    def _sets(self, rows: Integers, _: RowNumbers) -> None:
        self.gpu.sets.add(**_named(rows, (*_PLACE, "bytes")))

    def _calls(self, rows: Integers, names: RowNumbers) -> None:
        columns = _named(rows, ("correlation_id",))
        self.cpu.calls.add(**columns, name=names, thread=self._thread(rows))

    def _operators(self, rows: Integers, names: RowNumbers) -> None:
        self.cpu.operators.parts.add(**_named(rows), name=names, thread=self._thread(rows))

    def _annotations(self, rows: Integers, names: RowNumbers) -> None:
        self.cpu.annotations.parts.add(**_named(rows), name=names, thread=self._thread(rows))

    def _python(self, rows: Integers, names: RowNumbers) -> None:
        self.python.parts.add(
            start_ns=rows[_START],
            length_ns=rows[_END] - rows[_START],
            thread=self._thread(rows),
            name=names,
            id=rows[_ARGUMENTS],
        )

    def _thread(self, rows: Integers) -> RowNumbers:
        return self._threads.of(rows[_THREAD], ())


_NONE = np.zeros(0, np.int64)


def scanned_categories(scan: Scan) -> set[str]:
    """Those of which there are rows."""
    return {name for table, name in _CATEGORIES.items() if scan.columns[table].shape[1]}


def _named(rows: Integers, arguments: Sequence[str] = ()) -> dict[str, Array]:
    shared = {"start_ns": rows[_START], "end_ns": rows[_END]}
    return {**shared, **dict(zip(arguments, rows[_ARGUMENTS:], strict=False))}


def _owner(raw: bytes) -> tuple[Any, Any]:
    process, thread = raw.split(b"\0")
    return msgspec.json.decode(process), msgspec.json.decode(thread)


def _name(raw: bytes) -> str:
    """The name; the sizes of an operator of matrices stand behind it, as written."""
    end = raw.index(b'"', 1) + 1
    escaped = b"\\" in raw[:end]
    name: str = msgspec.json.decode(raw if escaped else raw[:end])
    return name if escaped or end == len(raw) else named_with_sizes(name, raw[end:])
