"""One page per question: what it means, how it is computed, a picture, what to do, its limits.

Where a page computes figures by hand, with SQL on the recording, they are those of the report, or
the site is not built.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import traceview
from traceview.base.findings import Finding
from traceview.base.tables import Cell
from traceview.traces.analyses import ALL
from traceview.traces.analyses.base import Analysis, Result
from traceview.traces.explanation import Explanation, explained
from website.pages import Page
from website.worked import Worked, differences, worked

_MOST_ANSWERS = 2
_LONGEST_CELL = 40


def question_pages(repository: Path) -> Iterator[Page]:
    """A page of each analysis, with the picture of a real recording."""
    added = tomllib.loads((repository / "docs/questions.toml").read_text("utf-8"))
    # Several questions are asked of one recording.
    load = cache(traceview.load)
    for number, analysis in enumerate(ALL):
        more = added[analysis.name]
        report = traceview.analyze(load(repository / more["example"]), analysis.name)
        outcome = report[analysis.name]
        assert isinstance(outcome, Result), f"{more['example']} does not answer {analysis.name}"
        findings = [each.finding for each in report.findings]
        name = f"questions/{number + 1:02}-{analysis.name}"
        picture = _picture(analysis, outcome)
        if picture is not None:
            yield Page(f"{name}.svg", picture)
        shown = Path(name).name if picture is not None else None
        examples = _examples(repository, more, outcome)
        yield Page.of(
            f"{name}.md", _text(explained(analysis.name), more, examples, findings, shown)
        )


def _examples(repository: Path, more: dict[str, Any], outcome: Result) -> tuple[Worked, ...]:
    """The figures by hand. Raises AssertionError where the report has others."""
    examples = worked(more["worked"], repository / more["example"])
    wrong = [text for example in examples for text in differences(example, outcome)]
    assert not wrong, f"{more['example']}: {'; '.join(wrong)}"
    return examples


def _picture(analysis: Analysis, outcome: Result) -> bytes | None:
    """The first chart of the answer as SVG; None where it has none to draw."""
    from matplotlib import rc_context

    charts = [chart for chart in analysis.charts if len(outcome.tables[chart.table])]
    if not charts:
        return None
    out = BytesIO()
    with rc_context({"svg.hashsalt": analysis.name}):
        figure = outcome.figure(charts[0].table)
        figure.savefig(out, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return out.getvalue()


def _text(
    answer: Explanation,
    more: dict[str, Any],
    examples: Sequence[Worked],
    findings: Sequence[Finding],
    picture: str | None,
) -> str:
    lines = [f"# {answer.title}", "", f"**{answer.question}**", "", more["means"], ""]
    lines += ["## In a recording", ""]
    if picture:
        lines += [f"![{answer.title} of {more['example']}]({picture}.svg)", ""]
    first = findings[:_MOST_ANSWERS]
    lines += [f"> {_plain(each.message)}\n>\n> → {_plain(each.action)}\n" for each in first]
    lines += [f"From `{more['example']}`, with `traceview report --only {answer.name}`.", ""]
    lines += ["## How it is computed", "", more["computed"].strip(), ""]
    lines += [line for example in examples for line in _by_hand(example, more["example"])]
    lines += ["## What to do", "", *(f"- {each}" for each in more["do"]), ""]
    lines += ["## Limits", "", more["limits"], ""]
    if answer.needs:
        lines += ["## What it needs", "", "| table | holds | recorded by |", "| --- | --- | --- |"]
        needs = answer.needs
        lines += [f"| `{n.table}` | {n.meaning} | `{n.how_to_record}` |" for n in needs]
        lines.append("")
    for table in answer.tables:
        lines += [f"## Table `{table.name}`", "", f"{table.meaning}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        columns = table.columns
        lines += [f"| `{c.name}` | {c.dtype} | {_cell(c.meaning)} |" for c in columns]
        lines.append("")
    return "\n".join(lines)


def _by_hand(example: Worked, recording: str) -> Iterator[str]:
    """A query, what it gives, and where the report says the same."""
    yield from (f"### By hand: table `{example.table}`", "", example.says, "")
    yield from ("```sql", example.sql, "```", "")
    yield from ("| " + " | ".join(f"`{name}`" for name in example.columns) + " |",)
    is_text = (
        any(isinstance(row[n], str) for row in example.rows) for n in range(len(example.columns))
    )
    yield "| " + " | ".join("---" if each else "---:" for each in is_text) + " |"
    for row in example.rows:
        yield "| " + " | ".join(_shown(value) for value in row) + " |"
    yield from ("", f"On `{recording}`, unpacked; the report says the same.", "")


def _shown(value: Cell) -> str:
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    short = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"
    return _plain(short)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _plain(text: str) -> str:
    """A sentence with names of a recording as text of Markdown."""
    for character in "\\`*_[]<>#|":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")
