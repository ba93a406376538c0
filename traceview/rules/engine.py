"""Rules on traces: a rule is data, and what all findings share is done here once.

A rule says what is wrong and what to do, its claims measure it. From these come the severity, what
the program gains where the CPU is what limits it, the share of the steady time, and the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from traceview.facts.operations.frameworks import terms
from traceview.findings import (
    SEVERITIES,
    Edit,
    Evidence,
    Finding,
    LostTime,
    Saving,
    Severity,
    Subject,
    field_names,
    severity_of,
    share_pct,
)
from traceview.records import record
from traceview.rules.sentences import Clause, sentence
from traceview.trace import Trace
from traceview.units import Value
from traceview.vocabulary.frameworks import Framework


@record
class TimeClaim:
    """The figures of one finding, and what they prove.

    `saved_ns` is the time that the program gains, of a steady time of `span_ns`; `lost_ns` what it
    would gain if the CPU launched all work in time, None where that makes no difference. `values`
    are the evidence; `figures` join it where a sentence names them; `words` are put into sentences
    and are no evidence. `remedy` and `saving` replace those of the rule. The severity follows from
    the times, within `at_least` and `at_most`, unless it is given as `severity`.
    """

    subject: Subject
    values: Mapping[str, Value]
    table: str
    row: Mapping[str, Value]
    saved_ns: int = 0
    lost_ns: int | None = None
    span_ns: int = 0
    window: tuple[int | None, int | None] = (None, None)
    work: LostTime | None = None
    cause: str = ""
    lost: LostTime | None = None
    figures: Mapping[str, Value] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    remedy: str = ""
    saving: Saving | None = None
    severity: Severity | None = None
    at_least: Severity = "info"
    at_most: Severity = "high"
    edit: Edit | None = None
    error_ns: int | None = None

    @property
    def gain(self) -> tuple[int, int]:
        """What orders claims by the time that they save, now or with a faster CPU."""
        return self.saved_ns, self.lost_ns or 0


Claims = Callable[[Trace], Iterable[TimeClaim]]


@record
class FindingRule:
    """A kind of finding: its claims, and what it says of each.

    `message`, `clauses` and `remedy` are sentences (see `rules.sentences`); `remedy` may be
    one in the terms of the framework. `saving` says how exact the time is; `general` is as in
    `Finding`.
    """

    claims: Claims
    message: str
    remedy: str | Callable[[Framework], str] = ""
    clauses: tuple[Clause, ...] = ()
    saving: Saving = "at-most"
    general: bool = False


def findings(trace: Trace, rules: Iterable[FindingRule]) -> Iterator[Finding]:
    """The findings of all rules, in their order."""
    for rule in rules:
        for claim in rule.claims(trace):
            finding = finding_of(trace, rule, claim)
            if finding is not None:
                yield finding


def finding_of(trace: Trace, rule: FindingRule, claim: TimeClaim) -> Finding | None:
    """What a rule says of a claim; None where it is worth no finding."""
    severity = claim.severity or _severity(claim)
    if severity is None:
        return None
    known = {**claim.figures, **claim.values, **claim.words}
    said = [each.text for each in rule.clauses if each.holds(known)]
    message = sentence("".join([rule.message, *said]), known)
    # A claim's remedy may be a kernel rule's, whose brackets are code.
    remedy = claim.remedy or sentence(_remedy(trace, rule), known)
    for name, word in claim.words.items():
        message, remedy = (text.replace(f"{{{name}}}", word) for text in (message, remedy))
    named = {*field_names(message), *field_names(remedy)} - claim.values.keys()
    figures = {name: value for name, value in claim.figures.items() if name in named}
    limited = "" if claim.lost_ns is None else gain_sentence(claim.saved_ns, claim.lost_ns)
    return Finding(
        severity,
        message + limited,
        remedy,
        claim.saved_ns,
        claim.subject,
        Evidence({**figures, **claim.values}, claim.table, claim.row, *claim.window),
        share_pct(claim.saved_ns, claim.span_ns) if claim.saved_ns else None,
        claim.cause,
        claim.lost,
        rule.general,
        saving="at-most" if limited else claim.saving or rule.saving,
        work=claim.work,
        edit=claim.edit,
        error_ns=claim.error_ns,
    )


def _severity(claim: TimeClaim) -> Severity | None:
    severity = severity_of_part(claim.saved_ns, claim.lost_ns or 0, claim.span_ns)
    if severity is None:
        return None
    most, least = (SEVERITIES.index(each) for each in (claim.at_most, claim.at_least))
    return SEVERITIES[min(max(SEVERITIES.index(severity), most), least)]


def severity_of_part(saved_ns: int, lost_ns: int, span_ns: int) -> Severity | None:
    """Severity of what can be saved of a loss; `info` where only the loss is worth a finding."""
    severity = severity_of(saved_ns, span_ns)
    return "info" if severity is None and severity_of(lost_ns, span_ns) else severity


def _remedy(trace: Trace, rule: FindingRule) -> str:
    return rule.remedy if isinstance(rule.remedy, str) else rule.remedy(terms(trace))


def gain_sentence(saved_ns: int, gain_ns: int) -> str:
    """A sentence on the gain of a faster kernel, where the CPU leaves less than half of it.

    `gain_ns` is the gain if the CPU launched all work in time. The sentence follows one on the loss
    and takes `saved_ns` from the values.
    """
    if 2 * saved_ns >= gain_ns:
        return ""
    gains = "{saved_ns} at most" if saved_ns else "nothing"
    return (
        " The GPU waits for the CPU between launches, so the program gains "
        f"{gains} until the CPU launches sooner."
    )
