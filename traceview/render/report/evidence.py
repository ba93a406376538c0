"""The evidence of a finding: its row in a table, its figures, its time window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from traceview import units
from traceview.analyses.base import Analysis, Result, TableSpec
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.findings import Evidence, Finding
from traceview.ranking import RankedFinding
from traceview.records import record
from traceview.render.base.code_block import CodeBlock
from traceview.render.base.page import key
from traceview.render.base.table_view import TableView, row_id, table_view
from traceview.render.report.source_excerpt import SourceView, source_view
from traceview.report import Report
from traceview.tables import Mask, Table
from traceview.units import Value


@record
class EvidenceView:
    """The evidence of a finding. `table` has one row, whose id on the page is `row`.

    `values` are its figures as text, `window` its start and end in ns, `source` the line of code
    that it is about with the recorded lines around it, `code` the PTX of its kernel.
    """

    table: TableView | None
    row: str
    where: str
    values: tuple[tuple[str, str], ...]
    window: tuple[int, int] | None
    window_text: str
    basis: str
    source: SourceView | None
    code: CodeBlock | None = None


def table_key(analysis: str, table: str) -> str:
    """The id of a table on the page."""
    return f"{key(analysis)}.{key(table)}"


def marked_rows(report: Report) -> dict[tuple[str, str], list[int]]:
    """The rows that findings link to, by analysis and table, in ascending order."""
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
    """The evidence of a finding; `code` has the listings of kernels, by name."""
    evidence, row = ranked.finding.evidence, _row_of(report, ranked)
    window = window_of(report, ranked.finding)
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
        values=evidence_figures(evidence),
        window=window,
        window_text=_window_text(window),
        basis=evidence.basis,
        source=source_view(report.recording, ranked.finding.subject, recorded),
        code=code.get(ranked.finding.subject.name),
    )


def evidence_figures(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """The numbers among the values, with their names; texts are in the message already."""
    return tuple(
        (units.stem(name), units.quantity(name, value))
        for name, value in evidence.values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )


def _window_text(window: tuple[int, int] | None) -> str:
    if window is None:
        return ""
    return f"{units.duration(window[1] - window[0])} from {units.quantity('start_ns', window[0])}"


def window_of(report: Report, finding: Finding) -> tuple[int, int] | None:
    """Time window of the evidence; for a kernel without one, that of its longest launch."""
    evidence, trace = finding.evidence, report.recording
    if evidence.start_ns is not None and evidence.end_ns is not None:
        return evidence.start_ns, evidence.end_ns
    if finding.subject.kind != "kernel" or trace is None:
        return None
    kernels = trace.recorded("kernels")
    launches = np.flatnonzero(_launches(kernels, finding))
    if not len(launches):
        return None
    # A launch in warm-up is shown only if there is no other.
    steady = launches[~kernels_in_warm_up(trace)[launches]]
    shown = steady if len(steady) else launches
    longest = shown[np.argmax(kernels.duration_ns[shown])]
    return int(kernels["start_ns"][longest]), int(kernels["end_ns"][longest])


def _launches(kernels: Table, finding: Finding) -> Mask:
    """True for launches of a finding's kernel, with the evidence's grid and block if given."""
    result: Mask = kernels.texts("name").isin([finding.subject.name])
    for size in ("grid", "block"):
        axes = str(finding.evidence.row.get(size) or "").split("x")
        for axis, length in zip("xyz", axes, strict=False):
            if length.isdecimal():
                result = result & (kernels[f"{size}_{axis}"] == int(length))
    return result


def _table_of(report: Report, analysis: str, name: str) -> tuple[Analysis, TableSpec, Table]:
    declared = next(each for each in report.analyses if each.name == analysis)
    spec = next(spec for spec in declared.tables if spec.name == name)
    result = report.outcomes[analysis]
    assert isinstance(result, Result)
    return declared, spec, result.tables[name]


def _row_of(report: Report, ranked: RankedFinding) -> int | None:
    evidence = ranked.finding.evidence
    if evidence.table is None:
        return None
    return shown_row(_table_of(report, ranked.analysis, evidence.table)[2], evidence)


def shown_row(table: Table, evidence: Evidence) -> int | None:
    """The first row of `table` whose cells match the evidence's row."""
    if not evidence.row:
        return None
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
