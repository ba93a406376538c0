"""The decision of a gate: counts are compared exactly, measured figures by their bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from traceview.comparison.changes import changes
from traceview.comparison.comparison import PartDifference, RunComparison
from traceview.comparison.decomposition import compare_runs
from traceview.comparison.figures import RunFigures
from traceview.comparison.gate.config import is_exact
from traceview.comparison.gate.rules import Decision, GateCondition, GateReport, Outcome, Rule
from traceview.comparison.wording import headline
from traceview.errors import suggestion
from traceview.statistics import difference_bounds, fewest_runs, mean_bounds, runs_to_decide
from traceview.vocabulary.causes import CAUSE_NAMES

_CLOSE = 1e-9
_LINE = re.compile(r".:\d+$")
_MOST_NAMES = 8


def decide(
    baseline: Sequence[RunFigures],
    candidate: Sequence[RunFigures],
    rules: Sequence[Rule],
    *,
    force: bool = False,
) -> GateReport:
    """Whether the candidate holds the rules.

    Raises ComparisonRefusedError where comparing makes no sense, unless `force`.
    """
    comparison = compare_runs(baseline, candidate, force=force)
    decisions = [
        _located(_decision(rule, condition, baseline, candidate), comparison)
        for rule in rules
        for condition in rule.conditions
    ]
    return GateReport(tuple(baseline), tuple(candidate), tuple(decisions), headline(comparison))


def _decision(
    rule: Rule,
    condition: GateCondition,
    baseline: Sequence[RunFigures],
    candidate: Sequence[RunFigures],
) -> Decision:
    """Compare values that are exact with the limit, others by bounds of their mean or difference.

    A change is settled exactly where an exact figure is equal in all runs of each side.
    """
    figure, kind = rule.figure, condition.kind
    sides = [[_value(run, figure) for run in side] for side in (baseline, candidate)]
    before, after = ([value for value in side if value is not None] for side in sides)
    draft = Decision(
        figure,
        condition,
        "undecided",
        rule.certainty,
        fmean(before) if before else None,
        fmean(after) if after else None,
    )
    if len(after) < len(candidate) or (condition.compares and len(before) < len(baseline)):
        return replace(draft, reason=_missing(figure, baseline, candidate))
    # Measured in the bad direction: more of what may not rise, less of what may not fall.
    sign = 1 if kind in ("max_increase", "max") else -1
    signed = [[sign * value for value in side] for side in (before, after)]
    if condition.compares:
        scale = abs(fmean(before)) / 100 if condition.is_relative else 1.0
        limit = bound = max(condition.limit * scale, condition.at_least)
        close = _CLOSE * max(abs(before[0]), 1.0)
        agree = (math.isclose(v, side[0], rel_tol=_CLOSE) for side in (before, after) for v in side)
        exact = is_exact(figure) and all(agree)
        violates = [sign * (after[0] - before[0]) > limit + close]
    else:
        limit, bound = condition.limit, sign * condition.limit
        close, exact = _CLOSE * max(abs(limit), 1.0), is_exact(figure)
        if kind == "equals":
            violates = [abs(value - limit) > close for value in after]
        else:
            violates = [value > bound + close for value in signed[1]]
    if exact:
        outcome: Outcome = "regressed" if any(violates) else "passed"
        some = any(violates) and not all(violates)
        reason = f"in {sum(violates)} of {len(after)} runs" if some else ""
        return replace(draft, outcome=outcome, limit=limit, is_exact=True, reason=reason)
    return _by_bounds(replace(draft, limit=limit), signed, bound, sign)


def _by_bounds(
    draft: Decision, signed: Sequence[Sequence[float]], bound: float, sign: int
) -> Decision:
    """Compare the bounds of the value or difference, in the bad direction, with `bound`."""
    compares, tail = draft.condition.compares, 1 - draft.certainty
    before, after = signed
    low, high = difference_bounds(before, after, tail) if compares else mean_bounds(after, tail)
    outcome: Outcome = "undecided"
    needed = None
    if low is not None and low > bound:
        outcome = "regressed"
    elif high is not None and high <= bound:
        outcome = "passed"
    elif compares:
        needed = runs_to_decide(before, after, bound, tail)
        needed = fewest_runs(tail) if low is None and needed is None else needed
    elif low is None:
        needed = math.ceil(math.log2(1 / tail) - _CLOSE)
    if sign < 0 and low is not None and high is not None:
        low, high = -high, -low
    return replace(draft, outcome=outcome, low=low, high=high, runs_needed=needed)


def _value(run: RunFigures, figure: str) -> float | None:
    """The figure of a run; 0 for a cause without idle time, None for a figure not recorded."""
    family, _, name = figure.partition("[")
    absent = 0.0 if family == "idle_ns" and name.removesuffix("]") in CAUSE_NAMES else None
    return run.figures.get(figure, absent)


def _missing(figure: str, baseline: Sequence[RunFigures], candidate: Sequence[RunFigures]) -> str:
    names = sorted({name for run in (*baseline, *candidate) for name in run.figures})
    if figure in names:
        without = next(run for run in (*candidate, *baseline) if figure not in run.figures)
        return f"{without.name} has no {figure}"
    family = figure.partition("[")[0]
    alike = [name for name in names if name.startswith(f"{family}[")]
    plain = [name for name in names if "[" not in name]
    hint = suggestion(figure, alike or plain, _MOST_NAMES)
    return f"no run has a figure {figure}; {hint}"


def _located(decision: Decision, comparison: RunComparison) -> Decision:
    """The decision, with the place that explains it unless it passed."""
    if decision.outcome == "passed":
        return decision
    places = [part.place for part in _explaining(decision.figure, comparison) if part.place]
    lines = [place for place in places if _LINE.search(place)]
    return replace(decision, place=next(iter(lines or places), ""))


def _explaining(figure: str, comparison: RunComparison) -> Iterator[PartDifference]:
    """Yield the parts that a figure is about, those that explain most first."""
    family, _, name = figure.removesuffix("]").partition("[")
    if name:
        key = "group" if family == "class_ns" else "name"
        named = (part for part in comparison.parts if getattr(part, key) == name)
        yield from sorted(named, key=lambda part: -abs(part.delta_ns))
    else:
        for change in changes(comparison):
            yield from (part for part in change.parts if part.delta_ns > 0)
