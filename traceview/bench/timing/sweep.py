"""Time a call over sizes, steps, layers or batches, and fit the growth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from traceview import units
from traceview.bench.timing.clock import Run
from traceview.bench.timing.growth import Fit, fit_timings
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.errors import InputError
from traceview.records import record

SIZE = "size"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


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
        if not (_NAME.fullmatch(name) and all(map(_is_positive, words))):
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


def sweep(
    make: Callable[[int], Run],
    values: Iterable[int],
    *,
    over: str = "size",
    warmup: int = 2,
    trials: int = 10,
    wall: bool = True,
) -> Sweep:
    """Time `make(value)()` at each value, and fit the growth.

    `make(value)` prepares the call and is not timed. `over` names the values in the plural, as in
    "steps". By default wall time until the GPU is done is measured, which shows where a program is
    launch-bound; with `wall` False, GPU time. Raises InputError without values.
    """
    listed = list(values)
    if not listed:
        raise InputError("a sweep over no values", "pass at least three")
    points = tuple((value, benchmark(make(value), warmup, trials, wall=wall)) for value in listed)
    return Sweep(over, points, fit_timings(points))


def _is_positive(word: str) -> bool:
    return word.isascii() and word.isdecimal() and 0 < len(word) < 19 and int(word) > 0


def one_of(many: str) -> str:
    """The singular of what is swept, such as step or unit of batch."""
    if many == SIZE:
        return "element"
    return many.removesuffix("s") if many.endswith("s") else f"unit of {many}"
