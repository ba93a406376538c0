"""The evidence of a finding: its row in a table, its figures, time window and lines of code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from traceview.base import groups, units
from traceview.base.errors import InputError, TraceFormatError
from traceview.base.findings import Evidence, Finding, Subject
from traceview.base.records import record
from traceview.base.tables import Integers, Mask, Table, TableSpec
from traceview.base.units import Value
from traceview.kernels.ptx.model import Compiled
from traceview.render.base.code import CodeBlock, CodeLine
from traceview.render.base.page import TableView, key, row_id, table_view
from traceview.render.base.safe_text import visible
from traceview.traces.analyses.base import Analysis, Result
from traceview.traces.facts.steps.steps import kernels_in_warm_up
from traceview.traces.plan import RankedFinding
from traceview.traces.reporting import Report
from traceview.traces.trace import Trace

_AROUND = 4
_THE_LINE = "here"
"""Class of the line that the finding is about."""


@record
class SourceView:
    """A place such as `train.py:31`, and its lines if they were recorded."""

    place: str
    code: CodeBlock


def source_view(
    trace: Trace | None, subject: Subject, row: Mapping[str, Value]
) -> SourceView | None:
    """The source of a finding; None if it is about no line. `row` is its row in its table.

    Source files are not read: whoever wrote the trace chose their names.
    """
    if not subject.file:
        return None
    place = f"{subject.file}:{subject.line}" if subject.line else subject.file
    lines = _recorded_lines(trace, subject) or _line_itself(trace, subject, row)
    return SourceView(place, CodeBlock(place, lines))


def _recorded_lines(trace: Trace | None, subject: Subject) -> tuple[CodeLine, ...]:
    """The subject's line and those around it; empty if that line was not recorded."""
    if trace is None or not subject.line:
        return ()
    table = trace.recorded("source_lines")
    near = np.abs(table["line"].astype(np.int64) - subject.line) <= _AROUND
    rows = np.flatnonzero(near & table.texts("file").isin([subject.file or ""]))
    texts = {int(table["line"][row]): str(table.texts("text")[row]) for row in rows.tolist()}
    if subject.line not in texts:
        return ()
    indent = min((len(text) - len(text.lstrip()) for text in texts.values() if text), default=0)
    return tuple(
        _code_line(text[indent:], number, is_it=number == subject.line)
        for number, text in sorted(texts.items())
    )


def _line_itself(
    trace: Trace | None, subject: Subject, row: Mapping[str, Value]
) -> tuple[CodeLine, ...]:
    """The subject's line by the text that its row or a sample of it has."""
    if not subject.line:
        return ()
    # In other tables, such as that of load-widths, `source` is a place and not a line's text. The
    # row may be of a line that waits for another, such as a backward pass.
    is_text = row.get("line", None if "call_site" in row else 0) in (None, subject.line)
    text = str((row.get("source") if is_text else None) or "").strip()
    if not text and trace is not None:
        frames = trace.recorded("python_frames")
        own = (frames["line"] == subject.line) & frames.texts("file").isin([subject.file or ""])
        text = str(frames.texts("source")[int(own.argmax())] or "").strip() if own.any() else ""
    return (_code_line(text, subject.line, is_it=True),) if text else ()


def _code_line(text: str, number: int, *, is_it: bool) -> CodeLine:
    mark = _THE_LINE if is_it else None
    return CodeLine(visible(text), "", narrow=False, mark=mark, number=number)


_MOST_LINES = 600
"""Instructions of a kernel on the page; `traceview ptx TRACE` shows all."""


def listings(report: Report) -> Mapping[str, CodeBlock]:
    """The annotated PTX of each kernel that a finding names, by the name of the kernel.

    Of several variants, the one with the longest launches is shown. Source files are not read: the
    page shows only what the recording contains.
    """
    trace = report.recording
    named = {f.finding.subject.name for f in report.findings if f.finding.subject.kind == "kernel"}
    if trace is None or not named or "kernel_code" not in trace.tables:
        return {}
    # Imported late, here and below: most recordings have no code, and the import takes a fifth of
    # the time of a page.
    from traceview.traces.facts.code import gathered_code

    blocks: dict[str, CodeBlock] = {}
    for code in gathered_code(trace).launched:
        name = code.compiled.name
        block = _listing(code.compiled) if name in named and name not in blocks else None
        if block:
            blocks[name] = block
    return blocks


def _listing(compiled: Compiled) -> CodeBlock | None:
    from traceview.kernels.toolchain.listings import code_of
    from traceview.render.kernels.code import ptx_block

    try:
        function = code_of(compiled, sass=False, ptxas=False).ptx
    except (TraceFormatError, InputError):
        return None
    return ptx_block(function, _MOST_LINES) if function else None


MOST_ALIKE = 1_000
"""A finding's places that the page lists, 20 kB at most: a map 1,000 pixels wide shows no more."""


@record
class Alike:
    """The places of a finding, to be marked beside the one that its window shows.

    `text` has starts and ends in order, each as the difference to the one before it. Of more than
    MOST_ALIKE it has as many at even distances, the shown one among them; `count` counts all.
    """

    text: str
    count: int


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
    alike: Alike | None = None


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
        alike=alike_of(report, ranked.finding, window) if window else None,
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
    """Time window of the evidence; for a kernel without one, that of its median launch."""
    evidence, trace = finding.evidence, report.recording
    if evidence.start_ns is not None and evidence.end_ns is not None:
        return evidence.start_ns, evidence.end_ns
    if finding.subject.kind != "kernel" or trace is None:
        return None
    kernels = trace.recorded("kernels")
    launches = _steady_launches(trace, finding)
    if not len(launches):
        return None
    in_order = launches[np.argsort(kernels.duration_ns[launches], kind="stable")]
    middle = in_order[(len(in_order) - 1) // 2]
    return int(kernels["start_ns"][middle]), int(kernels["end_ns"][middle])


def alike_of(report: Report, finding: Finding, window: tuple[int, int]) -> Alike | None:
    """The places of a finding; None where its window shows the only one."""
    claimed, trace = finding.lost or finding.work, report.recording
    if claimed:
        start, end = claimed.time
    elif trace is not None and finding.subject.kind == "kernel":
        kernels = trace.recorded("kernels")
        launches = _steady_launches(trace, finding)
        order = np.argsort(kernels["start_ns"][launches], kind="stable")
        start, end = (kernels[name][launches][order] for name in ("start_ns", "end_ns"))
    else:
        return None
    if len(start) < 2:
        return None
    shown = max(int(np.searchsorted(start, window[0], side="right")) - 1, 0)
    even = np.linspace(0, len(start) - 1, min(len(start), MOST_ALIKE)).astype(np.int64)
    listed = groups.different(np.append(even, shown))
    times = np.stack((start[listed], end[listed]), axis=1).ravel()
    return Alike(" ".join(map(str, np.diff(times, prepend=0).tolist())), len(start))


def _steady_launches(trace: Trace, finding: Finding) -> Integers:
    """The launches of a finding's kernel; those in warm-up only if there are no others."""
    launches = np.flatnonzero(_launches(trace.recorded("kernels"), finding))
    steady = launches[~kernels_in_warm_up(trace)[launches]]
    return steady if len(steady) else launches


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
