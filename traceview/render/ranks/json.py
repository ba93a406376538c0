"""The answer for a job as JSON, version 1: tables and findings of the job, a summary of each rank.

Absent values are null. Long tables are cut as in the JSON of a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from traceview.ranks.figures import RankFigures, RankName
from traceview.ranks.job import JobReport
from traceview.ranks.membership import missing_ranks, world_size
from traceview.ranks.tables import chosen
from traceview.records import record
from traceview.render.base.json_shape import JsonKey, JsonShape
from traceview.render.base.json_text import SCHEMA_VERSION, pieces
from traceview.render.base.row_limit import MOST_ROWS
from traceview.render.ranks.figures import ranked_findings
from traceview.render.report.json import finding_document, tables_document
from traceview.tables import NULL


@record
class ClockOfRank:
    """How a rank's clock maps to that of the reference rank."""

    rank: int
    offset_ns: int
    drift: float
    origin_ns: int
    error_ns: int | None
    component: int


def _clocks(job: JobReport) -> list[ClockOfRank]:
    clocks = job.clocks
    return [
        ClockOfRank(
            rank.name.rank,
            int(clocks.offset_ns[place]),
            float(clocks.drift[place]),
            int(clocks.origin_ns[place]),
            None if clocks.error_ns[place] == NULL else int(clocks.error_ns[place]),
            int(clocks.component[place]),
        )
        for place, rank in enumerate(job.ranks)
    ]


def _reference(job: JobReport) -> int | None:
    return job.ranks[job.clocks.reference].name.rank if job.ranks else None


RANK = JsonShape(
    RankFigures,
    *(f"{each.name}=name.{each.name}" for each in fields(RankName)),
    "path recorder verdict limit step_median_ns busy_pct findings warnings",
)
CLOCKS = JsonShape(
    JobReport,
    "basis=clocks.basis",
    JsonKey("reference_rank", int | None, lambda job, _: _reference(job)),
    JsonKey("ranks", list[ClockOfRank], lambda job, _: _clocks(job)),
)


def render_json(job: JobReport, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """The job as one JSON document in ASCII, with at most `most_rows` rows of each table."""
    return "".join(json_pieces(job, version, most_rows))


def json_pieces(
    job: JobReport,
    version: str,
    most_rows: int | None = MOST_ROWS,
    only: Sequence[str] = (),
) -> Iterator[str]:
    """The JSON document in pieces; if `only` names tables, it has only these."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "traceview_version": version,
        "job": _job(job, most_rows, only),
        "ranks": [RANK.written(rank) for rank in job.ranks],
        "failed": [vars(failed) for failed in job.failed],
    }
    yield from pieces(document)
    yield "\n"


def _job(job: JobReport, most: int | None, only: Sequence[str]) -> dict[str, Any]:
    return {
        "world_size": world_size(job.ranks),
        "missing_ranks": list(missing_ranks(job.ranks)),
        "verdict": {**vars(job.verdict), "figures": dict(job.verdict.figures)},
        "findings": [finding_document(finding) for finding in ranked_findings(job)],
        **tables_document(chosen(only), job.result, most),
        "summary": dict(job.result.summary),
        "notes": list(job.result.notes),
        "warnings": list(job.warnings),
        "clocks": CLOCKS.written(job),
    }
