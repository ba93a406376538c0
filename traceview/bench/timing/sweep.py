"""How a time grows with the size, the steps, the layers, the batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from traceview import units
from traceview.bench.timing.clock import Run
from traceview.bench.timing.growth import Fit, fitted
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.errors import InputError

SIZE = "size"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FEWEST = 3


@dataclass(frozen=True)
class Axis:
    """What to vary, and the values to give it, each once and the smallest first."""

    over: str
    values: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Axis:
        """That which a text such as `steps=1,2,4,8` asks for.

        Raises InputError if it is not of that form, or has fewer than three values: through two
        there is always a line.
        """
        name, _, listed = text.partition("=")
        words = [word.strip() for word in listed.split(",")]
        if not (_NAME.fullmatch(name) and all(map(_is_positive, words))):
            remedy = "give a name and positive whole numbers: steps=1,2,4,8"
            raise InputError(f"a sweep of {text[:60]!r}", remedy)
        values = tuple(sorted(set(map(int, words))))
        if len(values) < _FEWEST:
            what = f"a sweep over {units.counted(len(values), 'value')} of {name}"
            raise InputError(what, "give three or more: through two there is always a line")
        return cls(name, values)


@dataclass(frozen=True)
class Sweep:
    """Times at each value of `over`, such as steps, and the line through them."""

    over: str
    points: tuple[tuple[int, Timing], ...]
    fit: Fit

    def __str__(self) -> str:
        return self.fit.sentence(one_of(self.over), self.over)


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


def _is_positive(word: str) -> bool:
    return word.isascii() and word.isdecimal() and 0 < len(word) < 19 and int(word) > 0


def one_of(many: str) -> str:
    """One more of what is swept, to stand after a number: step; a unit of batch."""
    if many == SIZE:
        return "element"
    return many.removesuffix("s") if many.endswith("s") else f"unit of {many}"
