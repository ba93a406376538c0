"""Columns from the values of events, whatever their types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.tables import NULL, Integers, RowNumbers, Texts, null_of, object_array
from traceview.trace.kineto.digits import nanoseconds
from traceview.trace.kineto.events import Events

INT32 = np.iinfo(np.int32)
ABSENT = null_of(np.dtype(np.int32))
MOST_BYTES = 1 << 50
FARTHEST_NS = 1 << 61


def integers(values: Iterable[Any], absent: int = NULL) -> Integers:
    """Integers, also of digits in quotes; `absent` for anything else."""
    found = [value if type(value) is int else _integer(value, absent) for value in values]
    try:
        return np.array(found, np.int64)
    except OverflowError:
        most = np.iinfo(np.int64).max
        return np.array([v if abs(v) <= most else absent for v in found], np.int64)


def amounts(values: Iterable[Any], absent: int = 0) -> RowNumbers:
    """Integers of 0 or more as int32; `absent` for anything else."""
    found = integers(values, -1)
    return np.where((found < 0) | (found > INT32.max), absent, found).astype(np.int32)


def byte_counts(values: Iterable[Any]) -> Integers:
    found = integers(values, 0)
    return found.clip(0, MOST_BYTES)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _integer(value: Any, absent: int) -> int:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and value.strip("-").isdecimal() and len(value) < 19:
        return int(value)
    return absent


@dataclass
class Codes:
    """Distinct texts, numbered in order of appearance."""

    index: dict[str, int] = field(default_factory=dict)

    def of(self, values: Iterable[Any]) -> RowNumbers:
        """The number of each text; of None, that of an empty one."""
        put, index = self.index.setdefault, self.index
        found = [put(each if type(each) is str else _text(each), len(index)) for each in values]
        return np.array(found, np.int32)

    def texts(self, codes: RowNumbers) -> Texts:
        return Texts(codes, object_array(list(self.index)))


@dataclass
class ColumnParts:
    """The columns of one table, gathered chunk by chunk."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    rows: int = 0

    def add(self, **columns: Any) -> None:
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)
        self.rows += len(next(iter(columns.values())))

    def take(self, name: str, dtype: Any = np.int64) -> Any:
        """A column, which is then forgotten."""
        parts = self.columns.pop(name, [])
        return np.concatenate(parts) if parts else np.zeros(0, dtype)


@dataclass(frozen=True)
class Times:
    """Start and end of events in ns; `sound` is False where the event has no time."""

    start: Integers
    end: Integers
    sound: np.ndarray[Any, np.dtype[np.bool_]]
    negative: int


def times(events: Events) -> Times:
    start = nanoseconds([event.ts for event in events])
    length = nanoseconds([event.dur for event in events])
    sound = (start != NULL) & (length != NULL)
    negative = sound & (length < 0)
    length = np.where(sound, length, 0).clip(0, FARTHEST_NS)
    start = np.where(sound, start, 0).clip(-FARTHEST_NS, FARTHEST_NS)
    return Times(start, start + length, sound, int(negative.sum()))
