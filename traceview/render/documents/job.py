"""The document of a job of ranks: verdict, figures, findings, and the important ranks."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.ranks.job import JobReport
from traceview.ranks.tables import TABLES
from traceview.render.documents.model import Document, Entries, Section, Sheet
from traceview.render.ranks import header
from traceview.render.ranks.figures import job_tiles, ranked_findings
from traceview.render.ranks.rank_rows import rank_rows


def job_document(job: JobReport) -> Document:
    """A job's answers; sections below that of the ranks have its other tables."""
    return Document(
        title=header.job_title(job),
        facts=tuple(f"{name} {value}" for name, value in header.job_facts(job)),
        headline=job.verdict.text,
        tiles=job_tiles(job),
        warnings=tuple(("Warning", text) for text in header.warnings(job)),
        findings=ranked_findings(job),
        nothing_found=header.nothing_found(job),
        sections=tuple(_sections(job)),
        notes=job.result.notes,
    )


def _sections(job: JobReport) -> Iterator[Section]:
    if job.failed:
        entries = tuple((path, remedy) for path, _, remedy in header.remedies(job))
        yield Section("What to do about them", (Entries(entries),))
    ranks = Sheet(*rank_rows(job), header.single_values(job), titled=False)
    yield Section("Ranks", (ranks,), aside=False)
    for spec, table in job.result.shown(TABLES[1:]):
        if len(table) and not spec.detail:
            yield Section(spec.name.replace("_", " "), (Sheet(spec, table),))
