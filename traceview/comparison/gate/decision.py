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
from traceview.comparison.gate.rules import Decision, GateCondition, GateReport, Rule
from traceview.comparison.wording import headline
from traceview.errors import suggestion
from traceview.statistics import difference_bounds, fewest_runs, mean_bounds, runs_to_decide
from traceview.vocabulary.causes import CAUSE_NAMES

_CHANGES = ("max_increase", "max_decrease")
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
    sides = [[_value(run, rule.figure) for run in side] for side in (baseline, candidate)]
    before, after = ([value for value in side if value is not None] for side in sides)
    draft = Decision(
        rule.figure,
        condition,
        "undecided",
        rule.certainty,
        fmean(before) if before else None,
        fmean(after) if after else None,
    )
    compares = condition.kind in _CHANGES
    if len(after) < len(candidate) or (compares and len(before) < len(baseline)):
        return replace(draft, reason=_missing(rule.figure, baseline, candidate))
    if compares:
        return _of_change(draft, before, after)
    return _of_value(draft, after)


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


def _of_change(draft: Decision, before: Sequence[float], after: Sequence[float]) -> Decision:
    """Compare the bounds of the difference, counted in the bad direction, with the limit."""
    condition = draft.condition
    sign = 1 if condition.kind == "max_increase" else -1
    scale = abs(fmean(before)) / 100 if condition.is_relative else 1.0
    limit = max(condition.limit * scale, condition.at_least)
    draft = replace(draft, limit=limit)
    if _is_settled(draft.figure, before, after):
        worse = sign * (after[0] - before[0])
        return _exactly(draft, worse > limit + _CLOSE * max(abs(before[0]), 1.0))
    low, high = difference_bounds(
        [sign * each for each in before], [sign * each for each in after], 1 - draft.certainty
    )
    decided = _bounded(draft, low, high, limit)
    if decided.outcome == "undecided":
        signed = [[sign * each for each in side] for side in (before, after)]
        needed = runs_to_decide(signed[0], signed[1], limit, 1 - draft.certainty)
        fewest = fewest_runs(1 - draft.certainty)
        decided = replace(decided, runs_needed=fewest if low is None and needed is None else needed)
    if sign < 0 and low is not None and high is not None:
        decided = replace(decided, low=-high, high=-low)
    return decided


def _of_value(draft: Decision, after: Sequence[float]) -> Decision:
    """Compare the bounds of the candidate's own value with the limit."""
    kind, limit = draft.condition.kind, draft.condition.limit
    draft, close = replace(draft, limit=limit), _CLOSE * max(abs(limit), 1.0)
    if is_exact(draft.figure):
        violates = {
            "max": [each > limit + close for each in after],
            "min": [each < limit - close for each in after],
            "equals": [abs(each - limit) > close for each in after],
        }[kind]
        some = sum(violates)
        reason = f"in {some} of {len(after)} runs" if 0 < some < len(after) else ""
        return replace(_exactly(draft, some > 0), reason=reason)
    sign = 1 if kind == "max" else -1
    low, high = mean_bounds([sign * each for each in after], 1 - draft.certainty)
    decided = _bounded(draft, low, high, sign * limit)
    if decided.outcome == "undecided" and low is None:
        fewest = math.ceil(math.log2(1 / (1 - draft.certainty)) - _CLOSE)
        decided = replace(decided, runs_needed=fewest)
    if sign < 0 and low is not None and high is not None:
        decided = replace(decided, low=-high, high=-low)
    return decided


def _is_settled(figure: str, before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether a figure is exact and equal in all runs of each side."""
    agree = all(
        math.isclose(each, side[0], rel_tol=_CLOSE) for side in (before, after) for each in side
    )
    return is_exact(figure) and agree


def _exactly(draft: Decision, is_worse: bool) -> Decision:
    return replace(draft, outcome="regressed" if is_worse else "passed", is_exact=True)


def _bounded(draft: Decision, low: float | None, high: float | None, limit: float) -> Decision:
    draft = replace(draft, low=low, high=high)
    if low is not None and low > limit:
        return replace(draft, outcome="regressed")
    if high is not None and high <= limit:
        return replace(draft, outcome="passed")
    return draft


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
