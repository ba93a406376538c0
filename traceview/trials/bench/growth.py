"""Fit how a time grows with a size: flat, linear, flat then linear, or a power.

Least squares with each point weighted by 1 ÷ its time: sizes grow by factors, and small ones count
as much as large ones. The form with the least error is chosen, with a penalty for each further
parameter (AIC). If none comes within 15 %, none is claimed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from traceview.base import units
from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.trials.bench.measurement import Timing

Kind = Literal["flat", "linear", "flat-then-linear", "power", "none"]
Floats = npt.NDArray[np.float64]

_FEWEST, _FEWEST_IN_LINE = 3, 3
_FLAT, _NOISE, _TOO_FAR = 0.15, 0.005, 0.15
_NEARLY_A_LINE = 0.1
_LITTLE = 0.5
"""A time is flat if it grows by less than half as much as its size, and by less than 15 %.

A busy host delays single calls by more: then the growth between most pairs of sizes counts.
"""


@record
class Fit:
    """The form that fits best.

    `linear`: time = `base_ns` + `slope_ns` × size. `flat-then-linear`: `base_ns` up to the size
    `flat_until`, then rising by `slope_ns` per unit. `power`: growing as size to the `exponent`.
    `r_squared` is that of the rising part, `relative_error` the root mean square over all points.
    `launch_bound` is whether all calls of the flat part are (Timing.is_launch_bound); None without
    a flat part or a GPU.
    """

    kind: Kind
    base_ns: float = 0.0
    slope_ns: float = 0.0
    flat_until: float | None = None
    exponent: float | None = None
    r_squared: float | None = None
    relative_error: float = 0.0
    points: int = 0
    launch_bound: bool | None = None

    def sentence(self, unit: str = "element", over: str = "size") -> str:
        """The fit as text: `linear, 2.10 ms per step (r² 0.999), flat below 1,024 (launch-bound)`.

        `unit` is the singular of what grows, `over` its name.
        """
        value = "size" if over == "size" else f"value of {over}"
        if self.kind == "flat":
            return f"flat, {units.duration(self.base_ns)} at every {value}{self._cause()}"
        if self.kind == "power":
            return f"grows as {over} to the power of {self.exponent:.2f} ({self._r2()})"
        if self.kind == "none":
            if self.points < _FEWEST:
                return f"{units.counted(self.points, value, _plural(value))}, too few for a line"
            return f"no line fits, the error is {units.percent(100 * self.relative_error)}"
        number, per = 10**6, f"million {_plural(unit)}"
        if abs(self.slope_ns) >= 1:
            number, per = 1, unit
        elif abs(self.slope_ns) * 10**3 >= 1:
            number, per = 10**3, f"thousand {_plural(unit)}"
        line = f"linear, {units.duration(self.slope_ns * number)} per {per} ({self._r2()})"
        if self.kind == "linear" or self.flat_until is None:
            return line
        return f"{line}, flat below {units.count(round(self.flat_until))}{self._cause()}"

    def _r2(self) -> str:
        return "r² –" if self.r_squared is None else f"r² {math.floor(self.r_squared * 1e3) / 1e3}"

    def _cause(self) -> str:
        return " (launch-bound)" if self.launch_bound else ""


def _plural(unit: str) -> str:
    """The plural of a unit, such as elements or units of size."""
    head, of, rest = unit.partition(" of ")
    return f"{head}s{of}{rest}"


def fit_timings(measured: Sequence[tuple[float, Timing]]) -> Fit:
    """Fit timings by size, and find out whether the flat part is launch-bound."""
    ordered = sorted(measured, key=lambda pair: pair[0])
    # Events around a call that launches nothing may show no time at all.
    form = fit([(size, max(timing.median_ns, 1.0)) for size, timing in ordered])
    flat = [
        timing
        for size, timing in ordered
        if form.kind == "flat" or (form.flat_until is not None and size < form.flat_until)
    ]
    bound = [timing.is_launch_bound for timing in flat if timing.clock != "perf-counter"]
    return replace(form, launch_bound=all(bound) if bound else None)


def fit(points: Iterable[tuple[float, float]]) -> Fit:
    """Fit pairs of size and time in ns. Sizes may repeat.

    Raises InputError for a size that is not finite, or a time that is not finite and positive.
    """
    listed = sorted(points)
    for size, time in listed:
        if not (math.isfinite(size) and 0 < time < math.inf):
            raise InputError(f"{time} ns at {size}", "pass finite sizes and positive times")
    sizes = {x for x, _ in listed}
    if len(sizes) < _FEWEST:
        return Fit("none", points=len(sizes))
    x, y = (np.array(values, np.float64) for values in zip(*listed, strict=True))
    forms = []
    if _spread(y) <= _FLAT or _is_noise(x, y):
        mean = float(y.mean())
        flat = Fit("flat", mean, points=len(x), relative_error=_error(y, mean))
        if _spread(y) <= _LITTLE * _spread(x):
            return flat
        forms.append(flat)
    base, slope = _line(x, y)
    if slope > 0:
        model = base + slope * x
        r2, error = _r2(y, model), _error(y, model)
        forms.append(Fit("linear", base, slope, None, None, r2, error, len(x)))
    forms += [*_flat_then_linear(x, y), *_power(x, y)]

    def cost(form: Fit) -> float:
        """Akaike's criterion, with at least the half percent of error that measurements have."""
        parameters = {"flat": 1, "flat-then-linear": 4}.get(form.kind, 2)
        return form.points * math.log(max(form.relative_error, _NOISE) ** 2) + 2 * parameters

    best = min(forms, key=cost, default=None)
    if best is None or best.relative_error > _TOO_FAR:
        error = best.relative_error if best else math.inf
        return Fit("none", points=len(x), relative_error=error)
    return best


def _is_noise(x: Floats, y: Floats) -> bool:
    """Whether times grow by less than 15 % over all sizes, and the largest size is no exception.

    The growth is that of a power with the median exponent of all pairs of sizes (Theil and Sen).
    """
    if x.min() <= 0:
        return False
    one, other = np.triu_indices(len(x), 1)
    differ = x[one] < x[other]
    rise = np.log(y[other] / y[one])[differ] / np.log(x[other] / x[one])[differ]
    grows = math.expm1(abs(float(np.median(rise))) * math.log(x[-1] / x[0]))
    return grows <= _FLAT and abs(y[-1] / float(np.median(y)) - 1) <= _FLAT


def _spread(values: Floats) -> float:
    """The largest value ÷ the least, minus 1; infinite if the least is not positive."""
    least = float(values.min())
    return float(values.max()) / least - 1 if least > 0 else math.inf


def _flat_then_linear(x: Floats, y: Floats) -> Iterable[Fit]:
    for first in range(2, len(x) - _FEWEST_IN_LINE + 1):
        flat, rising = float(y[:first].mean()), slice(first, None)
        if np.abs(y[:first] / flat - 1).max() > _FLAT or x[first] == x[first - 1]:
            continue
        base, slope = _line(x[rising], y[rising])
        turn = (flat - base) / slope if slope > 0 else -1.0
        if not x[0] < turn <= x[first]:
            continue
        model = np.maximum(flat, base + slope * x)
        r2 = _r2(y[rising], model[rising])
        yield Fit("flat-then-linear", flat, slope, turn, None, r2, _error(y, model), len(x))


def _power(x: Floats, y: Floats) -> Iterable[Fit]:
    """The fit of a power; none if it is nearly a line, as a linear fit says more."""
    if x.min() <= 0 or y.min() <= 0 or _is_noise(x, y):
        return
    exponent, log = np.polyfit(np.log(x), np.log(y), 1)
    if abs(exponent - 1) >= _NEARLY_A_LINE:
        model = np.exp(log + exponent * np.log(x))
        r2, error = _r2(np.log(y), np.log(model)), _error(y, model)
        yield Fit("power", float(np.exp(log)), 0.0, None, float(exponent), r2, error, len(x))


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    slope, base = np.polyfit(x, y, 1, w=1 / y)
    return float(base), float(slope)


def _r2(y: Floats, model: Floats) -> float | None:
    variation = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - model) ** 2).sum()) / variation if variation else None


def _error(y: Floats, model: Floats | float) -> float:
    return float(np.sqrt((((y - model) / y) ** 2).mean()))


# Time a call over sizes, steps, layers or batches, and fit the growth.

SIZE = "size"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_POSITIVE = re.compile(r"(?=0*[1-9])[0-9]{1,18}")


@record
class Axis:
    """What to vary, and its values in ascending order without repeats."""

    over: str
    values: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Axis:
        """Parse a text such as `steps=1,2,4,8`.

        Raises InputError if it is not of that form, or if it has fewer than three values: any two
        points are on a line.
        """
        name, _, listed = text.partition("=")
        words = [word.strip() for word in listed.split(",")]
        if not (_NAME.fullmatch(name) and all(map(_POSITIVE.fullmatch, words))):
            remedy = "pass a name and positive whole numbers: steps=1,2,4,8"
            raise InputError(f"cannot sweep {text[:60]!r}", remedy)
        values = tuple(sorted(set(map(int, words))))
        if len(values) < _FEWEST:
            what = f"a sweep over {units.counted(len(values), 'value')} of {name}"
            raise InputError(what, "pass at least three: any two points are on a line")
        return cls(name, values)


@record
class Sweep:
    """Times at each value of `over`, such as steps, and their fit."""

    over: str
    points: tuple[tuple[int, Timing], ...]
    fit: Fit

    def __str__(self) -> str:
        return self.fit.sentence(one_of(self.over), self.over)


def one_of(many: str) -> str:
    """The singular of what is swept, such as step or unit of batch."""
    if many == SIZE:
        return "element"
    return many.removesuffix("s") if many.endswith("s") else f"unit of {many}"
