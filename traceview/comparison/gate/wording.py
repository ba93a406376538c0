"""Sentences about the decisions of a gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from traceview import units
from traceview.comparison.gate.rules import Decision, GateCondition, GateReport, Outcome
from traceview.statistics import MOST_RUNS

_MARKS = {"passed": "passed", "regressed": "REGRESSED", "undecided": "undecided"}


def summary(report: GateReport) -> str:
    """The outcome of all rules in one line."""
    outcomes = Counter(decision.outcome for decision in report.decisions)
    rules = units.counted(len(report.decisions), "rule")
    if report.outcome == "passed":
        return f"Passed: {rules} held."
    order: tuple[Outcome, ...] = ("regressed", "undecided", "passed")
    parts = [f"{units.count(outcomes[name])} {name}" for name in order if outcomes[name]]
    return f"{report.outcome.capitalize()}: {', '.join(parts)} of {rules}."


def mark(decision: Decision) -> str:
    """The outcome as a word for a table."""
    return _MARKS[decision.outcome]


def value_text(figure: str, value: float | None) -> str:
    """A value of a figure with its unit."""
    name = figure.partition("[")[0]
    is_count = not units.unit_of(name) and value is not None and value == int(value)
    return units.quantity(name, int(value) if is_count and value is not None else value)


def condition_text(figure: str, condition: GateCondition) -> str:
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


def sentence(decision: Decision) -> str:
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


def _proof(decision: Decision) -> str:
    """The bound that decided, with its certainty."""
    if decision.is_exact or decision.low is None or decision.high is None:
        return ""
    is_upper = decision.condition.kind in ("max_increase", "max")
    if (decision.outcome == "regressed") == is_upper:
        bound = f"at least {_signed(decision, decision.low)}"
    else:
        bound = f"at most {_signed(decision, decision.high)}"
    return f", {bound} with {units.percent(decision.certainty * 100)} certainty"


def _range(decision: Decision) -> str:
    if decision.low is None or decision.high is None:
        return ", and these runs are too few to tell that from noise"
    low, high = _signed(decision, decision.low), _signed(decision, decision.high)
    limit = _amount(decision.figure, decision.limit)
    return f", between {low} and {high}, where the limit is {limit}"


def _needed(decision: Decision) -> str:
    if decision.runs_needed is None:
        return f"more than {units.count(MOST_RUNS)} runs per side would be needed"
    sides = "per side " if decision.condition.compares else ""
    return f"about {units.counted(decision.runs_needed, 'run')} {sides}would decide"


def _signed(decision: Decision, value: float) -> str:
    if not decision.condition.compares:
        return value_text(decision.figure, value)
    return f"{'-' if value < 0 else '+'}{_amount(decision.figure, abs(value))}"


def _amount(figure: str, value: float | None) -> str:
    """A difference of the figure with its unit; for percentages, in points."""
    text = value_text(figure, value)
    return f"{text.removesuffix(' %')} points" if text.endswith(" %") else text


def failed_decisions(decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions that are not `passed`, regressions first."""
    order = ("regressed", "undecided")
    return [one for outcome in order for one in decisions if one.outcome == outcome]
