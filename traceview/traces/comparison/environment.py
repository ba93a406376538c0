"""Differences of machine and software that may explain a difference, and comparisons to refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from statistics import median

from traceview.base.errors import ComparisonRefusedError
from traceview.traces.comparison import comparison, programs, wording
from traceview.traces.comparison.figures import RunFigures

_FORCE = "pass force=True to compare them all the same"
_OPTION = "pass --force to compare them all the same"
_FIRST = (
    "gpu", "devices", "other_processes", "clock_limits", "sm_clock_mhz", "memory_clock_mhz",
    "max_sm_clock_mhz", "power_limit_w", "temperature_c", "driver", "cuda", "torch", "triton",
    "recorder", "recorder_options",
)  # fmt: skip
"""Keys in the order in which they explain a difference; the others follow by name."""
_TOLERANCES = {"sm_clock_mhz": 0.05, "memory_clock_mhz": 0.05, "temperature_c": 0.25}
"""Of measured values: a smaller relative difference explains nothing."""
_WORKING = ("kernel", "communication", "copy", "memset", "graph")


def check_comparable(
    before: Sequence[RunFigures], after: Sequence[RunFigures], *, force: bool = False
) -> None:
    """Raise ComparisonRefusedError where comparing makes no sense.

    `force` permits all but a side without runs or without GPU work, where there is nothing to
    compare.
    """
    for side, runs in (("before", before), ("after", after)):
        if not runs:
            raise ComparisonRefusedError(f"no recording on the {side} side", "pass one or more")
        for run in runs:
            if run.window_ns <= 0 or not any(part.kind in _WORKING for part in run.parts):
                raise ComparisonRefusedError(
                    f"{run.name} has no GPU work in its steps",
                    "compare recordings in which the GPU works",
                )
    if not force:
        check_captures((*before, *after))
        for key, noun in (("gpu", "GPU"), ("devices", "number of GPUs")):
            if values := _differing(key, before, after):
                what = f"the {noun} differs: {values[0]} before, {values[1]} after"
                raise ComparisonRefusedError(what, _FORCE, _OPTION)
        kinds = [{part.kind for run in side for part in run.parts} for side in (before, after)]
        there = [bool(of & {"kernel", "communication", "graph"}) for of in kinds]
        if any(there) and not all(there):
            what = f"no kernel was recorded {'after' if there[0] else 'before'}"
            raise ComparisonRefusedError(what, _FORCE, _OPTION)


def check_captures(runs: Iterable[RunFigures], *, may_force: bool = True) -> None:
    """Refuse runs that are the same capture: copies of one run would make a side look certain."""
    names: dict[str, str] = {}
    for run in runs:
        if run.digest in names:
            raise same_capture(names[run.digest], run.name, may_force=may_force)
        if run.digest:
            names[run.digest] = run.name


def same_capture(one: str, other: str, *, may_force: bool = True) -> ComparisonRefusedError:
    """The error for two recordings, by name, that are the same capture."""
    remedy = "pass each capture once"
    return ComparisonRefusedError(
        f"{one} and {other} are the same capture",
        f"{remedy}, or {_FORCE}" if may_force else remedy,
        f"{remedy}, or {_OPTION}" if may_force else remedy,
    )


def environment_differences(
    before: Sequence[RunFigures], after: Sequence[RunFigures]
) -> tuple[comparison.EnvironmentDifference, ...]:
    """Differences between the sides, those that explain most first.

    A value that one side did not record is not a difference.
    """
    keys = {key for run in (*before, *after) for key in _environment(run)}
    first = [key for key in _FIRST if key in keys]
    return tuple(
        comparison.EnvironmentDifference(key, *values, refuses=key in ("gpu", "devices"))
        for key in (*first, *sorted(keys.difference(first)))
        if (values := _differing(key, before, after)) is not None
    )


def _environment(run: RunFigures) -> dict[str, str]:
    return {**run.environment, "devices": str(run.devices), "recorder": run.recorder}


def _differing(
    key: str, before: Sequence[RunFigures], after: Sequence[RunFigures]
) -> tuple[str, str] | None:
    """The distinct values of both sides, in order; None where they agree or one has none."""
    values = [(_environment(run).get(key, "") for run in side) for side in (before, after)]
    one, other = (list(dict.fromkeys(value for value in of if value)) for of in values)
    if not (one and other) or set(one) == set(other):
        return None
    if key in _TOLERANCES and _alike(one, other, _TOLERANCES[key]):
        return None
    return ", ".join(one), ", ".join(other)


def _alike(before: Sequence[str], after: Sequence[str], tolerance: float) -> bool:
    """Whether the medians of measured values differ by at most that share of the larger."""
    try:
        one, other = (median(map(float, values)) for values in (before, after))
    except ValueError:
        return False
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


def check_one_program(before: Sequence[RunFigures], after: Sequence[RunFigures]) -> None:
    """Refuse sides that share no kernel, or hardly any."""
    shares = programs.shared_by_name(before, after)
    if shares is not None and max(shares) < Fraction(programs.LEAST_SHARED):
        what = f"the kernels of both sides take {wording.kernel_shares(*shares)}"
        raise ComparisonRefusedError(f"{what}: these are different programs", _FORCE, _OPTION)
