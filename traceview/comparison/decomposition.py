"""The difference of two sides, split into parts that sum to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from traceview.comparison.comparison import (
    Certainty,
    CountDifference,
    PartDifference,
    RunComparison,
)
from traceview.comparison.environment import check_comparable, environment_differences
from traceview.comparison.figures import RunFigures
from traceview.comparison.matching import MatchedParts, match_runs
from traceview.comparison.sides import longest, step_mean_ns, total

LEVEL = 0.95
"""Level of the interval of the headline."""


def compare_runs(
    before: Sequence[RunFigures],
    after: Sequence[RunFigures],
    force: bool = False,
) -> RunComparison:
    """Compare two sides, each of one or more runs of a program.

    Raises ComparisonRefusedError where the comparison makes no sense; `force` permits most of it.
    """
    check_comparable(before, after, force=force)
    found = map(_difference, match_runs(before, after))
    parts = sorted(found, key=lambda part: -abs(part.delta_ns))
    return RunComparison(
        before=tuple(before),
        after=tuple(after),
        before_ns=step_mean_ns(before),
        after_ns=step_mean_ns(after),
        certainty=Certainty("none", len(before), len(after), LEVEL, None, None, None),
        parts=tuple(parts),
        counts=tuple(_counts(before, after)),
        environment=environment_differences(before, after),
    )


def _difference(match: MatchedParts) -> PartDifference:
    before, after = longest(match.before), longest(match.after)
    shown = after or before
    assert shown is not None
    return PartDifference(
        kind=shown.kind,
        group=shown.group,
        name=shown.name,
        place=shown.place,
        change=match.change,
        before_ns=total(each.time_ns for each in match.before),
        after_ns=total(each.time_ns for each in match.after),
        calls_before=total(each.calls for each in match.before),
        calls_after=total(each.calls for each in match.after),
        before=before,
        after=after,
    )


def _counts(before: Sequence[RunFigures], after: Sequence[RunFigures]) -> Iterator[CountDifference]:
    """Every count per step; names of either side."""
    names = dict.fromkeys(name for run in (*before, *after) for name in run.counts)
    for name in names:
        sides = [[_per_step(run, name) for run in side] for side in (before, after)]
        means = [total(rates) / len(rates) for rates in sides]
        varies = any(len(set(rates)) > 1 for rates in sides)
        yield CountDifference(name, means[0], means[1], varies)


def _per_step(run: RunFigures, name: str) -> Fraction:
    return Fraction(run.counts.get(name, 0), run.steps)
