"""The plan of a report in one sentence: the time of a step after each remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from traceview.base import units
from traceview.base.findings import Finding, shortened
from traceview.base.vocabulary.remedies import SHORT
from traceview.traces.plan import PlanStep
from traceview.traces.reporting import Report

LEAST_STEPS, MOST_STEPS, LONGEST_LABEL = 2, 6, 30
"""A plan of one remedy says what its finding says; six fit in three or four lines of 80 cells."""
_TELLING = 1 / 3
"""An error three times what the last remedy wins hides it: `5.9 → 5.6 ± 5.5` says nothing."""
_IF_REPEATED = re.compile(r"^If [^,]* this(?: too)?, ")
_CLAUSE = re.compile(r"[,:;.](?:\s|$)|\s\(")
_CONDITION = re.compile(
    r"\s(?:(?:of )?that|so that|where|if|with|instead of|which|while|of|on|in|for|before|through)\s"
)
_MOST_MORE_DIGITS = 2
_NAME_ENDS = re.compile(r"[<(]")
_TELL_APART = ("kernel", "direction")


def plan_text(report: Report, most: int = MOST_STEPS) -> str:
    """`33.6 ms per step → use a CUDA graph: 20.1 → pad the vocabulary: 16.8 ± 0.4`, or nothing.

    Last remedies after which a step takes next to nothing beside the error have no figure, and the
    sentence says so.
    """
    plan = telling(report.plan)
    rows = plan[:most]
    if len(rows) < LEAST_STEPS:
        return ""
    told = report.verdict
    first = report.findings[rows[0].finding].won
    per = " per step" if first and first.per_step else ""
    if told and per and told.step_unrecorded_ns and most == MOST_STEPS:
        per += f" without {'nsys' if report.trace.recorder == 'nsys' else 'the profiler'}"
    before = units.duration(rows[0].step_before_ns)
    texts, unit, times = [f"{before}{per}"], before.rpartition(" ")[2], _times(rows)
    if not times:
        return ""
    for time, label, row in zip_longest(times, _labels(report, rows), rows):
        only = "" if row.wins_now else " (only then)"
        if time is None:
            texts.append(f"{label}{only}")
            continue
        number, _, its_unit = time.rpartition(" ")
        texts.append(f"{label}{only}: {number if its_unit == unit else time}")
        unit = its_unit
    silent, more = len(rows) - len(times), len(plan) - len(rows)
    if silent:
        which = {1: "wins", 2: "both win"}.get(silent, f"the last {silent} win")
        texts[-1] += f" ({which} less than the error)"
    return " → ".join(texts) + (f", and {more} more" if more else "")


def telling(plan: Sequence[PlanStep]) -> list[PlanStep]:
    """The plan without last remedies that win next to nothing beside its error."""
    rows = [*plan]
    while rows and _is_lost_in_error(rows[-1]):
        rows.pop()
    return rows


def _is_lost_in_error(row: PlanStep) -> bool:
    return row.step_before_ns - row.step_after_ns < _TELLING * row.error_ns


def _times(rows: Sequence[PlanStep]) -> list[str]:
    """The time after each remedy, the last one with its error; neighbours differ where they can.

    All have the digits that the last one's error leaves. There is none of last remedies whose time
    says less than the one before: its error is as large, and as large as what is won.
    """
    rows = [*rows]
    while rows and _says_nothing(rows[-1]):
        rows.pop()
    if not rows:
        return []
    last_ns, error_ns = rows[-1].step_after_ns, rows[-1].error_ns
    for more in range(_MOST_MORE_DIGITS + 1):
        times = [units.within_error(row.step_after_ns, error_ns, more_digits=more) for row in rows]
        if all(one != other for one, other in pairwise(map(_number, times))):
            break
    return [*times[:-1], units.with_error(last_ns, error_ns, more_digits=more)]


def _says_nothing(row: PlanStep) -> bool:
    won_ns = row.step_before_ns - row.step_after_ns
    return row.error_ns >= won_ns and units.is_hidden(row.step_after_ns, row.error_ns)


def _number(time: str) -> tuple[float, str]:
    number, _, unit = time.partition(" ")
    return float(number.replace(",", "")), unit


def _labels(report: Report, rows: Sequence[PlanStep]) -> list[str]:
    """The remedies in a few words; of equal ones, each with what it is about."""
    findings = [report.findings[row.finding].finding for row in rows]
    labels = [label(finding) for finding in findings]
    return [
        f"{each} ({about})" if labels.count(each) > 1 and (about := _about(finding)) else each
        for each, finding in zip(labels, findings, strict=True)
    ]


def _about(finding: Finding) -> str:
    """What tells a finding from others of its remedy, such as a kernel or `H2D`."""
    evidence = {**finding.evidence.row, **finding.evidence.values}
    names = (str(evidence[name]) for name in _TELL_APART if evidence.get(name))
    subject = finding.subject.name if finding.subject.kind == "line" else ""
    name = _NAME_ENDS.split(next(names, subject))[0]
    return name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL + 1].rpartition(" ")[0]


def label(finding: Finding) -> str:
    """The remedy in a few words, such as `pin the host memory`: whole, and at most 30 characters.

    The first clause of the action, or of what follows `If so`; without a condition, or a place,
    if it is long. Where that is too long as well, what the finding is about.
    """
    action = _IF_REPEATED.sub("", finding.action)
    for begins, words in SHORT.items():
        if action.lower().startswith(begins.lower()):
            return words
    clauses = _CLAUSE.split(action, maxsplit=2)
    clause = clauses[clauses[0].startswith("Where ") and len(clauses) > 1]
    parts = [0, *(match.start() for match in _CONDITION.finditer(clause)), len(clause)]
    ends = [end for end in parts if 0 < end <= LONGEST_LABEL]
    if ends:
        return f"{clause[:1].lower()}{clause[1 : ends[-1]]}"
    subject = _NAME_ENDS.split(finding.subject.name)[0]
    return f"change {shortened(subject or finding.cause or 'it', LONGEST_LABEL - 7)}"
