"""The evidence of a finding: the row of a table that shows it, its figures, its place in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from traceview import units
from traceview.analyses.base import Analysis, Result, TableSpec
from traceview.findings import Evidence
from traceview.ranking import RankedFinding
from traceview.render.base.page import key
from traceview.render.base.table_view import TableView, row_id, table_view
from traceview.render.kernels.code import CodeBlock
from traceview.render.report.source_excerpt import SourceView, source_view
from traceview.report import Report
from traceview.tables import Mask, Table
from traceview.units import Value


@dataclass(frozen=True)
class EvidenceView:
    """What shows a finding. `table` has one row, whose id on the page is `row`.

    `values` are its figures as text, `window` its place in time, `source` the line of code that it
    is about with what was recorded around it, `code` the PTX of the kernel that it is about.
    """

    table: TableView | None
    row: str
    where: str
    values: tuple[tuple[str, str], ...]
    window: str
    basis: str
    source: SourceView | None
    code: CodeBlock | None = None


def table_key(analysis: str, table: str) -> str:
    """The id of a table on the page."""
    return f"{key(analysis)}.{key(table)}"


def marked_rows(report: Report) -> dict[tuple[str, str], list[int]]:
    """The rows that findings lead to, by analysis and table, in ascending order."""
    marked: dict[tuple[str, str], list[int]] = {}
    for each in report.findings:
        row = _row_of(report, each)
        if row is not None and each.finding.evidence.table is not None:
            rows = marked.setdefault((each.analysis, each.finding.evidence.table), [])
            rows[:] = sorted({*rows, row})
    return marked


def evidence_view(
    report: Report, ranked: RankedFinding, code: Mapping[str, CodeBlock]
) -> EvidenceView:
    """The evidence of a finding of this report; `code` has that of kernels, by name."""
    evidence, row = ranked.finding.evidence, _row_of(report, ranked)
    head: tuple[TableView | None, str, str] = (None, "", "")
    recorded: Mapping[str, Value] = {}
    if row is not None and evidence.table is not None:
        analysis, spec, table = _table_of(report, ranked.analysis, evidence.table)
        one = table.take(np.array([row]))
        recorded = next(one.rows())
        id_ = row_id(table_key(analysis.name, spec.name), row)
        view = replace(table_view(spec, one), name="", detail=False)
        head = (view, id_, f"{analysis.title}: {units.stem(spec.name)}")
    return EvidenceView(
        *head,
        values=_figures(evidence.values),
        window=_window(evidence),
        basis=evidence.basis,
        source=source_view(report.recording, ranked.finding.subject, recorded),
        code=code.get(ranked.finding.subject.name),
    )


def _figures(values: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    """The numbers among the values, each with its name; texts stand in the message."""
    return tuple(
        (units.stem(name), units.quantity(name, value))
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )


def _window(evidence: Evidence) -> str:
    if evidence.start_ns is None or evidence.end_ns is None:
        return ""
    length = units.duration(evidence.end_ns - evidence.start_ns)
    return f"{length} from {units.quantity('start_ns', evidence.start_ns)}"


def _table_of(report: Report, analysis: str, name: str) -> tuple[Analysis, TableSpec, Table]:
    declared = next(each for each in report.analyses if each.name == analysis)
    spec = next(spec for spec in declared.tables if spec.name == name)
    result = report.outcomes[analysis]
    assert isinstance(result, Result)
    return declared, spec, result.tables[name]


def _row_of(report: Report, ranked: RankedFinding) -> int | None:
    """The first row of the evidence's table whose cells are those of the evidence."""
    evidence = ranked.finding.evidence
    if evidence.table is None or not evidence.row:
        return None
    _, _, table = _table_of(report, ranked.analysis, evidence.table)
    matches = np.ones(len(table), bool)
    for name, value in evidence.row.items():
        matches &= _equal(table, name, value)
    return int(np.argmax(matches)) if matches.any() else None


def _equal(table: Table, name: str, value: Value) -> Mask:
    absent = table.is_null(name)
    if value is None:
        return absent
    same: Mask = table.texts(name).isin([value]) if isinstance(value, str) else table[name] == value
    return same & ~absent
