"""Scanned events added to the same tables as the events that Python decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from traceview.base.tables import Array, Integers, RowNumbers
from traceview.traces.trace.kineto.columns import Codes, ColumnParts
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


class _Target(NamedTuple):
    """Where the rows of a table go: the names of their further columns, and whether of a thread."""

    parts: ColumnParts
    names: Codes | None
    arguments: Sequence[str] = ()
    of_thread: bool = True


class ScannedRows:
    """Adds the rows of scans to the tables of GPU work, CPU work and Python calls."""

    def __init__(self, gpu: GpuWork, cpu: CpuWork, python: PythonCalls) -> None:
        self._cpu = cpu
        self._final: dict[ScannedTexts, _ScannerNumbers] = {}
        self._targets = {
            ScannedTable.KERNELS: _Target(gpu.kernels, gpu.names, (*_PLACE, *_SHAPE), False),
            ScannedTable.COPIES: _Target(gpu.copies, gpu.copy_names, (*_PLACE, "bytes"), False),
            ScannedTable.SETS: _Target(gpu.sets, None, (*_PLACE, "bytes"), False),
            ScannedTable.CALLS: _Target(cpu.calls, cpu.call_names, ("correlation_id",)),
            ScannedTable.OPERATORS: _Target(cpu.operators.parts, cpu.operators.names),
            ScannedTable.ANNOTATIONS: _Target(cpu.annotations.parts, cpu.annotations.names),
            ScannedTable.PYTHON: _Target(python.parts, python.names, ("id",)),
        }

    def add(self, scan: Scan) -> int:
        """Add all rows; return the row that the first new call became."""
        numbers, first_call = self._numbers(scan.texts), self._cpu.calls.rows
        for table, (parts, names, arguments, of_thread) in self._targets.items():
            rows = scan.columns[table]
            if not rows.shape[1]:
                continue
            columns: dict[str, Array] = {"start_ns": rows[_START], "end_ns": rows[_END]}
            columns |= zip(arguments, rows[_ARGUMENTS:], strict=False)
            if names is not None:
                columns["name"] = numbers.names[table].of(rows[_NAME])
            if of_thread:
                columns["thread"] = numbers.threads.of(rows[_THREAD])
            if table == ScannedTable.PYTHON:
                columns["length_ns"] = columns.pop("end_ns") - columns["start_ns"]
            parts.add(**columns)
        return first_call

    def _numbers(self, texts: ScannedTexts) -> _ScannerNumbers:
        if texts not in self._final:
            self._final[texts] = _ScannerNumbers(
                [
                    _FinalNumbers(names, partial(self._codes, ScannedTable(table)))
                    for table, names in enumerate(texts.names)
                ],
                _FinalNumbers(
                    texts.threads,
                    lambda raw: [self._cpu.owners.number(*_owner(each)) for each in raw],
                ),
            )
        return self._final[texts]

    def _codes(self, table: ScannedTable, raw: Sequence[bytes]) -> list[int]:
        codes = self._targets[table].names
        return [0] * len(raw) if codes is None else codes.of([_name(each) for each in raw]).tolist()


def scanned_categories(scan: Scan) -> set[str]:
    """The categories of which the scan has rows."""
    return {name for table, name in _CATEGORIES.items() if scan.columns[table].shape[1]}


def _owner(raw: bytes) -> tuple[Any, Any]:
    process, thread = raw.split(b"\0")
    return msgspec.json.decode(process), msgspec.json.decode(thread)


def _name(raw: bytes) -> str:
    """The name in `raw`, a JSON string, which the sizes of a matrix operator may follow."""
    end = raw.index(b'"', 1) + 1
    escaped = b"\\" in raw[:end]
    name: str = msgspec.json.decode(raw if escaped else raw[:end])
    return name if escaped or end == len(raw) else named_with_sizes(name, raw[end:])
