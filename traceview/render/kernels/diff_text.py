"""Versions of kernels side by side in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from traceview.inspect.compare.comparison import Comparison, Diff
from traceview.render.base.columns import GAP, TerminalColumn
from traceview.render.base.safe_text import visible
from traceview.render.base.text_blocks import (
    SENTENCE,
    SEVERITY_STYLES,
    cells,
    drawn,
    grid,
    heading,
    note_block,
)
from traceview.render.kernels.diff_rows import (
    DiffRow,
    SharedFinding,
    circumstances,
    equal,
    findings,
    left_out,
    names_of,
    notes,
    presence,
    rows,
)
from traceview.render.kernels.source_names import SourceNames

_LEAST = 6
_MOST_EQUAL = 4_000
_CHANGE = "change"


def render_diff_text(diff: Diff, *, width: int = 80, color: bool = False) -> str:
    """All comparisons in lines of at most `width` cells; with `color`, ANSI styles."""
    names = names_of(diff)
    blocks = [b for each in diff.comparisons for b in _comparison(each, diff, names, width)]
    return drawn([*blocks, *_left_out(diff)], width, color)


def _comparison(
    comparison: Comparison, diff: Diff, names: SourceNames, width: int
) -> Iterator[RenderableType]:
    how = visible(" · ".join(circumstances(comparison)), SENTENCE)
    lines = [Text(how)] if how else []
    yield Group(heading(visible(comparison.short_name), visible(_versions(diff))), *lines)
    differing = rows(comparison, names)
    if differing:
        first = (diff.option or "").removeprefix("--")
        labels = [version.label for version in diff.versions]
        columns = list(
            zip(*((_named(row), *row.values, row.change) for row in differing), strict=True)
        )
        heads = (first, *labels, _CHANGE if len(labels) == 2 else "")
        yield cells(_fitted(heads, columns, width))
    else:
        yield Text("Nothing differs.")
    same = " · ".join(equal(comparison, names))
    yield Text.assemble(("equal: ", "bold dim"), visible(same, _MOST_EQUAL))
    yield from _findings(findings(comparison), diff)
    yield from _notes(comparison, diff)


def _named(row: DiffRow) -> str:
    return f"  {row.name}" if row.is_part else row.name


def _versions(diff: Diff) -> str:
    if diff.option == "--kernel":
        return ""
    labels = [version.label for version in diff.versions]
    return " ".join(filter(None, (diff.option, " → ".join(labels))))


def _fitted(
    heads: Sequence[str], columns: Sequence[Sequence[str]], width: int
) -> list[TerminalColumn]:
    """Columns as wide as their texts, of which the widest are cut until all fit."""
    shown = [_column(head, texts) for head, texts in zip(heads, columns, strict=True)]
    shown = [column for column in shown if column.heading or any(column.cells)]
    widths = [column.width for column in shown]
    room = width - GAP * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return [column.with_width(least) for column, least in zip(shown, widths, strict=True)]


def _column(head: str, texts: Sequence[str]) -> TerminalColumn:
    column = tuple(visible(text) for text in texts)
    head = visible(head)
    return TerminalColumn(head, True, column, max(map(cell_len, (head, *column))))


def _findings(shared: Iterable[SharedFinding], diff: Diff) -> Iterator[RenderableType]:
    labels = [version.label for version in diff.versions]
    table = grid("", "", "")
    for each in shared:
        severity = each.finding.severity
        versions = Text(visible(presence(each, labels)), "bold")
        table.add_row(Text(severity, SEVERITY_STYLES[severity]), versions, _text_of(each, labels))
    if table.row_count:
        yield table
    else:
        yield Text("No findings in any version.")


def _text_of(finding: SharedFinding, labels: Sequence[str]) -> Text:
    """One entry for a finding; messages that differ start with the labels of their versions."""
    text = Text()
    for versions, message in finding.messages:
        which = ", ".join(labels[version] for version in versions)
        lead = f"{visible(which)}: " if len(finding.messages) > 1 else ""
        text.append(lead, "bold").append(f"{visible(message, SENTENCE)}\n")
    text.append("→ ", "bold").append(visible(finding.finding.action, SENTENCE))
    return text.append(f"\n{visible(finding.finding.evidence.basis, SENTENCE)}", "dim")


def _notes(comparison: Comparison, diff: Diff) -> Iterator[RenderableType]:
    lines = [note_block("Note: ", note, "dim") for note in notes(comparison, diff)]
    if lines:
        yield Group(*lines)


def _left_out(diff: Diff) -> Iterator[RenderableType]:
    lines = [note_block("Left out: ", line, "dim") for line in left_out(diff)]
    if lines:
        yield Group(*lines)
