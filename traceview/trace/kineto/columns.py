"""Columns of integers, gathered chunk by chunk in little memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traceview import groups
from traceview.tables import NULL, Array, Integers, RowNumbers, constant, thrifty

BLOCK_ROWS = 1 << 15
_UNSIGNED: tuple[type[np.unsignedinteger[Any]], ...] = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """A block of a column of integers, compressed.

    Neighboring rows are alike: times are close, ids follow each other, sizes repeat. So each row is
    stored as its difference `above` the `least` value, in a narrow type; the few differences that
    do not fit are in `far`, at `far_rows`. If `first` is set, differences from row to row are
    stored instead of values, and `first` is the first value. Equal rows are stored as a `constant`.
    """

    least: int
    above: Array
    far_rows: RowNumbers
    far: Array
    first: int | None

    @classmethod
    def of(cls, values: Array) -> PackedColumn:
        """Pack an array of integers or booleans, as values or as steps, whichever is smaller."""
        if values.ndim == 1 and thrifty(values).strides == (0,):
            return cls(int(values[0]), constant(0, values.shape, np.uint8), *_NONE_FAR, None)
        wide = values.astype(np.int64)
        plain = cls._of(wide, None)
        if plain.is_constant or wide.ndim > 1 or plain.above.itemsize == 1:
            return plain
        # The first value is stored in `first`, so the first step is arbitrary.
        steps = np.diff(wide, prepend=2 * wide[:1] - wide[1:2])
        by_steps = cls._of(steps, int(wide[0]))
        return by_steps if by_steps.nbytes < plain.nbytes else plain

    @classmethod
    def _of(cls, values: Integers, first: int | None) -> PackedColumn:
        flat = values.reshape(-1)
        # Absent values (NULL, the minimum of int64) wrap, and so count as far above the least one.
        present = flat[flat != NULL] if flat[0] == NULL or flat.min() == NULL else flat
        least = int(present.min()) if len(present) else NULL
        above = flat.view(np.uint64) - _modulo(least)
        most = int(above.max())
        if not most:
            return cls(least, constant(0, values.shape, np.uint8), *_NONE_FAR, first)
        enough = next(n for n, kind in enumerate(_UNSIGNED) if most <= np.iinfo(kind).max)
        kind = _UNSIGNED[enough]
        if enough:
            kind = min(_UNSIGNED[: enough + 1], key=lambda kind: _bytes_as(above, kind))
        near = above.astype(kind).reshape(values.shape)
        if kind is _UNSIGNED[enough]:
            return cls(least, near, *_NONE_FAR, first)
        rows = np.flatnonzero(above > np.iinfo(kind).max).astype(np.int32)
        return cls(least, near, rows, above[rows], first)

    def __len__(self) -> int:
        return len(self.above)

    @property
    def is_constant(self) -> bool:
        return self.first is None and not any(self.above.strides)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without the overhead of numpy objects."""
        return sum(map(_stored, (self.above, self.far_rows, self.far)))

    def values(self) -> Integers:
        wide = self.above.reshape(-1).astype(np.uint64)
        wide[self.far_rows] = self.far
        wide += _modulo(self.least)
        if self.first is not None:
            wide[0] = _modulo(self.first)
            np.cumsum(wide, out=wide)
        return wide.view(np.int64).reshape(self.above.shape)


_NONE_FAR = (np.zeros(0, np.int32), np.zeros(0, np.uint64))
_NO_ROWS = PackedColumn(0, np.zeros(0, np.uint8), *_NONE_FAR, None)


def _bytes_as(above: Array, kind: type[np.unsignedinteger[Any]]) -> int:
    """Bytes of the rows stored as `kind`, plus 12 bytes for each row that does not fit into it."""
    far = int(np.count_nonzero(above > np.iinfo(kind).max))
    return np.dtype(kind).itemsize * len(above) + (4 + 8) * far


def _modulo(value: int) -> np.uint64:
    """A value modulo 2^64: differences of unsigned integers are exact across all of int64."""
    return np.uint64(value % (1 << 64))


def _stored(values: Array) -> int:
    return values.nbytes if any(values.strides) else 0


def _in_own_memory(columns: Mapping[str, PackedColumn]) -> dict[str, PackedColumn]:
    """The columns copied into an mmap of their own, which is unmapped once all are dropped.

    In Python's heap, freed arrays between arrays that are kept would not return their memory.
    """
    size = sum(_aligned(each.nbytes) + 3 * _ALIGNMENT for each in columns.values())
    pages = _Pages(mmap.mmap(-1, size))
    return {
        name: replace(
            column,
            above=pages.copy(column.above),
            far_rows=pages.copy(column.far_rows),
            far=pages.copy(column.far),
        )
        for name, column in columns.items()
    }


@dataclass
class _Pages:
    """An mmap that arrays are copied into, one after the other."""

    pages: mmap.mmap
    used: int = 0

    def copy(self, values: Array) -> Array:
        if not _stored(values):
            return values
        copied = np.frombuffer(self.pages, values.dtype, values.size, self.used)
        copied[...] = values.reshape(-1)
        self.used += _aligned(values.nbytes)
        return copied.reshape(values.shape)


_ALIGNMENT = 8


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass
class ColumnParts:
    """The columns of one table, gathered chunk by chunk and packed block by block."""

    rows: int = 0
    _packed: dict[str, list[PackedColumn]] = field(default_factory=dict)
    _waiting: list[dict[str, Array]] = field(default_factory=list)
    _waiting_rows: int = 0

    def add(self, **columns: Array) -> None:
        count = len(next(iter(columns.values())))
        if not count:
            return
        self._waiting.append(columns)
        self._waiting_rows += count
        self.rows += count
        if self._waiting_rows >= BLOCK_ROWS:
            self._pack()

    def _pack(self) -> None:
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not waiting:
            return
        block = {
            name: PackedColumn.of(np.concatenate([columns[name] for columns in waiting]))
            for name in waiting[0]
        }
        for name, column in _in_own_memory(block).items():
            self._packed.setdefault(name, []).append(column)

    def take(self, name: str, dtype: Any = np.int64) -> Any:
        """Remove a column and return its values; a `constant` if all rows are equal."""
        self._pack()
        blocks = self._packed.pop(name, [])
        shape = (sum(map(len, blocks)), *(blocks[0].above.shape[1:] if blocks else ()))
        if blocks and all(b.is_constant and b.least == blocks[0].least for b in blocks):
            return constant(blocks[0].least, shape, dtype)
        result, first = np.empty(shape, dtype), 0
        for place, block in enumerate(blocks):
            result[first : first + len(block)] = block.values()
            first += len(block)
            blocks[place] = _NO_ROWS
        return result

    def blocks(self, *names: str, forget: bool = False) -> Iterator[list[Integers]]:
        """The values of some columns, block by block; with `forget`, free each block after it."""
        self._pack()
        columns = [self._packed.get(name, []) for name in names]
        for place in range(len(columns[0])):
            yield [blocks[place].values() for blocks in columns]
            for blocks in columns if forget else ():
                blocks[place] = _NO_ROWS

    def distinct(self, name: str) -> Integers:
        """The distinct values of a column, sorted."""
        each = [groups.different(values) for (values,) in self.blocks(name)]
        return groups.different(np.concatenate([np.zeros(0, np.int64), *each]))
