"""Columns of integers, gathered chunk by chunk in little memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.tables import Array, Integers, constant

BLOCK_ROWS = 1 << 14
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """Some rows of a column: the least value, and how far above it each row is.

    Neighboring rows are alike: times are close, ids follow each other, sizes repeat. So the
    differences take few bytes, and none where all are 0, which `constant` stores once.
    """

    least: int
    above: Array

    @classmethod
    def of(cls, values: Array) -> PackedColumn:
        """The rows of an array of integers or booleans."""
        least, span = int(values.min()), int(values.max()) - int(values.min())
        if not span:
            return cls(least, constant(0, values.shape, np.uint8))
        kind = next(kind for kind in _UNSIGNED if span <= np.iinfo(kind).max)
        return cls(least, (values.astype(np.uint64) - _modulo(least)).astype(kind))

    def __len__(self) -> int:
        return len(self.above)

    @property
    def is_constant(self) -> bool:
        return not any(self.above.strides)

    def fill(self, out: Array) -> None:
        """Write the rows into an array of their number and of a type that holds them."""
        out[...] = np.add(self.above, _modulo(self.least), dtype=np.uint64).view(np.int64)

    def values(self) -> Integers:
        result = np.empty(self.above.shape, np.int64)
        self.fill(result)
        return result


_NO_ROWS = PackedColumn(0, np.zeros(0, np.uint8))


def _modulo(value: int) -> np.uint64:
    """A value as unsigned integers count it: their differences are right across all of int64."""
    return np.uint64(value % (1 << 64))


def _in_own_memory(columns: Mapping[str, PackedColumn]) -> dict[str, PackedColumn]:
    """The same columns in pages of their own, which are free again once all are forgotten.

    In the memory that Python allocates from, what is freed between what is kept stays taken.
    """
    size = sum(_aligned(each.above.nbytes) for each in columns.values() if not each.is_constant)
    pages, first, moved = mmap.mmap(-1, max(size, 1)), 0, {}
    for name, each in columns.items():
        above = each.above
        if not each.is_constant:
            there = np.frombuffer(pages, above.dtype, above.size, first).reshape(above.shape)
            there[...] = above
            first, above = first + _aligned(above.nbytes), there
        moved[name] = PackedColumn(each.least, above)
    return moved


def _aligned(size: int) -> int:
    return -(-size // 8) * 8


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
        """A column, which is then forgotten: a `constant` where all rows are equal."""
        self._pack()
        blocks = self._packed.pop(name, [])
        shape = (sum(map(len, blocks)), *(blocks[0].above.shape[1:] if blocks else ()))
        if blocks and all(b.is_constant and b.least == blocks[0].least for b in blocks):
            return constant(blocks[0].least, shape, dtype)
        result, first = np.empty(shape, dtype), 0
        for place, block in enumerate(blocks):
            block.fill(result[first : first + len(block)])
            first += len(block)
            blocks[place] = _NO_ROWS
        return result

    def blocks(self, *names: str, forget: bool = False) -> Iterator[list[Integers]]:
        """Some columns, block by block; if wanted, each is forgotten once it is read."""
        self._pack()
        columns = [self._packed.get(name, []) for name in names]
        for place in range(len(columns[0])):
            yield [blocks[place].values() for blocks in columns]
            for blocks in columns if forget else ():
                blocks[place] = _NO_ROWS

    def distinct(self, name: str) -> Integers:
        """The distinct values of a column, sorted."""
        each = [np.unique(values) for (values,) in self.blocks(name)]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *each]))
