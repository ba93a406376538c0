"""The kernels of a target in a terminal: figures, accesses by source line, findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from traceview import units
from traceview.analyses.base import TableSpec
from traceview.findings import Finding
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.target_report import PtxReport
from traceview.render.base.columns import fitting
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import (
    SENTENCE,
    SEVERITY_STYLES,
    Prose,
    cells,
    drawn,
    grid,
    heading,
    note_block,
)
from traceview.render.kernels.configurations import what_if_rows, what_if_spec
from traceview.render.kernels.details import detail_tables
from traceview.render.kernels.rows import ACCESSES, access_rows
from traceview.render.kernels.source_names import SourceNames
from traceview.render.kernels.summary import (
    circumstances,
    differences,
    figures,
    limited,
    made_of,
    shown_name,
)
from traceview.tables import Table

_LEAST_TEXT = 12
# Long enough for a command with the signature of a kernel with fifty arguments.
_LONGEST_NOTE = 4 * SENTENCE


def render_ptx_text(
    report: PtxReport, *, width: int = 80, color: bool = False, details: bool = False
) -> str:
    """All kernels in lines of at most `width` cells; with `color`, ANSI styles.

    With `details` the tables that are left out by default are shown, too.
    """
    names = SourceNames.of(report.kernels)
    blocks = [
        block
        for kernel in report.kernels
        for block in _kernel(kernel, report, names, width, details)
    ]
    return drawn(blocks, width, color)


def title(kernel: KernelReport, report: PtxReport) -> RenderableType:
    """The heading of a kernel, and how it was compiled."""
    return Group(
        heading(visible(shown_name(kernel, report.kernels)), kernel.compiled.arch),
        Prose(visible(circumstances(kernel, report.kernels), SENTENCE)),
    )


def _kernel(
    kernel: KernelReport, report: PtxReport, names: SourceNames, width: int, details: bool
) -> Iterator[RenderableType]:
    yield Group(title(kernel, report), Prose(_figures(kernel)), *_made_of(kernel))
    yield _accesses(kernel, names, width)
    if kernel.differences:
        lines = (note_block("", line) for line in differences(kernel, names))
        yield Group(Text("PTX and SASS differ", "bold"), *lines)
    if kernel.what_if:
        yield _what_if(kernel, width)
    if details:
        yield from _details(kernel, names, width)
    yield _findings(kernel.findings)
    texts = (*kernel.compiled.notes, *kernel.notes)
    notes = [note_block("Note: ", text, "dim", _LONGEST_NOTE) for text in texts]
    if notes:
        yield Group(*notes)


def _figures(kernel: KernelReport) -> str:
    limits = f" ({limited(kernel)})" if kernel.occupancy else ""
    return " · ".join(
        f"{name} {value}{limits if name == 'occupancy' else ''}" for name, value in figures(kernel)
    )


def _made_of(kernel: KernelReport) -> list[RenderableType]:
    return [note_block(f"{lead}: ", text, "dim") for lead, text in made_of(kernel)]


def _accesses(kernel: KernelReport, names: SourceNames, width: int) -> RenderableType:
    rows = list(access_rows(kernel, names))
    if not rows:
        return Text("no memory accesses")
    return cells(fitting(ACCESSES, Table.from_rows(ACCESSES.columns, rows), width, _LEAST_TEXT))


def _what_if(kernel: KernelReport, width: int) -> RenderableType:
    spec = what_if_spec(kernel)
    table = Table.from_rows(spec.columns, list(what_if_rows(kernel)))
    return _detail(spec, table, width)


def _details(kernel: KernelReport, names: SourceNames, width: int) -> Iterator[RenderableType]:
    for spec, table in detail_tables(kernel, names):
        yield _detail(spec, table, width)


def _detail(spec: TableSpec, table: Table, width: int) -> RenderableType:
    lead = Text.assemble((units.stem(spec.name), "bold"), (f"  {visible(spec.meaning)}", "dim"))
    return Group(lead, cells(fitting(spec, table, width, _LEAST_TEXT)))


def _findings(findings: Iterable[Finding]) -> RenderableType:
    rows = grid("", "")
    for finding in findings:
        text = Text(visible(finding.message, SENTENCE))
        text.append("\n→ ", "bold").append(visible(finding.action, SENTENCE))
        text.append(f"\n{visible(finding.evidence.basis, SENTENCE)}", "dim")
        rows.add_row(Text(finding.severity, SEVERITY_STYLES[finding.severity]), text)
    return rows if rows.row_count else Text("No findings.")
