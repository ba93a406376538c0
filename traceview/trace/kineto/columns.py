"""Columns of integers, gathered chunk by chunk in little memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from ctypes import Structure, c_int64, c_uint64
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traceview import groups
from traceview.compiled import library
from traceview.records import frequent_record
from traceview.tables import Array, Integers, RowNumbers, constant, thrifty

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
        wide = np.ascontiguousarray(values, np.int64)
        spread, by_steps = _spread(wide, False), False
        if spread.most > np.iinfo(np.uint8).max and wide.ndim == 1:
            steps = _spread(wide, True)
            by_steps = steps.nbytes(wide.size) < spread.nbytes(wide.size)
            spread = steps if by_steps else spread
        first = int(wide[0]) if by_steps else None
        kind = spread.kind(wide.size)
        if kind is None:
            return cls(spread.least, constant(0, wide.shape, np.uint8), *_NONE_FAR, first)
        above, far_rows, far = _pack(wide, by_steps, spread, kind)
        return cls(spread.least, above.reshape(wide.shape), far_rows, far, first)

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


class _CSpread(Structure):
    _fields_ = (("least", c_uint64), ("most", c_uint64), ("beyond", 3 * c_int64))


@frequent_record
class _Spread:
    """The least of some numbers, the most that one is above it, and how many do not fit.

    `beyond` has the count of those that do not fit into 1, 2, 4 and 8 bytes.
    """

    least: int
    most: int
    beyond: tuple[int, ...]

    def kind(self, rows: int) -> type[np.unsignedinteger[Any]] | None:
        """The type that takes the fewest bytes; None if all numbers are equal."""
        if not self.most:
            return None
        return _UNSIGNED[min(range(len(_UNSIGNED)), key=lambda width: self._bytes(width, rows))]

    def nbytes(self, rows: int) -> int:
        if not self.most:
            return 0
        return min(self._bytes(width, rows) for width in range(len(_UNSIGNED)))

    def _bytes(self, width: int, rows: int) -> int:
        """Bytes of all numbers in a type, and 12 bytes for each one that does not fit into it."""
        return (1 << width) * rows + (4 + 8) * self.beyond[width]


def _spread(values: Integers, by_steps: bool) -> _Spread:
    """The spread of the values or, `by_steps`, of the differences from one to the next."""
    found = _CSpread()
    library.call("traceview_spread", values, values.size, by_steps, found)
    return _Spread(c_int64(found.least).value, found.most, (*found.beyond, 0))


def _pack(
    values: Integers, by_steps: bool, spread: _Spread, kind: type[np.unsignedinteger[Any]]
) -> tuple[Array, RowNumbers, Array]:
    """How far the numbers are above the least; the rows of those that do not fit, and these."""
    above, far_count = np.empty(values.size, kind), spread.beyond[_UNSIGNED.index(kind)]
    far_rows, far = np.empty(far_count, np.int32), np.empty(far_count, np.uint64)
    least = spread.least % (1 << 64)
    given = (values, values.size, by_steps, least, above.itemsize, above, far_rows, far)
    library.call("traceview_pack", *given)
    return above, far_rows, far


def _modulo(value: int) -> np.uint64:
    """A value modulo 2^64: differences of unsigned integers are exact across all of int64."""
    return np.uint64(value % (1 << 64))


def _stored(values: Array) -> int:
    return values.nbytes if any(values.strides) else 0


_ALIGNMENT = 8


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _in_own_memory(columns: Mapping[str, PackedColumn]) -> dict[str, PackedColumn]:
    """The columns copied into an mmap of their own, which is unmapped once all are dropped.

    In Python's heap, freed arrays between arrays that are kept would not return their memory.
    """
    size = sum(_aligned(column.nbytes) + 3 * _ALIGNMENT for column in columns.values())
    pages, used = mmap.mmap(-1, size), 0

    def copy(values: Array) -> Array:
        nonlocal used
        if not _stored(values):
            return values
        copied = np.frombuffer(pages, values.dtype, values.size, used)
        copied[...] = values.reshape(-1)
        used += _aligned(values.nbytes)
        return copied.reshape(values.shape)

    return {
        name: replace(
            column,
            above=copy(column.above),
            far_rows=copy(column.far_rows),
            far=copy(column.far),
        )
        for name, column in columns.items()
    }


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
        values = [groups.different(block) for (block,) in self.blocks(name)]
        return groups.different(np.concatenate([np.zeros(0, np.int64), *values]))
