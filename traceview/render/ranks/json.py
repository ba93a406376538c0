"""The answer for a job as JSON, version 1: tables and findings of the job, a summary of each rank.

Absent values are null. Long tables are cut as in the JSON of a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from traceview.ranks.figures import RankFigures
from traceview.ranks.job import Clocks, JobReport
from traceview.ranks.membership import missing_ranks, world_size
from traceview.ranks.tables import chosen
from traceview.render.base.json_text import SCHEMA_VERSION, pieces
from traceview.render.base.row_limit import MOST_ROWS
from traceview.render.ranks.figures import ranked_findings
from traceview.render.report.json import finding_document, tables_document
from traceview.tables import NULL


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
        "ranks": [_rank(rank) for rank in job.ranks],
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
        "clocks": _clocks(job.clocks, job.ranks),
    }


def _clocks(clocks: Clocks, ranks: tuple[RankFigures, ...]) -> dict[str, Any]:
    return {
        "basis": clocks.basis,
        "reference_rank": ranks[clocks.reference].name.rank if ranks else None,
        "ranks": [
            {
                "rank": rank.name.rank,
                "offset_ns": int(clocks.offset_ns[place]),
                "drift": float(clocks.drift[place]),
                "origin_ns": int(clocks.origin_ns[place]),
                "error_ns": _known(clocks.error_ns[place]),
                "component": int(clocks.component[place]),
            }
            for place, rank in enumerate(ranks)
        ],
    }


def _known(value: Any) -> int | None:
    return None if value == NULL else int(value)


def _rank(rank: RankFigures) -> dict[str, Any]:
    return {
        **asdict(rank.name),
        "path": rank.path,
        "recorder": rank.recorder,
        "verdict": rank.verdict,
        "limit": rank.limit,
        "step_median_ns": rank.step_median_ns,
        "busy_pct": rank.busy_pct,
        "findings": [vars(finding) for finding in rank.findings],
        "warnings": list(rank.warnings),
    }
