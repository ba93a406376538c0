"""How a time grows with the size, the steps, the layers, the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from traceview.bench.clock import Run
from traceview.bench.fit import Fit, fitted
from traceview.bench.timing import Timing, benchmark
from traceview.errors import InputError


@dataclass(frozen=True)
class Sweep:
    """Times at each value of `over`, such as steps, and the line through them."""

    over: str
    points: tuple[tuple[int, Timing], ...]
    fit: Fit

    def __str__(self) -> str:
        return self.fit.sentence(_one(self.over))


def sweep(
    make: Callable[[int], Run],
    values: Iterable[int],
    *,
    over: str = "size",
    warmup: int = 2,
    trials: int = 10,
    wall: bool = True,
) -> Sweep:
    """Time `make(value)` at each value and fit a line.

    `make` prepares and is not timed; what it returns is. `over` names the values in the plural, as
    in "steps". By default all time until the GPU is done counts, so that it shows where a program
    is bound by launching; with `wall` False the GPU's alone. Raises InputError without values.
    """
    listed = list(values)
    if not listed:
        raise InputError("a sweep over no values", "give three or more")
    points = tuple((value, benchmark(make(value), warmup, trials, wall=wall)) for value in listed)
    return Sweep(over, points, fitted(points))


def _one(many: str) -> str:
    singular = {"batch": "item of the batch", "size": "element"}
    return singular.get(many, many.removesuffix("s"))
