"""The decision of a gate in words: counts are compared exactly, measured figures by bounds."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from traceview.base import errors, statistics, units
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.comparison import changes, decomposition, environment, gate_rules, wording
from traceview.traces.comparison.comparison import PartDifference, RunComparison
from traceview.traces.comparison.figures import RunFigures

_CLOSE = 1e-9
_LINE = re.compile(r".:\d+$")
_MOST_NAMES = 8


def decide(
    baseline: Sequence[RunFigures],
    candidate: Sequence[RunFigures],
    rules: Sequence[gate_rules.Rule],
    *,
    force: bool = False,
) -> gate_rules.GateReport:
    """Whether the candidate holds the rules.

    Raises ComparisonRefusedError where comparing makes no sense, also of two programs that share
    hardly any kernel, unless `force`.
    """
    if not force:
        environment.check_one_program(baseline, candidate)
    comparison = decomposition.compare_runs(baseline, candidate, force=force)
    decisions = [
        _located(_decision(rule, condition, baseline, candidate), comparison)
        for rule in rules
        for condition in rule.conditions
    ]
    return gate_rules.GateReport(
        tuple(baseline), tuple(candidate), tuple(decisions), wording.headline(comparison)
    )


def _decision(
    rule: gate_rules.Rule,
    condition: gate_rules.GateCondition,
    baseline: Sequence[RunFigures],
    candidate: Sequence[RunFigures],
) -> gate_rules.Decision:
    """Compare values that are exact with the limit, others by bounds of their mean or difference.

    A change is settled exactly where an exact figure is equal in all runs of each side.
    """
    figure, kind = rule.figure, condition.kind
    sides = [[_value(run, figure) for run in side] for side in (baseline, candidate)]
    before, after = ([value for value in side if value is not None] for side in sides)
    draft = gate_rules.Decision(
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
        exact = gate_rules.is_exact(figure) and all(agree)
        violates = [sign * (after[0] - before[0]) > limit + close]
    else:
        limit, bound = condition.limit, sign * condition.limit
        close, exact = _CLOSE * max(abs(limit), 1.0), gate_rules.is_exact(figure)
        if kind == "equals":
            violates = [abs(value - limit) > close for value in after]
        else:
            violates = [value > bound + close for value in signed[1]]
    if exact:
        outcome: gate_rules.Outcome = "regressed" if any(violates) else "passed"
        some = any(violates) and not all(violates)
        reason = f"in {sum(violates)} of {len(after)} runs" if some else ""
        return replace(draft, outcome=outcome, limit=limit, is_exact=True, reason=reason)
    return _by_bounds(replace(draft, limit=limit), signed, bound, sign)


def _by_bounds(
    draft: gate_rules.Decision, signed: Sequence[Sequence[float]], bound: float, sign: int
) -> gate_rules.Decision:
    """Compare the bounds of the value or difference, in the bad direction, with `bound`."""
    compares, tail = draft.condition.compares, 1 - draft.certainty
    before, after = signed
    low, high = (
        statistics.difference_bounds(before, after, tail)
        if compares
        else statistics.mean_bounds(after, tail)
    )
    outcome: gate_rules.Outcome = "undecided"
    needed = None
    if low is not None and low > bound:
        outcome = "regressed"
    elif high is not None and high <= bound:
        outcome = "passed"
    elif compares:
        needed = statistics.runs_to_decide(before, after, bound, tail)
        needed = statistics.fewest_runs(tail) if low is None and needed is None else needed
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
    hint = errors.suggestion(figure, alike or plain, _MOST_NAMES)
    return f"no run has a figure {figure}; {hint}"


def _located(decision: gate_rules.Decision, comparison: RunComparison) -> gate_rules.Decision:
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
        for change in changes.changes(comparison):
            yield from (part for part in change.parts if part.delta_ns > 0)


_MARKS = {"passed": "passed", "regressed": "REGRESSED", "undecided": "undecided"}


def summary(report: gate_rules.GateReport) -> str:
    """The outcome of all rules in one line."""
    outcomes = Counter(decision.outcome for decision in report.decisions)
    rules = units.counted(len(report.decisions), "rule")
    if report.outcome == "passed":
        return f"Passed: {rules} held."
    order: tuple[gate_rules.Outcome, ...] = ("regressed", "undecided", "passed")
    parts = [f"{units.count(outcomes[name])} {name}" for name in order if outcomes[name]]
    return f"{report.outcome.capitalize()}: {', '.join(parts)} of {rules}."


def mark(decision: gate_rules.Decision) -> str:
    """The outcome as a word for a table."""
    return _MARKS[decision.outcome]


def value_text(figure: str, value: float | None) -> str:
    """A value of a figure with its unit."""
    name = figure.partition("[")[0]
    is_count = not units.unit_of(name) and value is not None and value == int(value)
    return units.quantity(name, int(value) if is_count and value is not None else value)


def condition_text(figure: str, condition: gate_rules.GateCondition) -> str:
    """The text of a condition."""
    if condition.compares:
        percent = units.percent(condition.limit)
        limit = percent if condition.is_relative else _amount(figure, condition.limit)
        amount = _amount(figure, condition.at_least)
        least = f", or {amount} if that is more" if condition.at_least else ""
        verb = "rise" if condition.kind == "max_increase" else "fall"
        return f"may {verb} by {limit}{least}"
    verbs = {"max": "must be at most", "min": "must be at least", "equals": "must be"}
    return f"{verbs[condition.kind]} {value_text(figure, condition.limit)}"


def sentence(decision: gate_rules.Decision) -> str:
    """A sentence on the measurement: why it passes, fails or does not decide."""
    figure, before, after = decision.figure, decision.before, decision.after
    measured = decision.is_exact or decision.limit is not None
    if (before is None and after is None) or not measured:
        return f"{decision.reason or 'not recorded'}."
    moved = f"{figure} is {value_text(figure, after)}"
    if before is not None and after is not None and before != after:
        share = (after - before) / abs(before) * 100 if before else 0.0
        sign = "+" if share > 0 else "-"
        pct = f" ({sign}{units.percent(abs(share))})" if before else ""
        moved = f"{moved} instead of {value_text(figure, before)}{pct}"
    place = f" ({decision.place})" if decision.place else ""
    if decision.outcome == "undecided":
        return f"{moved}{_range(decision)}; {_needed(decision)}{place}."
    some = f" {decision.reason}" if decision.reason else ""
    if decision.outcome == "passed":
        return f"{moved}{some}{_proof(decision)}."
    demanded = f"it {condition_text(figure, decision.condition)}"
    return f"{moved}{some}{_proof(decision)}; {demanded}{place}."


def _proof(decision: gate_rules.Decision) -> str:
    """The bound that decided, with its certainty."""
    if decision.is_exact or decision.low is None or decision.high is None:
        return ""
    is_upper = decision.condition.kind in ("max_increase", "max")
    if (decision.outcome == "regressed") == is_upper:
        bound = f"at least {_signed(decision, decision.low)}"
    else:
        bound = f"at most {_signed(decision, decision.high)}"
    return f", {bound} with {units.percent(decision.certainty * 100)} certainty"


def _range(decision: gate_rules.Decision) -> str:
    if decision.low is None or decision.high is None:
        return ", and these runs are too few to tell that from noise"
    low, high = _signed(decision, decision.low), _signed(decision, decision.high)
    limit = _amount(decision.figure, decision.limit)
    return f", between {low} and {high}, where the limit is {limit}"


def _needed(decision: gate_rules.Decision) -> str:
    if decision.runs_needed is None:
        return f"more than {units.count(statistics.MOST_RUNS)} runs per side would be needed"
    sides = "per side " if decision.condition.compares else ""
    return f"about {units.counted(decision.runs_needed, 'run')} {sides}would decide"


def _signed(decision: gate_rules.Decision, value: float) -> str:
    if not decision.condition.compares:
        return value_text(decision.figure, value)
    return f"{'-' if value < 0 else '+'}{_amount(decision.figure, abs(value))}"


def _amount(figure: str, value: float | None) -> str:
    """A difference of the figure with its unit; for percentages, in points."""
    text = value_text(figure, value)
    return f"{text.removesuffix(' %')} points" if text.endswith(" %") else text


def failed_decisions(decisions: Sequence[gate_rules.Decision]) -> list[gate_rules.Decision]:
    """The decisions that are not `passed`, regressions first."""
    order = ("regressed", "undecided")
    return [one for outcome in order for one in decisions if one.outcome == outcome]
