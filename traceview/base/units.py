"""Format numbers as text: the only place that does.

The unit is the suffix of the name, as everywhere in traceview: `total_ns`, `bytes`,
`achieved_bytes_per_s`. Prefixes are decimal: a kB is 1,000 bytes, a GB/s is 10^9 bytes per second.
Quantities get three significant digits, counts all digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from traceview.base.records import record

if TYPE_CHECKING:
    from fractions import Fraction

_ACRONYMS = {"api", "cpu", "gpu", "sm"}

Value = int | float | bool | str | None

ABSENT = "–"
_RANGE_PATH = re.compile(r"range_path|range_pattern|range_\d+|\w+_range")

_Scale = tuple[tuple[float, str], ...]
_PREFIXES = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))
_TIMES: _Scale = ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))


def _prefixed(unit: str, steps: int = len(_PREFIXES)) -> _Scale:
    return tuple((factor, prefix + unit) for factor, prefix in _PREFIXES[:steps])


@record
class _Unit:
    """A unit: its scale, the label of a column without it in its name, and its name in words."""

    scale: _Scale
    label: str
    words: str


# Longest suffix first: `_bytes_per_s` must not match a shorter one.
_UNITS = {
    "flop_per_byte": _Unit(((1.0, "FLOP/B"),), "FLOP/B", "FLOP/byte"),
    # Data sheets use GB/s and TFLOP/s at any size: 4,814 GB/s is easier to compare.
    "bytes_per_s": _Unit(_prefixed("B/s", 4), "bytes/s", "bytes/s"),
    "flop_per_s": _Unit(_prefixed("FLOP/s", 5), "FLOP/s", "FLOP/s"),
    "bytes_per_step": _Unit(_prefixed("B"), "per step", "bytes per step"),
    "bytes": _Unit(_prefixed("B"), "", "bytes"),
    "flop": _Unit(_prefixed("FLOP"), "FLOP", "FLOP"),
    "bits": _Unit(((1.0, "bit"),), "", "bits"),
    "hz": _Unit(_prefixed("Hz"), "", "Hz"),
    "ns": _Unit(_TIMES, "", "nanoseconds"),
    "pct": _Unit((), "%", "percent"),
    "factor": _Unit((), "×", "factor"),
}


def quantity(name: str, value: Value) -> str:
    """Format the value of a column or figure of that name."""
    return formatter(name)(value)


@lru_cache(maxsize=1024)
def formatter(name: str) -> Callable[[Value], str]:
    """The function that formats the values of the column or figure `name`."""
    number, is_path = _number_format(name), bool(_RANGE_PATH.fullmatch(name))

    def formatted(value: Value) -> str:
        # Most values are whole numbers.
        if type(value) is int:
            return number(value)
        if value is None:
            return ABSENT
        if isinstance(value, str):
            return _short_path(value) if is_path else value
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float) and not math.isfinite(value):
            return ABSENT if math.isnan(value) else "∞" if value > 0 else "-∞"
        return number(value)

    return formatted


def _short_path(path: str) -> str:
    """A range path in which no module repeats the name of its parent.

    `transformer.h.0/transformer.h.0.mlp` is shown as `transformer.h.0/mlp`.
    """
    if "." not in path:
        return path
    names = path.split("/")
    inner = (name.removeprefix(f"{around}.") or name for around, name in pairwise(names))
    return "/".join((names[0], *inner))


def duration(nanoseconds: float | None) -> str:
    """A duration, such as `12.3 ms`."""
    return quantity("ns", nanoseconds)


def part_of(part_ns: int, whole_ns: int, error_ns: int | None = None) -> str:
    """A part of a duration, such as `4.75 of 12.4 ms`, with both units where they differ.

    With an error `4.75 ± 0.21 of 12.4 ms`.
    """
    part, whole = with_error(part_ns, error_ns), duration(whole_ns)
    number, _, unit = part.rpartition(" ")
    return f"{number if whole.endswith(f' {unit}') else part} of {whole}"


def with_error(nanoseconds: float, error_ns: float | None, *, more_digits: int = 0) -> str:
    """A duration with its error, such as `4.1 ± 0.9 ms`, which is rounded up; without none.

    The error has one digit, or two up to 3.5, as in `0.35` or `1.2`. Digits of the duration below
    those of its error say nothing, and neither do more than three of them, nor an error that is
    less than half of the last. With `more_digits` both have so many more. A duration whose error
    is as large is a bound, `up to 12.0 ms`.
    """
    if is_hidden(nanoseconds, error_ns, more_digits=more_digits):
        return f"up to {duration(nanoseconds + (error_ns or 0))}"
    value, error, unit = _with_error(nanoseconds, error_ns or 0.0, more_digits)
    return f"{value} ± {error} {unit}" if error else f"{value} {unit}"


def within_error(nanoseconds: float, error_ns: float, *, more_digits: int = 0) -> str:
    """A duration with the digits that its error leaves, without the error: `4.1 ms`."""
    value, _, unit = _with_error(nanoseconds, error_ns, more_digits)
    return f"{value} {unit}"


def is_hidden(nanoseconds: float, error_ns: float | None, *, more_digits: int = 0) -> bool:
    """Whether the error of a duration is as large as the duration, as they would be shown."""
    value, error, _ = _with_error(nanoseconds, error_ns or 0.0, more_digits)
    return bool(error) and float(error.replace(",", "")) >= abs(float(value.replace(",", "")))


def _with_error(nanoseconds: float, error_ns: float, more_digits: int) -> tuple[str, str, str]:
    """A duration, its error, empty where that says nothing, and their unit."""
    factor, unit = _step(max(abs(nanoseconds), error_ns), _TIMES)
    value, error = nanoseconds / factor, error_ns / factor
    plain = duration(nanoseconds).partition(" ")
    if not error:
        return plain[0], "", plain[2]
    # An error has two digits up to 3.5, else one.
    power = floor(log10(error))
    digits = (error / 10.0**power <= 3.5) - power
    digits = min(digits, _decimals(value, 3) if value else digits) + more_digits
    digits = min(digits, _least_digit(factor))
    if error * 10.0**digits < 0.5:
        return plain[0], "", plain[2]
    shown = ceil(round(error * 10.0**digits, 9)) / 10.0**digits
    places = max(digits, 0)
    return f"{round(value, digits):,.{places}f}", f"{shown:,.{places}f}", unit


def times_as_fast(before_ns: float, after_ns: float, error_ns: float | None = None) -> str:
    """How many times as fast: `2.5×`, with an error `2.1 to 3.2×` or `at least 2.1×`.

    What could be twice as much is said as a bound: its upper end tells of the error alone.
    """
    least, most = (before_ns / max(after_ns + sign * (error_ns or 0), 1.0) for sign in (1, -1))
    low, high = (quantity("speedup_factor", each) for each in (least, most))
    if most >= min(2 * least, MOST_SPEEDUP):
        return f"at least {low}"
    return low if low == high else f"{low.rstrip('×')} to {high}"


MOST_SPEEDUP = 100.0
"""More is no speed-up to forecast: nothing but the loss itself is left to measure."""


def durations(before_ns: float, after_ns: float) -> tuple[str, str]:
    """Two durations in one unit, such as `12.42` and `12.91 ms`, with enough digits to differ."""
    factor, unit = _step(max(abs(before_ns), abs(after_ns)), _TIMES)
    one, other = before_ns / factor, after_ns / factor
    apart = _decimals((before_ns - after_ns) / factor, 2)
    most = _decimals(max(abs(one), abs(other)), 3) + 1
    texts = []
    for time in (one, other):
        digits = min(max(min(_decimals(time, 3), most), apart), _least_digit(factor))
        texts.append(f"{time:,.{digits}f}")
    return texts[0], f"{texts[1]} {unit}"


def difference(nanoseconds: float) -> str:
    """A duration with its sign, such as `+0.51 ms` or `−31.0 µs`."""
    return f"{_sign(nanoseconds)}{duration(abs(nanoseconds))}"


@record
class RoundedTimes:
    """Durations in one unit, rounded so that the printed values add up.

    `ticks` are the times in units of the last printed digit.
    """

    ticks: tuple[int, ...]
    digits: int
    unit: str

    def number(self, *rows: int) -> str:
        """The sum of these rows without its unit, such as `12.42`."""
        return f"{abs(self._sum(rows)) / 10**self.digits:,.{self.digits}f}"

    def signed_number(self, *rows: int) -> str:
        """The sum of these rows with its sign, without its unit, such as `+0.51`."""
        return f"{_sign(self._sum(rows))}{self.number(*rows)}"

    def signed(self, *rows: int) -> str:
        """The sum of these rows with its sign and unit, such as `+0.51 ms`."""
        return f"{self.signed_number(*rows)} {self.unit}"

    def plus(self, other: RoundedTimes) -> RoundedTimes:
        """The sum with `other`, row by row; both have the same digits and unit."""
        ticks = tuple(one + more for one, more in zip(self.ticks, other.ticks, strict=True))
        return replace(self, ticks=ticks)

    def _sum(self, rows: Sequence[int]) -> int:
        return sum(self.ticks[row] for row in rows)


def rounded_times(
    times_ns: Sequence[Fraction],
    largest_ns: float,
    telling_ns: float,
    fixed: Mapping[int, int] | None = None,
    more_digits: int = 0,
) -> RoundedTimes:
    """Times whose printed values sum to their rounded sum, by largest remainder.

    The unit is the one for `largest_ns`. There are enough decimals for three digits of
    `largest_ns` and of `telling_ns`, and `more_digits`, but none below a nanosecond. `fixed` has
    ticks of some rows, which the others make up for, the largest first where that takes more than
    rounding up.
    """
    from fractions import Fraction

    factor, unit = _step(largest_ns, _TIMES)
    wanted = max(_decimals(largest_ns / factor, 3), _decimals(telling_ns / factor, 3))
    digits = min(wanted + more_digits, _least_digit(factor))
    exact = [Fraction(time) / Fraction(factor) * 10**digits for time in times_ns]
    # Each part is rounded down, or up by remainder where the rounded sum needs it.
    fixed = fixed or {}
    ticks = [fixed.get(row, floor(part)) for row, part in enumerate(exact)]
    free = [row for row in range(len(exact)) if row not in fixed]
    missing = round(sum(exact)) - sum(ticks)
    few = 0 <= missing <= len(free)
    free.sort(key=lambda row: ticks[row] - exact[row] if few else -exact[row])
    for number in range(abs(missing) if free else 0):
        ticks[free[number % len(free)]] += 1 if missing > 0 else -1
    return RoundedTimes(tuple(ticks), digits, unit)


def _sign(value: float) -> str:
    return "" if not value else "+" if value > 0 else "−"


def _decimals(value: float, digits: int) -> int:
    """Decimals that show `digits` significant digits of a value; 0 for the value 0."""
    return max(digits - 1 - floor(log10(abs(value))), 0) if value else 0


def _least_digit(factor: float) -> int:
    """Decimals that reach down to a nanosecond in a unit of `factor` ns."""
    return round(log10(factor))


def size(count: float | None) -> str:
    """A number of bytes, such as `4.19 MB`."""
    return quantity("bytes", count)


def percent(share: float | None, error: float = 0.0) -> str:
    """A percentage from 0 to 100, such as `12.3 %`; `12 %` where its error is 1 and more."""
    return f"{share:.0f} %" if share and error >= 1 else quantity("pct", share)


def percent_difference(share: float | None) -> str | None:
    """A percentage with its sign, such as `+12.3 %` or `−0.4 %`."""
    return None if share is None else f"{share:+.1f} %".replace("-", "−")


def count(number: float | None) -> str:
    """A count, such as `12,345`."""
    return quantity("", number)


def counted(number: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 kernel`, `1,234 kernels`."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def first(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """The first texts, and the number of the others: `a, b and 3 more`."""
    more = len(texts) - most
    return between.join(texts[:most]) + (f" and {count(more)} more" if more > 0 else "")


def either(numbers: Iterable[int], form: str = "") -> str:
    """Alternatives, each formatted by `form`: `132 or 264`."""
    return " or ".join(format(number, form) for number in numbers)


def label(name: str) -> str:
    """The heading of a column: its name in words, without a unit that its values show."""
    unit = unit_of(name)
    words = _words(name, unit)
    text = _UNITS[unit].label if unit in _UNITS else ""
    return f"{words} {text or ('' if words else unit)}".strip()


def stem(name: str) -> str:
    """The name in words without its unit, as a label before a value that shows its unit."""
    unit = unit_of(name)
    return _words(name, unit) or unit.replace("_", " ")


def _words(name: str, unit: str) -> str:
    words = name.removesuffix(unit).rstrip("_").split("_")
    return " ".join(word.upper() if word in _ACRONYMS else word for word in words)


@lru_cache(maxsize=1024)
def unit_of(name: str) -> str:
    """The unit suffix of a name (`ns`, `bytes_per_s`, `pct` …); empty for a count."""
    for unit in _UNITS:
        if name == unit or name.endswith(f"_{unit}"):
            return unit
    return ""


@lru_cache(maxsize=1024)
def is_moment(name: str) -> bool:
    """Whether the name is of a point in time on the clock of the recording, not a duration."""
    ends = ("_start_ns", "_begin_ns", "_end_ns")
    return name in ("time_ns", "at_ns") or f"_{name}".endswith(ends)


def axis(name: str, largest: float) -> tuple[float, str]:
    """Divisor and unit label for an axis of values of the column `name` up to `largest`."""
    unit = unit_of(name)
    if unit == "pct":
        return 1.0, "%"
    scale = _UNITS[unit].scale if unit else ()
    return _step(largest, scale) if scale else (1.0, "")


def _number_format(name: str) -> Callable[[float], str]:
    """The function that formats finite numbers of the column or figure `name`."""
    unit = unit_of(name)
    if is_moment(name):
        return lambda value: f"{value / 1e9:,.6f} s"
    if unit == "pct":
        return lambda value: "<0.1 %" if 0 < value < 0.05 else f"{value:z,.1f} %"
    if unit == "factor":
        return lambda value: f"{value:,.1f}×"
    if unit:
        return partial(_scaled, _UNITS[unit].scale)
    # No separators in ids: they would be hard to search for.
    if name == "id" or name.endswith("_id"):
        return str
    return lambda value: f"{value:,}" if isinstance(value, int) else _three_digits(value)


def _scaled(scale: _Scale, value: float) -> str:
    factor, unit = _step(value, scale)
    exact = factor == 1.0 and isinstance(value, int)
    return f"{value:,} {unit}" if exact else f"{_three_digits(value / factor)} {unit}"


def _step(value: float, scale: _Scale) -> tuple[float, str]:
    """The largest unit in which the value, once rounded, is at least 1."""
    # 999.6 µs rounds to 1,000 µs, which reads better as 1.00 ms.
    size, fitting = abs(value), scale[0]
    for step in scale:
        if size < step[0] * 0.9995:
            break
        fitting = step
    return fitting


def _three_digits(value: float) -> str:
    if 0.001 <= abs(value) < 999.5:
        return f"{value:#.3g}".rstrip(".")
    if value == 0:
        return "0"
    # Digits of the rounded value: 9.996 becomes 10.0, not 10.00.
    before_point = int(f"{value:.2e}".partition("e")[2]) + 1
    decimals = min(max(3 - before_point, 0), 6)
    return f"{value:,.{decimals}f}"


def of_column(name: str, dtype: str) -> str:
    """The unit of a column in words, such as `nanoseconds`; without one, the kind of value."""
    plain = {"text": "text", "bool": "yes or no", "bytes": "binary"}
    unit = unit_of(name)
    return plain.get(dtype) or (_UNITS[unit].words if unit else "number")
