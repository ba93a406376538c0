"""Kernels, or versions of them side by side, as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from markupsafe import Markup

from traceview.base import units
from traceview.base.findings import SEVERITIES, Finding, Severity
from traceview.base.records import record
from traceview.base.tables import Table, TableSpec
from traceview.kernels.inspect.comparison import Comparison, Diff
from traceview.kernels.inspect.kernel_report import KernelReport, source_of
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.stages import STAGES
from traceview.render.base.page import STYLES, Style, TableView, rendered, table_view
from traceview.render.kernels import tables
from traceview.render.kernels.code import CodeView, code_view, rules
from traceview.render.kernels.diff import (
    DiffRow,
    circumstances,
    equal,
    findings,
    left_out,
    names_of,
    notes,
    presence,
    rows,
)
from traceview.render.kernels.names import (
    SourceNames,
    action_of,
    basis_of,
    message_of,
    shared_findings,
)
from traceview.render.kernels.summary import circumstances as how_compiled
from traceview.render.kernels.summary import differences, figures, limited, made_of, shown_name

_STYLES = (*STYLES, "ptx.css")
# The Triton stages of one kernel take some hundred kilobytes.
_MOST_WITH_STAGES = 6


@record
class FindingPlace:
    """A kernel that a finding is about. `section` and `line` are ids of elements on the page."""

    section: str
    title: str
    line: str | None = None


@record
class KernelFindingView:
    """A finding on the page. `presence` names its versions, `places` its kernels."""

    severity: Severity
    presence: str
    messages: tuple[tuple[str, str], ...]
    action: str
    evidence: str
    places: tuple[FindingPlace, ...]


@record
class KernelView:
    """One kernel on the page. `number` distinguishes kernels of one name; else it is empty.

    `beside` is the variant of the kernel that is shown in full, None for that one itself. What
    both have is shown there alone.
    """

    key: str
    name: str
    number: str
    arch: str
    circumstances: str
    figures: tuple[tuple[str, str], ...]
    limits: str
    made_of: tuple[tuple[str, str], ...]
    tables: tuple[TableView, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    code: CodeView
    beside: FindingPlace | None = None


@record
class ComparisonView:
    """One kernel in several versions. `kernels` are the label and the code of each."""

    key: str
    name: str
    circumstances: str
    heads: tuple[str, ...]
    rows: tuple[DiffRow, ...]
    equal: str
    notes: tuple[str, ...]
    kernels: tuple[tuple[str, KernelView], ...]


def render_ptx_html(report: PtxReport, version: str) -> str:
    """The page of one target. `version` is traceview's own."""
    names = SourceNames.of(report.kernels)
    stages = STAGES if len(report.kernels) <= _MOST_WITH_STAGES else ()
    kernels = [
        replace(
            _kernel(kernel, f"k{n}", names, stages),
            circumstances=how_compiled(kernel, report.kernels),
            name=shown_name(kernel, report.kernels),
            number=str(n) if sum(other.name == kernel.name for other in report.kernels) > 1 else "",
        )
        for n, kernel in enumerate(report.kernels, 1)
    ]
    first: dict[str, KernelView] = {}
    for kernel, view in zip(report.kernels, kernels, strict=True):
        first.setdefault(kernel.family, view)
    return rendered(
        "ptx.html",
        Style(_STYLES, more=_rules(kernels)),
        title=_title([report.target]),
        facts=[("GPU", report.arch or "several"), ("kernels", units.count(len(kernels)))],
        findings=_ranked(_findings(kernels, report.kernels)),
        kernels=[
            _beside(view, first[kernel.family])
            for kernel, view in zip(report.kernels, kernels, strict=True)
        ],
        version=version,
    )


def _beside(view: KernelView, first: KernelView) -> KernelView:
    """A variant of a kernel with only that in which it differs from the first one."""
    if view is first:
        return view
    known = {(each.name, _rows(each, first.key)) for each in first.tables}
    return replace(
        view,
        beside=FindingPlace(first.key, f"{first.name} {first.number}".strip()),
        figures=tuple(each for each in view.figures if each not in first.figures),
        limits=view.limits if view.limits != first.limits else "",
        made_of=tuple(each for each in view.made_of if each not in first.made_of),
        tables=tuple(t for t in view.tables if (t.name, _rows(t, view.key)) not in known),
        differences=tuple(each for each in view.differences if each not in first.differences),
        notes=tuple(each for each in view.notes if each not in first.notes),
    )


def _rows(table: TableView, key: str) -> str:
    """The rows of a table without the ids of its kernel's lines, to which they link."""
    return table.body.replace(f"#{key}-", "#")


def render_diff_html(diff: Diff, version: str) -> str:
    """The page of a comparison. `version` is traceview's own."""
    names = names_of(diff)
    views = [_comparison(c, diff, f"c{n}", names) for n, c in enumerate(diff.comparisons, 1)]
    findings = [
        finding
        for view, comparison in zip(views, diff.comparisons, strict=True)
        for finding in _compared_findings(view, comparison, diff)
    ]
    return rendered(
        "ptx_diff.html",
        Style(_STYLES, more=_rules([kernel for view in views for _, kernel in view.kernels])),
        title=_title([version.report.target for version in diff.versions]),
        facts=[("versions", " → ".join(diff.labels))],
        findings=_ranked(findings),
        comparisons=views,
        left_out=left_out(diff),
        version=version,
    )


def _title(targets: Sequence[str]) -> str:
    """The names of the targets, without their folders."""
    return " → ".join(dict.fromkeys(PurePath(target).name or target for target in targets))


def _rules(kernels: Iterable[KernelView]) -> Markup:
    """Style rules; they contain only ids numbered here, and no user text."""
    lines = (rule for kernel in kernels for rule in rules(kernel.key, kernel.code))
    return Markup("\n").join(map(Markup, lines))


def _ranked(findings: Iterable[KernelFindingView]) -> list[KernelFindingView]:
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _kernel(
    kernel: KernelReport, key: str, names: SourceNames, stages: Sequence[str] = ()
) -> KernelView:
    code = code_view(kernel, key, names, stages)
    # The table of accesses, each source line linked to the code on the page.
    # Sectors matter most where every row has the same many.
    spec = replace(tables.ACCESSES, brief=f"{tables.ACCESSES.brief} request")
    return KernelView(
        key=key,
        name=kernel.short_name,
        number="",
        arch=kernel.compiled.arch,
        circumstances=how_compiled(kernel),
        figures=tuple(figures(kernel)),
        limits=limited(kernel),
        made_of=tuple(made_of(kernel)),
        tables=(
            _linked(spec, tables.access_table(kernel, names), code, names, f"{key}-accesses"),
            *_details(kernel, code, names, key),
        ),
        differences=tuple(differences(kernel, names)),
        notes=(*kernel.compiled.notes, *kernel.notes),
        code=code,
    )


def _details(
    kernel: KernelReport, code: CodeView, names: SourceNames, key: str
) -> Iterator[TableView]:
    if kernel.warp_stalls:
        table = tables.stall_table(kernel.warp_stalls, names)
        yield _linked(tables.STALLS, table, code, names, f"{key}-{tables.STALLS.name}")
    if kernel.what_if:
        spec, table = tables.what_if_table(kernel)
        yield replace(table_view(spec, table), key=f"{key}-{spec.name}")
    for spec, table in tables.detail_tables(kernel, names):
        yield _linked(spec, table, code, names, f"{key}-{spec.name}")


def _linked(
    spec: TableSpec, table: Table, code: CodeView, names: SourceNames, key: str
) -> TableView:
    """A table whose first column, the source line, links to that line on the page."""
    ids = {names.of_line(source): id_ for source, id_ in code.lines.items()}
    links = [ids.get(str(source)) for source in table.cells("source")]
    return table_view(spec, table, key=key, links=links)


def _findings(
    views: Sequence[KernelView], kernels: Sequence[KernelReport]
) -> Iterator[KernelFindingView]:
    """The findings of all kernels. A finding that several variants of a kernel share appears once,
    with the ranges of its figures."""
    view_of = {id(kernel): view for view, kernel in zip(views, kernels, strict=True)}
    for variants in shared_findings(kernels):
        findings = [finding for _, finding in variants]
        places = [_place(view_of[id(kernel)], finding) for kernel, finding in variants]
        yield KernelFindingView(
            severity=findings[0].severity,
            presence="",
            messages=(("", message_of(findings)),),
            action=action_of(findings),
            evidence=basis_of(findings, [place.title for place in places]),
            places=tuple(places),
        )


def _place(view: KernelView, finding: Finding) -> FindingPlace:
    source = source_of(finding)
    line = view.code.lines.get(source) if source else None
    return FindingPlace(view.key, f"{view.name} {view.number}".strip(), line)


def _comparison(comparison: Comparison, diff: Diff, key: str, names: SourceNames) -> ComparisonView:
    labels = [version.label for version in diff.versions]
    change = ("change",) if len(labels) == 2 else ()
    return ComparisonView(
        key=key,
        name=comparison.short_name,
        circumstances=" · ".join(circumstances(comparison)),
        heads=((diff.option or "").removeprefix("--"), *labels, *change),
        rows=tuple(rows(comparison, names)),
        equal=" · ".join(equal(comparison, names)),
        notes=tuple(notes(comparison, diff)),
        kernels=tuple(
            (label, _kernel(kernel, f"{key}v{n}", names))
            for n, (label, kernel) in enumerate(zip(diff.labels, comparison.kernels, strict=True))
        ),
    )


def _compared_findings(
    view: ComparisonView, comparison: Comparison, diff: Diff
) -> Iterable[KernelFindingView]:
    labels = [version.label for version in diff.versions]
    for each in findings(comparison):
        single = len(each.messages) == 1
        messages = (
            ("" if single else ", ".join(labels[v] for v in versions), message)
            for versions, message in each.messages
        )
        yield KernelFindingView(
            severity=each.finding.severity,
            presence=presence(each, labels),
            messages=tuple(messages),
            action=each.finding.action,
            evidence=each.finding.evidence.basis,
            places=(FindingPlace(view.key, view.name),),
        )
