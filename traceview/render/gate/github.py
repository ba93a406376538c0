"""The outcome of a gate for GitHub Actions: annotations, and a job summary in Markdown."""

from __future__ import annotations

import re

from traceview.comparison.gate import wording
from traceview.comparison.gate.rules import Decision, GateReport
from traceview.render.base.safe_text import visible
from traceview.render.documents import document_of
from traceview.render.markdown import render_markdown

_PLACE = re.compile(r"(?:.*[ (])?(?P<file>[^()\s]+):(?P<line>\d+)\)?$", re.DOTALL)
_NAME, _SENTENCE = 120, 1_000


def workflow_commands(report: GateReport) -> str:
    """A workflow command per rule that did not pass, with file and line if known."""
    return "".join(
        f"{each}\n" for each in map(_annotation, wording.failed_decisions(report.decisions))
    )


def _annotation(decision: Decision) -> str:
    level = "error" if decision.outcome == "regressed" else "warning"
    place = _PLACE.match(decision.place)
    where = f"file={_property(place['file'])},line={place['line']}," if place else ""
    title = _property(f"{visible(decision.figure, _NAME)} {decision.outcome}")
    return (
        f"::{level} {where}title={title}::{_data(visible(wording.sentence(decision), _SENTENCE))}"
    )


def _data(text: str) -> str:
    """Escape the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text, _SENTENCE)).replace(":", "%3A").replace(",", "%2C")


def job_summary(report: GateReport) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY; no name becomes markup."""
    return render_markdown(document_of(report))
