"""Numbers and units as Nsight Compute prints them, in any locale."""

from __future__ import annotations

import re
from collections.abc import Iterable

_GROUPING_COMMA = re.compile(r"\d{1,3}(,\d{3})+\.\d+|\d{1,3}(,\d{3}){2,}")
_GROUPING_POINT = re.compile(r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}")
_SPACES = str.maketrans("", "", " '_\u00a0\u2009\u202f’")
_LONGEST = 40
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNIT = re.compile(r"([KMGTP]?)(?:[Bb]ytes?|B|inst|)")
_SECONDS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
_TIME_UNIT = re.compile(r"([num]?)s(?:econds?)?")


def decimal_sign(cells: Iterable[str]) -> str:
    """The decimal separator: a comma if points separate thousands, else a point."""
    for cell in cells:
        if len(cell) <= _LONGEST:
            if _GROUPING_COMMA.fullmatch(cell):
                return "."
            if _GROUPING_POINT.fullmatch(cell):
                return ","
    return "."


def number(cell: str, decimal: str) -> float | None:
    """The number in a cell; None if it holds none (n/a, nan, empty)."""
    if not cell or len(cell) > _LONGEST:
        return None
    plain = cell.translate(_SPACES).replace("," if decimal == "." else ".", "")
    try:
        value = float(plain.replace(",", "."))
    except ValueError:
        return None
    return sound(value)


def sound(value: float) -> float | None:
    """A value that a counter can have; None for a negative, infinite or absurd one."""
    return value if 0 <= value < 1e24 else None


def factor(unit: str) -> float | None:
    """Factor from that unit to bytes or instructions; None if it is no such unit."""
    match = _UNIT.fullmatch(unit.strip())
    return _PREFIXES[match[1]] if match else None


def rate_factor(unit: str) -> float | None:
    """Factor from that unit to bytes per second; None if it is no such unit."""
    size, slash, time = unit.strip().partition("/")
    amount, seconds = factor(size), seconds_in(time)
    return amount / seconds if slash and amount is not None and seconds is not None else None


def seconds_in(unit: str) -> float | None:
    """Length of a unit of time in seconds; None if it is no such unit."""
    match = _TIME_UNIT.fullmatch(unit.strip())
    return _SECONDS[match[1]] if match else None
