"""The answer for a job as JSON, version 1: tables and findings of the job, a summary of each rank.

Absent values are null. Long tables are cut as in the JSON of a report.
"""

from __future__ import annotations

from dataclasses import fields

from traceview.base.records import record
from traceview.base.tables import NULL
from traceview.render.base.json_text import JsonKey, JsonShape, Keys, items_of
from traceview.render.ranks.document import ranked_findings
from traceview.render.report.json import RANKED_FINDING, tables_document, tables_shape
from traceview.traces.ranks.figures import RankFigures, RankName
from traceview.traces.ranks.job import JobReport
from traceview.traces.ranks.process_groups import missing_ranks, world_size
from traceview.traces.ranks.tables import TABLES, chosen


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


_RANK = JsonShape(
    RankFigures,
    *(f"{each.name}=name.{each.name}" for each in fields(RankName)),
    "path recorder verdict limit step_median_ns busy_pct findings warnings",
)
_CLOCKS = JsonShape(
    JobReport,
    "basis=clocks.basis",
    JsonKey("reference_rank", int | None, lambda job, _: _reference(job)),
    JsonKey("ranks", list[ClockOfRank], lambda job, _: _clocks(job)),
)
_JOB = JsonShape(
    JobReport,
    JsonKey("world_size", int, lambda job, _: world_size(job.ranks)),
    JsonKey("missing_ranks", list[int], lambda job, _: missing_ranks(job.ranks)),
    "verdict",
    JsonKey("findings", [RANKED_FINDING], lambda job, _: ranked_findings(job)),
    # All tables, unless --only names some.
    Keys(
        tables_shape(TABLES, [spec.name for spec in TABLES]),
        lambda job, limits: tables_document(chosen(limits[1]), job.result, limits[0]),
    ),
    "summary=result.summary notes=result.notes warnings",
    JsonKey("clocks", _CLOCKS, lambda job, _: job),
)
JOB = JsonShape(
    JobReport, JsonKey("job", _JOB, lambda job, _: job), items_of("ranks", _RANK), "failed"
)
