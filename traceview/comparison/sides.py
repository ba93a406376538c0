"""One side of a comparison: its runs, and the mean of each part per step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

from traceview.comparison.figures import KernelShape, RunFigures, StepPart
from traceview.records import record

PartKey = tuple[str, ...]


@record
class SidePart:
    """A part of the step on one side: mean time and calls per step over the runs.

    `part` is that of the run with the median step among those that have it.
    """

    part: StepPart
    time_ns: Fraction
    calls: Fraction


def step_mean_ns(runs: Sequence[RunFigures]) -> Fraction:
    """Time per step, the mean over the runs."""
    return total(run.mean_step_ns for run in runs) / len(runs)


def side_parts(runs: Sequence[RunFigures]) -> list[SidePart]:
    """The parts of a side; their times add up to `step_mean_ns`."""
    by_key: defaultdict[PartKey, list[tuple[StepPart, int]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.mean_step_ns):
        for part in run.parts:
            by_key[part_key(part)].append((part, run.steps))
    return [
        SidePart(
            parts[len(parts) // 2][0],
            total(Fraction(part.time_ns, steps) for part, steps in parts) / len(runs),
            total(Fraction(part.calls, steps) for part, steps in parts) / len(runs),
        )
        for parts in by_key.values()
    ]


def part_key(part: StepPart) -> PartKey:
    """The key of a part, equal for the same part in other runs of the program."""
    return (part.kind, part.group, part.symbol or part.name, configuration(part.shape), part.place)


def configuration(shape: KernelShape | None) -> str:
    """Grid and block of a launch configuration."""
    return "" if shape is None else f"{shape.grid}{shape.block}"


def longest(parts: Sequence[SidePart]) -> StepPart | None:
    """The part with most time; None without any."""
    return max(parts, key=lambda side: side.time_ns).part if parts else None


def total(values: Iterable[Fraction]) -> Fraction:
    """The exact sum."""
    return sum(values, Fraction(0))
