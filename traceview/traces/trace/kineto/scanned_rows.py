"""Scanned events added to the same tables as the events that Python decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from traceview.base.tables import Array, Integers, RowNumbers
from traceview.traces.trace.kineto.columns import Codes
from traceview.traces.trace.kineto.cpu_work import CpuWork, named_with_sizes
from traceview.traces.trace.kineto.gpu_work import GpuWork
from traceview.traces.trace.kineto.python_calls import PythonCalls
from traceview.traces.trace.kineto.scanner import Scan, ScannedTable, ScannedTexts

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


class _FinalNumbers:
    """A map from a scanner's numbers of texts to the final numbers.

    A text is decoded when a row that is kept first refers to it: a wrongly cut block may have left
    byte strings that are no texts.
    """

    def __init__(
        self, texts: Sequence[bytes], read: Callable[[Sequence[bytes]], Sequence[int]]
    ) -> None:
        self._texts, self._read = texts, read
        self._numbers = np.zeros(0, np.int32)

    def of(self, scanned: Integers) -> RowNumbers:
        if len(self._texts) > len(self._numbers):
            longer = np.full(2 * len(self._texts), _UNREAD, np.int32)
            longer[: len(self._numbers)] = self._numbers
            self._numbers = longer
        final = self._numbers[scanned]
        unread = final == _UNREAD
        if unread.any():
            new, first = np.unique(scanned[unread], return_index=True)
            new = new[np.argsort(first)]
            self._numbers[new] = self._read([self._texts[number] for number in new.tolist()])
            final = self._numbers[scanned]
        return final


_UNREAD = -1


class _ScannerNumbers(NamedTuple):
    """The final numbers for one scanner: of the names of each table, and of threads."""

    names: Sequence[_FinalNumbers]
    threads: _FinalNumbers


@dataclass
class ScannedRows:
    """Adds the rows of scans to the tables of GPU work, CPU work and Python calls."""

    gpu: GpuWork
    cpu: CpuWork
    python: PythonCalls
    _final: dict[ScannedTexts, _ScannerNumbers] = field(default_factory=dict)

    def add(self, scan: Scan) -> list[int]:
        """Add all rows; return by table the row that its first new one became (only of CALLS)."""
        numbers = self._numbers(scan.texts)
        first = []
        for table, add in enumerate(self._adders()):
            rows = scan.columns[table]
            first.append(self.cpu.calls.rows if table == ScannedTable.CALLS else 0)
            if rows.shape[1]:
                add(rows, numbers.names[table].of(rows[_NAME]), numbers.threads)
        return first

    def _numbers(self, texts: ScannedTexts) -> _ScannerNumbers:
        if texts not in self._final:
            self._final[texts] = _ScannerNumbers(
                [
                    _FinalNumbers(names, partial(self._codes, ScannedTable(table)))
                    for table, names in enumerate(texts.names)
                ],
                _FinalNumbers(texts.threads, self._thread_numbers),
            )
        return self._final[texts]

    def _thread_numbers(self, raw: Sequence[bytes]) -> list[int]:
        return [self.cpu.owners.number(*_owner(each)) for each in raw]

    def _codes(self, table: ScannedTable, raw: Sequence[bytes]) -> list[int]:
        codes: Codes | None = {
            ScannedTable.KERNELS: self.gpu.names,
            ScannedTable.COPIES: self.gpu.copy_names,
            ScannedTable.CALLS: self.cpu.call_names,
            ScannedTable.OPERATORS: self.cpu.operators.names,
            ScannedTable.ANNOTATIONS: self.cpu.annotations.names,
            ScannedTable.PYTHON: self.python.names,
        }.get(table)
        if codes is None:
            return [0] * len(raw)
        return codes.of([_name(each) for each in raw]).tolist()

    def _adders(self) -> tuple[Callable[[Integers, RowNumbers, _FinalNumbers], None], ...]:
        return (
            self._kernels,
            self._copies,
            self._sets,
            self._calls,
            self._operators,
            self._annotations,
            self._python,
        )

    def _kernels(self, rows: Integers, names: RowNumbers, _: _FinalNumbers) -> None:
        self.gpu.kernels.add(**_named(rows, (*_PLACE, *_SHAPE)), name=names)

    def _copies(self, rows: Integers, names: RowNumbers, _: _FinalNumbers) -> None:
        self.gpu.copies.add(**_named(rows, (*_PLACE, "bytes")), name=names)

    def _sets(self, rows: Integers, _: RowNumbers, __: _FinalNumbers) -> None:
        self.gpu.sets.add(**_named(rows, (*_PLACE, "bytes")))

    def _calls(self, rows: Integers, names: RowNumbers, threads: _FinalNumbers) -> None:
        columns = _named(rows, ("correlation_id",))
        self.cpu.calls.add(**columns, name=names, thread=threads.of(rows[_THREAD]))

    def _operators(self, rows: Integers, names: RowNumbers, threads: _FinalNumbers) -> None:
        self.cpu.operators.parts.add(**_named(rows), name=names, thread=threads.of(rows[_THREAD]))

    def _annotations(self, rows: Integers, names: RowNumbers, threads: _FinalNumbers) -> None:
        self.cpu.annotations.parts.add(**_named(rows), name=names, thread=threads.of(rows[_THREAD]))

    def _python(self, rows: Integers, names: RowNumbers, threads: _FinalNumbers) -> None:
        self.python.parts.add(
            start_ns=rows[_START],
            length_ns=rows[_END] - rows[_START],
            thread=threads.of(rows[_THREAD]),
            name=names,
            id=rows[_ARGUMENTS],
        )


def scanned_categories(scan: Scan) -> set[str]:
    """The categories of which the scan has rows."""
    return {name for table, name in _CATEGORIES.items() if scan.columns[table].shape[1]}


def _named(rows: Integers, arguments: Sequence[str] = ()) -> dict[str, Array]:
    shared = {"start_ns": rows[_START], "end_ns": rows[_END]}
    return {**shared, **dict(zip(arguments, rows[_ARGUMENTS:], strict=False))}


def _owner(raw: bytes) -> tuple[Any, Any]:
    process, thread = raw.split(b"\0")
    return msgspec.json.decode(process), msgspec.json.decode(thread)


def _name(raw: bytes) -> str:
    """The name in `raw`, a JSON string, which the sizes of a matrix operator may follow."""
    end = raw.index(b'"', 1) + 1
    escaped = b"\\" in raw[:end]
    name: str = msgspec.json.decode(raw if escaped else raw[:end])
    return name if escaped or end == len(raw) else named_with_sizes(name, raw[end:])
