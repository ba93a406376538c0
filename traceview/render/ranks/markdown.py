"""The answer for a job as Markdown for an issue or a pull request; no name becomes markup."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.ranks.job import JobReport
from traceview.ranks.tables import TABLES
from traceview.render.ranks.figures import job_tiles, ranked_findings
from traceview.render.ranks.header import (
    job_facts,
    job_title,
    nothing_found,
    remedies,
    single_values,
    warnings,
)
from traceview.render.ranks.rank_rows import rank_rows
from traceview.render.report.markdown import (
    coded,
    escaped,
    finding_entry,
    folded,
    table_rows,
    tabulated,
)

_NAME = 120


def render_markdown(job: JobReport) -> str:
    """The job: verdict, figures, findings, the important ranks, and the other tables folded."""
    return "\n".join(_lines(job)) + "\n"


def _lines(job: JobReport) -> Iterator[str]:
    facts = [f"{name} {value}" for name, value in job_facts(job)]
    yield " · ".join([f"**{escaped(job_title(job), _NAME)}**", *map(escaped, facts)])
    yield from ("", f"**{escaped(job.verdict.text)}**", "")
    each = job_tiles(job)
    yield tabulated(tile.name for tile in each)
    yield tabulated("---" for _ in each)
    yield tabulated(f"**{escaped(tile.value)}** {escaped(tile.detail)}".strip() for tile in each)
    yield ""
    yield from _missing(job)
    yield from _findings(job)
    yield from _ranks(job)
    yield from _tables(job)
    for note in job.result.notes:
        yield from (f"> Note: {coded(note)}", "")


def _missing(job: JobReport) -> Iterator[str]:
    for text in warnings(job):
        yield from (f"> Warning: {escaped(text)}", "")
    if job.failed:
        entries = [
            f"- {escaped(path, _NAME)}: {coded(remedy)}" for path, _, remedy in remedies(job)
        ]
        yield from folded("What to do about them", [*entries, ""])


def _findings(job: JobReport) -> Iterator[str]:
    yield from ("### What to do first", "")
    if not job.result.findings:
        yield from (nothing_found(job), "")
    for number, each in enumerate(ranked_findings(job), 1):
        yield from finding_entry(f"{number}.", each)


def _ranks(job: JobReport) -> Iterator[str]:
    yield from ("### Ranks", "")
    yield from table_rows(*rank_rows(job), single_values(job), title=False)


def _tables(job: JobReport) -> Iterator[str]:
    for spec, table in job.result.shown(TABLES[1:]):
        if len(table) and not spec.detail:
            yield from folded(spec.name.replace("_", " "), table_rows(spec, table, frozenset()))
