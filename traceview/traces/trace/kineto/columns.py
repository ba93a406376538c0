"""Columns from the values of events, of any type, gathered chunk by chunk in little memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from ctypes import Structure, c_int64, c_uint64
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Decimal
from operator import attrgetter
from typing import Any

import numpy as np

from traceview.base import groups, tables
from traceview.base.compiled import library
from traceview.base.records import frequent_record, record
from traceview.base.tables import Array, Integers, RowNumbers, Texts
from traceview.traces.trace.kineto.events import NO_ARGUMENTS, Arguments, Events

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
        if values.ndim == 1 and tables.thrifty(values).strides == (0,):
            return cls(int(values[0]), tables.constant(0, values.shape, np.uint8), *_NONE_FAR, None)
        wide = np.ascontiguousarray(values, np.int64)
        spread, by_steps = _spread(wide, False), False
        if spread.most > np.iinfo(np.uint8).max and wide.ndim == 1:
            steps = _spread(wide, True)
            by_steps = steps.nbytes(wide.size) < spread.nbytes(wide.size)
            spread = steps if by_steps else spread
        first = int(wide[0]) if by_steps else None
        kind = spread.kind(wide.size)
        if kind is None:
            return cls(spread.least, tables.constant(0, wide.shape, np.uint8), *_NONE_FAR, first)
        # How far the numbers are above the least; the rows of those that do not fit, and
        # these.
        above, far_count = np.empty(wide.size, kind), spread.beyond[_UNSIGNED.index(kind)]
        far_rows, far = np.empty(far_count, np.int32), np.empty(far_count, np.uint64)
        least = spread.least % (1 << 64)
        given = (wide, wide.size, by_steps, least, above.itemsize, above, far_rows, far)
        library.call("traceview_pack", *given)
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
            column, above=copy(column.above), far_rows=copy(column.far_rows), far=copy(column.far)
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
            return tables.constant(blocks[0].least, shape, dtype)
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


# Times in microseconds, as written, to whole nanoseconds.
#
# Kineto writes nanoseconds as `123456.789` microseconds, relative to a base or since 1970. A
# float holds neither: 53 bits are less than both need. So the digits are read, and rounded only
# beyond the third decimal.

_DOT, _NEWLINE, _ZERO = b".\n0"
_DECIMALS = 3
_SAFE_DIGITS = 18
"""Digits of every number below the end of int64."""
_MOST_DIGITS = 16
"""Digits before the point, of microseconds since 1970."""
_MOST_FIRST = b"4"
"""First of the most digits; int64 nanoseconds end at 9.2."""
_LIMIT = Decimal(1 << 62)


def nanoseconds(numbers: Sequence[bytes]) -> Integers:
    """Nanoseconds of JSON numbers in microseconds; NULL for what is not a finite number.

    `numbers` are any objects with the buffer protocol.
    """
    if not numbers:
        return np.zeros(0, np.int64)
    text = np.frombuffer(b"\n".join(numbers) + b"\n", np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    starts = np.append(0, ends[:-1] + 1)
    # There are more line ends if a value holds white space.
    if len(ends) == len(numbers) and _as_libkineto_writes(text, starts, ends):
        digits = text[text != _DOT].tobytes().decode("ascii")
        return np.fromstring(digits, np.int64, sep="\n")
    return np.array([_one(bytes(number)) for number in numbers], np.int64)


def _as_libkineto_writes(text: Array, starts: Integers, ends: Integers) -> bool:
    """Whether all numbers are digits with three decimals: without the point, nanoseconds."""
    dots = np.flatnonzero(text == _DOT)
    if len(dots) != len(ends) or (ends - dots != _DECIMALS + 1).any() or (dots == starts).any():
        return False
    digits = np.count_nonzero((text >= _ZERO) & (text < _ZERO + 10))
    return digits == len(text) - 2 * len(ends) and int((ends - starts).max()) <= _SAFE_DIGITS + 1


def _one(number: bytes) -> int:
    """One number, of any form: also with a sign or an exponent, or in quotes."""
    whole, _, decimals = number.partition(b".")
    most = _MOST_DIGITS if whole[:1] < _MOST_FIRST else _MOST_DIGITS - 1
    if whole.isdigit() and len(whole) <= most and (decimals + b"0").isdigit():
        rounded_up = decimals[_DECIMALS : _DECIMALS + 1] >= b"5"
        return int(whole + (decimals + b"000")[:_DECIMALS]) + rounded_up
    try:
        value = Decimal(number.decode("ascii").strip().strip('"')) * 1_000
    except (ArithmeticError, UnicodeDecodeError):
        return tables.NULL
    if not value.is_finite() or abs(value) > _LIMIT:
        return tables.NULL
    return int(value.to_integral_value(ROUND_HALF_EVEN))


INT32 = np.iinfo(np.int32)
ABSENT = tables.null_of(np.dtype(np.int32))
MOST_BYTES = 1 << 50
FARTHEST_NS = 1 << 61


def integers(values: Sequence[Any], absent: int = tables.NULL) -> Integers:
    """The values as int64, digits in quotes included; `absent` for anything else."""
    types = set(map(type, values))
    if types == {type(None)}:
        return np.full(len(values), absent, np.int64)
    parsed = (
        values
        if types == {int}
        else [value if type(value) is int else _integer(value, absent) for value in values]
    )
    try:
        return np.array(parsed, np.int64)
    except OverflowError:
        most = np.iinfo(np.int64).max
        return np.array([v if abs(v) <= most else absent for v in parsed], np.int64)


def amounts(values: Sequence[Any], absent: int = 0) -> RowNumbers:
    """The values as int32 where they are integers of 0 or more; `absent` for anything else."""
    parsed = integers(values, -1)
    return np.where((parsed < 0) | (parsed > INT32.max), absent, parsed).astype(np.int32)


def _integer(value: Any, absent: int) -> int:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and value.removeprefix("-").isdecimal() and len(value) < 19:
        return int(value)
    return absent


@dataclass
class Codes:
    """Distinct texts, numbered in order of appearance."""

    index: dict[str, int] = field(default_factory=dict)

    def of(self, values: Sequence[Any]) -> RowNumbers:
        """The number of each text; None counts as an empty text."""
        index = self.index
        if not set(map(type, values)) <= {str}:
            values = ["" if value is None else str(value) for value in values]
        for text in dict.fromkeys(values):
            index.setdefault(text, len(index))
        return np.array([index[text] for text in values], np.int32)

    def texts(self, codes: RowNumbers) -> Texts:
        return Texts(codes, tables.object_array(list(self.index)))


@record
class TimedEvents:
    """Events that have a time, their arguments, and start and end in ns; `undated` had no time."""

    events: Events
    args: Sequence[Arguments]
    start_ns: Integers
    end_ns: Integers
    undated: int

    @classmethod
    def of(cls, events: Events) -> TimedEvents:
        start = nanoseconds([event.ts for event in events])
        length = nanoseconds([event.dur for event in events])
        sound = (start != tables.NULL) & (length != tables.NULL)
        undated = len(events) - int(np.count_nonzero(sound))
        if undated:
            events = [event for event, kept in zip(events, sound.tolist(), strict=True) if kept]
            start, length = start[sound], length[sound]
        start = start.clip(-FARTHEST_NS, FARTHEST_NS)
        end = start + length.clip(-FARTHEST_NS, FARTHEST_NS)
        return cls(events, [event.args or NO_ARGUMENTS for event in events], start, end, undated)

    def values(self, name: str) -> list[Any]:
        """An argument of each event, of any type."""
        return list(map(attrgetter(name), self.args))

    def integers(self, name: str, absent: int = tables.NULL) -> Integers:
        return integers(self.values(name), absent)

    def amounts(self, name: str) -> RowNumbers:
        return amounts(self.values(name))

    @property
    def names(self) -> list[Any]:
        return [event.name for event in self.events]
