"""How far a version's results are from the reference, computed in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from traceview.bench.operation import Operation


@dataclass(frozen=True)
class Checked:
    """What became of comparing: `error` is the largest, as a share of the largest magnitude.

    `wrong` says what is wrong, None where nothing is.
    """

    error: float | None
    wrong: str | None = None


def expected(operation: Operation, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors that the reference gives for the inputs as they are, in float64."""
    return tensors(operation.reference(*(_in_float64(each) for each in inputs)))


def compare(results: Any, wanted: tuple[Any, ...], tolerance: float) -> Checked:
    """Compare what a version gave with what the reference gave."""
    given = tensors(results)
    if len(given) != len(wanted):
        return Checked(None, f"gives {len(given)} tensors, the reference {len(wanted)}")
    for got, true in zip(given, wanted, strict=True):
        if tuple(got.shape) != tuple(true.shape):
            said = f"gives the shape {tuple(got.shape)}, the reference {tuple(true.shape)}"
            return Checked(None, said)
    worst = max((_error(*pair) for pair in zip(given, wanted, strict=True)), default=0.0)
    if math.isinf(worst):
        return Checked(worst, "gives NaN or infinity where the reference has a number, or not so")
    if worst > tolerance:
        return Checked(worst, f"is off by {worst:.1e} where {tolerance:.1e} is allowed")
    return Checked(worst)


def copies(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the tensors among the inputs, to see later whether these were changed."""
    return tuple(each.clone() if hasattr(each, "clone") else each for each in inputs)


def is_changed(inputs: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Whether a tensor among the inputs is no longer what it was."""
    pairs = zip(inputs, before, strict=True)
    return any(hasattr(now, "clone") and not _same(now, then) for now, then in pairs)


def tensors(results: Any) -> tuple[Any, ...]:
    """A tensor or several as a tuple."""
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def _same(now: Any, then: Any) -> bool:
    return bool(((now == then) | ((now != now) & (then != then))).all())


def _in_float64(value: Any) -> Any:
    floating = getattr(value, "is_floating_point", None)
    return value.detach().double() if floating and floating() else value


def _error(got: Any, true: Any) -> float:
    """The largest difference ÷ the largest magnitude; infinite where one is not a number."""
    if not true.numel():
        return 0.0
    got, true = got.detach().double(), true.detach().double()
    usable = true.isfinite()
    # Where the reference is infinite or NaN, the version has to be the same.
    if not bool((got.isfinite() == usable).all()) or not _same(got[~usable], true[~usable]):
        return math.inf
    got, true = got[usable], true[usable]
    if not true.numel():
        return 0.0
    largest = float(true.abs().max())
    off = float((got - true).abs().max())
    return off / largest if largest else off
