"""The document of a comparison of runs: what changed by how much, and the parts that sum to it."""

from __future__ import annotations

from collections.abc import Iterator

from traceview import units
from traceview.comparison import wording
from traceview.comparison.changes import main_changes
from traceview.comparison.comparison import CountDifference, EnvironmentDifference, RunComparison
from traceview.render.base.safe_text import visible
from traceview.render.comparison import parts
from traceview.render.comparison.header import compared_sides, sides
from traceview.render.documents.model import Document, Entries, Grid, GridRow, Section

MOST_PARTS = 30
_MOST_NAME = 120


def comparison_document(comparison: RunComparison) -> Document:
    """Two sides, with at most MOST_PARTS parts listed individually."""
    return Document(
        facts=(" → ".join(map(_name, sides(comparison))), *compared_sides(comparison)),
        headline=wording.headline(comparison),
        warnings=tuple(map(_difference, comparison.environment)),
        sections=(Section("", tuple(_parts(comparison)), aside=False),),
        notes=tuple(wording.notes(comparison)),
    )


def _name(name: str) -> str:
    """Both of two names in one text have to be seen."""
    return visible(name, _MOST_NAME)


def _difference(each: EnvironmentDifference) -> tuple[str, str]:
    text = f"{_name(each.before)} before, {_name(each.after)} after"
    return f"Different {wording.environment_name(each)}", text


def _parts(comparison: RunComparison) -> Iterator[Entries | Grid]:
    changes = main_changes(comparison)
    differences = parts.change_differences(comparison, changes)
    texts = (change.text for change in changes)
    yield Entries(tuple(zip(differences, texts, strict=True)), figures=True)
    table = parts.parts_table(comparison, MOST_PARTS)
    numbers = ("before", "after", "difference", *(["share"] if table.has_shares else []))
    heading = f"part, {parts.per_step(comparison, table)}"
    yield Grid((heading, "where"), tuple(_rows(table)), numbers)
    if counts := tuple(map(_count, wording.changed_counts(comparison))):
        per = wording.PER_STEP if wording.has_steps(comparison) else ""
        yield Grid((f"count{per}",), counts, ("before", "after"))


def _count(count: CountDifference) -> GridRow:
    values = (wording.count_text(count, value) for value in (count.before, count.after))
    return GridRow((wording.count_name(count), *values))


def _rows(table: parts.PartsTable) -> Iterator[GridRow]:
    for group in table.groups:
        yield _row(group.title, "", group.amounts, strong=True)
        for line in group.parts:
            name = f"{line.title} ({line.change})" if line.change else line.title
            yield _row(name, line.part.place, line.amounts)
        if group.rest and group.parts:
            yield _row(f"{units.count(group.left_out)} smaller", "", group.rest)
    yield _row("sum", "", table.total, strong=True)


def _row(name: str, place: str, amounts: parts.Amounts, strong: bool = False) -> GridRow:
    share = [amounts.share] if amounts.share else []
    numbers = (amounts.before, amounts.after, amounts.difference, *share)
    return GridRow((name, place, *numbers), strong)
