"""Times in microseconds, as written, to whole nanoseconds.

Kineto writes nanoseconds as `123456.789` microseconds, relative to a base or since 1970. A float
holds neither: 53 bits are less than both need. So the digits are read, and rounded only beyond
the third decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np

from traceview.tables import NULL, Array, Integers

_DOT, _NEWLINE, _ZERO = b".\n0"
_DECIMALS = 3
_SAFE_DIGITS = 18
"""Digits of every number below the end of int64."""
_MOST_DIGITS = 16
"""Digits before the point, of microseconds since 1970."""
_MOST_FIRST = ord("4")
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
    if len(ends) != len(numbers):
        # Whitespace within a value.
        return np.array([_slow(bytes(number)) for number in numbers], np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    if _as_libkineto_writes(text, starts, ends):
        digits = text[text != _DOT].tobytes().decode("ascii")
        whole: Integers = np.fromstring(digits, np.int64, sep="\n")
        return whole
    result, plain = _vectorized(text, starts, ends)
    for row in np.flatnonzero(~plain).tolist():
        result[row] = _slow(bytes(numbers[row]))
    return result


def _as_libkineto_writes(text: Array, starts: Integers, ends: Integers) -> bool:
    """Whether all numbers are digits with three decimals: without the point, nanoseconds."""
    dots = np.flatnonzero(text == _DOT)
    if len(dots) != len(ends) or (ends - dots != _DECIMALS + 1).any() or (dots == starts).any():
        return False
    digits = np.count_nonzero((text >= _ZERO) & (text < _ZERO + 10))
    return digits == len(text) - 2 * len(ends) and int((ends - starts).max()) <= _SAFE_DIGITS + 1


def _vectorized(text: Array, starts: Integers, ends: Integers) -> tuple[Integers, Array]:
    """The values, and for each whether it has but digits and at most one point."""
    dots = np.flatnonzero(text == _DOT)
    of = np.searchsorted(ends, dots)
    point = ends.copy()
    point[of] = dots
    digit = (text >= _ZERO) & (text < _ZERO + 10)
    digits: Integers = np.concatenate((np.zeros(1, np.int64), np.cumsum(digit)))
    points = np.bincount(of, minlength=len(ends))
    whole, length = point - starts, ends - starts
    plain = (points <= 1) & (digits[ends] - digits[starts] == length - points)
    plain &= (whole > 0) & (whole <= _MOST_DIGITS) & (length > 0)
    plain &= (whole < _MOST_DIGITS) | (text[np.minimum(starts, len(text) - 1)] < _MOST_FIRST)
    result = np.zeros(len(ends), np.int64)
    scale = 1_000
    for place in range(int(whole[plain].max(initial=0))):
        has = plain & (place < whole)
        digit_there = text[np.where(has, point - 1 - place, 0)].astype(np.int64) - _ZERO
        result += np.where(has, digit_there * scale, 0)
        scale *= 10
    for place, scale in enumerate((100, 10, 1), 1):
        result += _decimal(text, point, ends, plain, place) * scale
    result += _decimal(text, point, ends, plain, 4) >= 5
    return result, plain


def _decimal(text: Array, point: Integers, ends: Integers, plain: Array, place: int) -> Integers:
    """The digit at a decimal place of each number; 0 beyond its last one."""
    has = plain & (point + place < ends)
    if not has.any():
        return np.zeros(len(ends), np.int64)
    return np.where(has, text[np.where(has, point + place, 0)].astype(np.int64) - _ZERO, 0)


def _slow(number: bytes) -> int:
    """Signs, exponents, and numbers in quotes."""
    try:
        value = Decimal(number.decode("ascii").strip().strip('"')) * 1_000
    except (ArithmeticError, UnicodeDecodeError):
        return NULL
    if not value.is_finite() or abs(value) > _LIMIT:
        return NULL
    return int(value.to_integral_value(ROUND_HALF_EVEN))
