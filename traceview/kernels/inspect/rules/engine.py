"""Rules on kernels: a rule yields claims, which name their sentences; the engine does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from traceview.base.findings import Evidence, Finding, Severity, sentence
from traceview.base.records import record
from traceview.base.units import Value
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name, subject_of
from traceview.kernels.inspect.rules.remedies import Advice, Remedy, Tested, actions_in_words
from traceview.kernels.ptx.model import Compiled, SourceLine

_MOST_LINES = 3
_AT = " at "


@record
class Diagnosis:
    """What a rule says: sentences (see `rules.sentences`), of which `{places}` are the lines.

    `remedy` is for a kernel that was not recompiled; `then` follows a remedy that was.
    `explained_by` are rules whose finding on the same lines has the cause: it gets the sentence
    `adds` instead.
    """

    message: str
    remedy: str = ""
    severity: Severity = "low"
    then: str = ""
    explained_by: tuple[str, ...] = ()
    adds: str = ""


@record
class CodeClaim:
    """The figures of a finding on a kernel, and their proof, `basis`.

    `source` is the line that it is about, None for the whole kernel; `lines` are all that the
    sentence lists, behind `leads` such as `loads at `. `words` are put into sentences and are no
    evidence. `severity` and `remedy` replace those of the statement. `helped` are the remedies that
    recompiling proved, the best first; if none holds beside those of other findings, `otherwise`
    is advised, by default the remedy. `tested` are such remedies which `remedy` words itself.
    """

    says: Diagnosis
    values: Mapping[str, Value]
    basis: str
    source: SourceLine | None = None
    lines: Sequence[SourceLine | None] = ()
    leads: Sequence[str] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    severity: Severity | None = None
    remedy: str = ""
    helped: Sequence[Tested[Any]] = ()
    tested: tuple[Remedy, ...] = ()
    otherwise: str = ""


Rule = Callable[[KernelContext], Iterable[CodeClaim]]


def advice_by(rule: Rule, kernel: KernelContext) -> list[Advice]:
    """The findings of a rule, each with the remedies that were tested."""
    return [_advice(claim, kernel.compiled, rule.__name__) for claim in rule(kernel)]


def _advice(claim: CodeClaim, compiled: Compiled, rule: str) -> Advice:
    places, lines = lines_in_message(claim.lines, claim.leads) if claim.lines else ("", {})
    values, words = {**lines, **claim.values}, {"places": places, **claim.words}
    says = claim.says.message
    if not any(claim.lines) and not claim.leads:
        # Code without a line table: "at an unknown line" says nothing.
        says = says.replace(f",{_AT}{{places}}", "").replace(f"{_AT}{{places}}", "")
    message, remedy = (sentence(text, {**values, **words}) for text in (says, claim.says.remedy))
    for name, word in words.items():
        message, remedy = (text.replace(f"{{{name}}}", word) for text in (message, remedy))
    remedy, helped = claim.remedy or remedy, tuple(each.remedy for each in claim.helped)
    guess = "; for guessed arguments" if compiled.how in ("called", "guessed") else ""
    finding = Finding(
        claim.severity or claim.says.severity,
        message,
        actions_in_words(helped) + claim.says.then if helped else remedy,
        subject=subject_of(claim.source, compiled),
        evidence=Evidence(values, basis=claim.basis + guess),
    )
    return Advice(
        finding,
        claim.tested or helped,
        claim.otherwise or remedy,
        rule,
        frozenset(filter(None, claim.lines or [claim.source])),
        claim.says.explained_by,
        claim.says.adds,
    )


def lines_in_message(
    lines: Sequence[SourceLine | None], leads: Sequence[str] = ()
) -> tuple[str, dict[str, Value]]:
    """A template that lists lines, `{line}, {line_2} and {line_3}`, and its values.

    `leads`, one per line, end in `at` and precede the lines: `loads at {line} and stores at
    {line_2}`. A repeated lead is left out, and several leads of one line are joined. Beyond three
    lines only the number of the others is given. Code without a line table has only the leads:
    `loads and stores`.
    """
    if leads and not any(lines):
        alone = (lead.removesuffix(_AT) for lead in leads)
        return " and ".join(dict.fromkeys(alone)), {"line": line_name(None)}
    if leads:
        lines, leads = _of_each_line(lines, leads)
    keys = ["line", *(f"line_{number}" for number in range(2, _MOST_LINES + 1))]
    values: dict[str, Value] = {
        key: line_name(line) for key, line in zip(keys, lines, strict=False)
    }
    shown, before = [], ""
    for number, key in enumerate(values):
        lead = leads[number] if leads else ""
        shown.append(f"{lead if lead != before else ''}{{{key}}}")
        before = lead
    if len(lines) > _MOST_LINES:
        shown.append("{more_lines:more line}")
        values["more_lines"] = len(lines) - _MOST_LINES
    if len(set(leads[: len(shown)])) > 1:
        return " and ".join(shown), values
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:]))), values


def _of_each_line(
    lines: Sequence[SourceLine | None], leads: Sequence[str]
) -> tuple[list[SourceLine | None], list[str]]:
    """Each line once, with its leads joined: `loads and stores at `."""
    joined: dict[SourceLine | None, list[str]] = {}
    for line, lead in zip(lines, leads, strict=True):
        joined.setdefault(line, []).append(lead)
    return list(joined), [
        " and ".join([*(lead.removesuffix(_AT) for lead in some[:-1]), some[-1]])
        for some in joined.values()
    ]
