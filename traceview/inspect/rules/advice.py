"""Findings whose remedies were recompiled, and which of these remedies hold together.

Each remedy is proven on its own by its rule. Side by side they may contradict one another
(`num_warps=4` and `num_warps=16`), and one may bring a new finding in the next run. So they are
applied one after another, the worst finding first. A remedy is reported only if the kernel has
nothing new to report that is as bad, with this remedy alone and with those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from traceview.findings import SEVERITIES, Finding, Severity
from traceview.headless.change import Change
from traceview.inspect.recompilations import Outcome, Recompilations
from traceview.inspect.rules.remedies import Remedy, actions_in_words
from traceview.ptx.model import Compiled
from traceview.records import record

T = TypeVar("T")


@record
class Advice:
    """A finding whose remedy is one of `remedies`, the best first; `otherwise` if none holds.

    `rule` is the name of the rule that found it.
    """

    finding: Finding
    remedies: tuple[Remedy, ...]
    otherwise: str
    rule: str = ""


Found = Mapping[str, Sequence[Finding]]
"""The findings of each rule, by its name."""

Inspect = Callable[[Outcome], Found]
"""The findings on a recompiled kernel, none of them tested by recompiling."""


@dataclass
class Reconciliation:
    """Applies the remedies of one kernel one after another. `applied` is the change so far."""

    compiled: Compiled
    trials: Recompilations
    inspect: Inspect
    applied: Change = field(default_factory=Change)
    _inspected: dict[int, Found] = field(default_factory=dict)

    def settle(self, listed: Sequence[Advice]) -> list[Finding]:
        """The findings in their order, with only the remedies that hold together."""
        worst = sorted(listed, key=lambda advice: SEVERITIES.index(advice.finding.severity))
        settled = {id(advice): self._settled(advice) for advice in worst}
        return [settled[id(advice)] for advice in listed]

    def _settled(self, advice: Advice) -> Finding:
        if self._is_solved(advice):
            return self._solved(advice.finding)
        reasons = {
            remedy: self._objection(remedy.change, advice.finding.severity)
            for remedy in advice.remedies
        }
        held = [remedy for remedy, reason in reasons.items() if not reason]
        if held:
            self.applied = merged(self.applied, held[0].change) or self.applied
        if len(held) == len(reasons):
            return advice.finding
        finding, evidence = advice.finding, advice.finding.evidence
        why = "; ".join(reason for reason in dict.fromkeys(reasons.values()) if reason)
        return replace(
            finding,
            remedy=actions_in_words(held) if held else advice.otherwise,
            evidence=replace(
                evidence,
                values={**evidence.values, "withdrawn": why},
                basis=f"{evidence.basis}; {why}",
            ),
        )

    def _is_solved(self, advice: Advice) -> bool:
        """Whether the remedies of earlier findings remove this one, too."""
        own = {remedy.change for remedy in advice.remedies}
        settled = self.applied == Change() or self.applied.resizes or self.applied in own
        if settled or not own or not advice.rule:
            return False
        outcome = self.trials.together(self.applied)
        lines = _lines(advice.finding)
        left = self._found(outcome).get(advice.rule, ()) if outcome else (advice.finding,)
        return not any(not lines or lines & _lines(finding) for finding in left)

    def _solved(self, finding: Finding) -> Finding:
        change = self.applied.description
        basis = f"{finding.evidence.basis}; recompiled with {change}: no such finding"
        return replace(
            finding,
            remedy=f"Use {change}, as advised for another finding: it removes this one, too",
            evidence=replace(finding.evidence, basis=basis),
        )

    def _objection(self, change: Change, severity: Severity) -> str:
        """The reason to withdraw a change; empty if it holds."""
        together = merged(self.applied, change)
        if together is None:
            return f"{change.description} contradicts {self.applied.description}"
        if not change.tunes:
            return ""
        # A reader may follow all remedies or this one only.
        reasons = (self._harm(each, severity) for each in dict.fromkeys((change, together)))
        return next(filter(None, reasons), "")

    def _harm(self, change: Change, severity: Severity) -> str:
        """The harm of a change to the kernel; empty if there is none."""
        outcome = self.trials.together(change)
        if outcome is None and self.trials.is_left_out(change):
            return f"there was no time to try it with {self.applied.description}"
        if outcome is None:
            return f"it does not compile with {change.description}"
        worse = self._worse(outcome, severity)
        return f"with {change.description} the next report has: {worse.message}" if worse else ""

    def _found(self, outcome: Outcome) -> Found:
        # The trials keep every outcome, so that its identity stays its own.
        if id(outcome) not in self._inspected:
            self._inspected[id(outcome)] = self.inspect(outcome)
        return self._inspected[id(outcome)]

    def _worse(self, outcome: Outcome, severity: Severity) -> Finding | None:
        """A finding that only the recompiled kernel has, at least of this severity; or None."""
        before = self._found(self.trials.original(self.compiled))
        after = self._found(outcome)
        bad = SEVERITIES.index(severity)
        for rule, findings in after.items():
            known = before.get(rule, ())
            for finding in findings:
                if SEVERITIES.index(finding.severity) <= bad and _is_new(finding, known):
                    return finding
        return None


def merged(one: Change, other: Change) -> Change | None:
    """Both changes; None if they set the same thing to different values."""
    constexprs = dict(one.constexprs)
    for name, value in other.constexprs:
        if constexprs.setdefault(name, value) != value:
            return None
    options = [
        (one.num_warps, other.num_warps),
        (one.num_stages, other.num_stages),
        (one.max_registers, other.max_registers),
    ]
    if any(a and b and a != b for a, b in options):
        return None
    warps, stages, registers = (a or b for a, b in options)
    return Change(
        divisible=tuple(dict.fromkeys((*one.divisible, *other.divisible))),
        constexprs=tuple(constexprs.items()),
        num_warps=warps,
        num_stages=stages,
        max_registers=registers,
        resizes=one.resizes or other.resizes,
    )


def _is_new(finding: Finding, known: Sequence[Finding]) -> bool:
    """Whether no known finding of the same rule is as severe about the same lines."""
    for other in known:
        same = not _lines(finding) or bool(_lines(finding) & _lines(other))
        if same and SEVERITIES.index(other.severity) <= SEVERITIES.index(finding.severity):
            return False
    return True


def _lines(finding: Finding) -> set[object]:
    values = finding.evidence.values
    return {value for name, value in values.items() if name.startswith("line")}
