"""How a time grows with a size: flat, a line, flat and then a line, or a power.

Least squares, with each point weighted by 1 ÷ its time: sizes grow by factors, and the small ones
are to count as much as the large. Of the forms the one is taken whose error is least, with a price
for each further parameter (AIC); and where none comes within 15 %, none is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from traceview import units
from traceview.bench.timing.measurement import Timing
from traceview.errors import InputError

Kind = Literal["flat", "linear", "flat-then-linear", "power", "none"]
Floats = npt.NDArray[np.float64]

_FEWEST, _FEWEST_IN_LINE = 3, 3
_FLAT, _NOISE, _TOO_FAR = 0.15, 0.005, 0.15
_NEARLY_A_LINE = 0.1
_LITTLE = 0.5
"""A time that grows by less than half of what its size grows by, and by 15 %, is called flat."""


@dataclass(frozen=True)
class Fit:
    """The form that fits best.

    `linear`: time = `base_ns` + `slope_ns` × size. `flat-then-linear`: `base_ns` up to a size of
    `flat_until`, then rising by `slope_ns` a unit. `power`: growing as size to `exponent`.
    `r_squared` is that of the rising part, `relative_error` the root mean square over all points.
    `launch_bound` is whether that holds for every call of the flat part (Timing.is_launch_bound);
    None where there is no such part, or no GPU.
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
        """Such as `linear: 2.10 ms a step, r² 0.999; flat under 1,024: launch-bound`.

        `unit` is one more of what grows, `over` the name of all of it.
        """
        value = "size" if over == "size" else f"value of {over}"
        if self.kind == "flat":
            return f"flat: {units.duration(self.base_ns)} at every {value}{self._why()}"
        if self.kind == "power":
            return f"grows as {over} to the {self.exponent:.2f}, {self._r2}"
        if self.kind == "none":
            if self.points < _FEWEST:
                return f"{units.counted(self.points, value, _many(value))}: too few for a line"
            return f"no line fits: {units.percent(100 * self.relative_error)} off"
        line = f"linear: {self._slope(unit)}, {self._r2}"
        if self.kind == "linear" or self.flat_until is None:
            return line
        return f"{line}; flat under {units.count(round(self.flat_until))}{self._why()}"

    @property
    def _r2(self) -> str:
        return "r² –" if self.r_squared is None else f"r² {math.floor(self.r_squared * 1e3) / 1e3}"

    def _why(self) -> str:
        return ": launch-bound" if self.launch_bound else ""

    def _slope(self, unit: str) -> str:
        article = "an" if unit[:1] in "aeiou" and not unit.startswith("uni") else "a"
        for many, said in ((1, f"{article} {unit}"), (10**3, f"a thousand {_many(unit)}")):
            if abs(self.slope_ns) * many >= 1:
                return f"{units.duration(self.slope_ns * many)} {said}"
        return f"{units.duration(self.slope_ns * 1e6)} a million {_many(unit)}"


def _many(unit: str) -> str:
    """Such as elements, or units of size."""
    head, of, rest = unit.partition(" of ")
    return f"{head}s{of}{rest}"


def fitted(measured: Sequence[tuple[float, Timing]]) -> Fit:
    """The fit over timings, and whether its flat part is the CPU's time to launch."""
    ordered = sorted(measured, key=lambda pair: pair[0])
    # Events around a call that launches nothing may show no time at all.
    found = fit([(size, max(timing.median_ns, 1.0)) for size, timing in ordered])
    flat = [
        timing
        for size, timing in ordered
        if found.kind == "flat" or (found.flat_until is not None and size < found.flat_until)
    ]
    told = [timing.is_launch_bound for timing in flat if timing.clock != "perf-counter"]
    return replace(found, launch_bound=all(told) if told else None)


def fit(points: Iterable[tuple[float, float]]) -> Fit:
    """The form that fits pairs of size and time in ns best; equal sizes are points, too.

    Raises InputError for a size or time that is no finite number, or a time that is not positive.
    """
    listed = sorted(points)
    for size, time in listed:
        if not (math.isfinite(size) and 0 < time < math.inf):
            raise InputError(f"{time} ns at {size}", "give finite sizes and positive times")
    sizes = {x for x, _ in listed}
    if len(sizes) < _FEWEST:
        return Fit("none", points=len(sizes))
    x, y = (np.array(each, np.float64) for each in zip(*listed, strict=True))
    flat = _flat(x, y)
    if flat and _spread(y) <= _LITTLE * _spread(x):
        return flat
    found = [f for f in (flat, _linear(x, y), *_flat_then_linear(x, y), _power(x, y)) if f]
    best = min(found, key=_price, default=None)
    if best is None or best.relative_error > _TOO_FAR:
        error = best.relative_error if best else math.inf
        return Fit("none", points=len(x), relative_error=error)
    return best


_PARAMETERS = {"flat": 1, "linear": 2, "power": 2, "flat-then-linear": 4}


def _price(form: Fit) -> float:
    """Akaike's criterion. No measurement is better than half a percent, so no fit need be."""
    error = max(form.relative_error, _NOISE)
    return form.points * math.log(error**2) + 2 * _PARAMETERS[form.kind]


def _flat(x: Floats, y: Floats) -> Fit | None:
    mean = float(y.mean())
    flat = Fit("flat", mean, points=len(x), relative_error=_error(y, mean))
    return flat if _spread(y) <= _FLAT else None


def _spread(values: Floats) -> float:
    """By what share the largest is above the least: infinite from nothing or less."""
    least = float(values.min())
    return float(values.max()) / least - 1 if least > 0 else math.inf


def _linear(x: Floats, y: Floats) -> Fit | None:
    base, slope = _line(x, y)
    if slope <= 0:
        return None
    said = base + slope * x
    return Fit("linear", base, slope, None, None, _r2(y, said), _error(y, said), len(x))


def _flat_then_linear(x: Floats, y: Floats) -> Iterable[Fit]:
    for first in range(2, len(x) - _FEWEST_IN_LINE + 1):
        flat, rising = float(y[:first].mean()), slice(first, None)
        if np.abs(y[:first] / flat - 1).max() > _FLAT or x[first] == x[first - 1]:
            continue
        base, slope = _line(x[rising], y[rising])
        turn = (flat - base) / slope if slope > 0 else -1.0
        if not x[0] < turn <= x[first]:
            continue
        said = np.maximum(flat, base + slope * x)
        r2 = _r2(y[rising], said[rising])
        yield Fit("flat-then-linear", flat, slope, turn, None, r2, _error(y, said), len(x))


def _power(x: Floats, y: Floats) -> Fit | None:
    """None where it is nearly a line, which says more."""
    if x.min() <= 0 or y.min() <= 0:
        return None
    exponent, log = np.polyfit(np.log(x), np.log(y), 1)
    said = np.exp(log + exponent * np.log(x))
    r2 = _r2(np.log(y), np.log(said))
    if abs(exponent - 1) < _NEARLY_A_LINE:
        return None
    return Fit("power", float(np.exp(log)), 0.0, None, float(exponent), r2, _error(y, said), len(x))


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    slope, base = np.polyfit(x, y, 1, w=1 / y)
    return float(base), float(slope)


def _r2(y: Floats, said: Floats) -> float | None:
    around = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - said) ** 2).sum()) / around if around else None


def _error(y: Floats, said: Floats | float) -> float:
    return float(np.sqrt((((y - said) / y) ** 2).mean()))
