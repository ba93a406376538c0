"""Columns from the values of events, whatever their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from operator import attrgetter
from typing import Any

import numpy as np

from traceview.records import record
from traceview.tables import NULL, Array, Integers, RowNumbers, Texts, null_of, object_array
from traceview.trace.kineto.events import NO_ARGUMENTS, Arguments, Events

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
        whole: Integers = np.fromstring(digits, np.int64, sep="\n")
        return whole
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
        return NULL
    if not value.is_finite() or abs(value) > _LIMIT:
        return NULL
    return int(value.to_integral_value(ROUND_HALF_EVEN))


INT32 = np.iinfo(np.int32)
ABSENT = null_of(np.dtype(np.int32))
MOST_BYTES = 1 << 50
FARTHEST_NS = 1 << 61


def integers(values: Sequence[Any], absent: int = NULL) -> Integers:
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
        return Texts(codes, object_array(list(self.index)))


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
        sound = (start != NULL) & (length != NULL)
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

    def integers(self, name: str, absent: int = NULL) -> Integers:
        return integers(self.values(name), absent)

    def amounts(self, name: str) -> RowNumbers:
        return amounts(self.values(name))

    @property
    def names(self) -> list[Any]:
        return [event.name for event in self.events]
