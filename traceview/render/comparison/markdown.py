"""A comparison of runs as Markdown for an issue or a pull request; no name becomes markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from traceview import units
from traceview.comparison import wording
from traceview.comparison.changes import main_changes
from traceview.comparison.comparison import CountDifference, RunComparison
from traceview.render.comparison.header import compared_sides, sides
from traceview.render.comparison.parts import (
    Amounts,
    GroupLine,
    PartLine,
    change_differences,
    parts_table,
    per_step,
)
from traceview.render.report.markdown import coded, escaped

MOST_PARTS = 30
_NAME = 120


def render_markdown(comparison: RunComparison) -> str:
    """The comparison, with at most MOST_PARTS parts listed individually."""
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: RunComparison) -> Iterator[str]:
    before, after = (escaped(name, _NAME) for name in sides(comparison))
    yield f"{before} → {after} · " + " · ".join(
        escaped(each) for each in compared_sides(comparison)
    )
    yield from ("", f"**{escaped(wording.headline(comparison))}**", "")
    yield from _environment(comparison)
    yield from _changes(comparison)
    yield from _parts(comparison)
    yield from _counts(comparison)
    for note in wording.notes(comparison):
        yield from (f"> Note: {coded(note)}", "")


def _environment(comparison: RunComparison) -> Iterator[str]:
    for each in comparison.environment:
        name = wording.environment_name(each)
        values = f"{escaped(each.before, _NAME)} before, {escaped(each.after, _NAME)} after"
        yield from (f"> Different {escaped(name)}: {values}", "")


def _changes(comparison: RunComparison) -> Iterator[str]:
    listed = main_changes(comparison)
    for change, signed in zip(listed, change_differences(comparison, listed), strict=True):
        yield f"- **{signed}** {coded(change.text)}"
    yield ""


def _parts(comparison: RunComparison) -> Iterator[str]:
    table = parts_table(comparison, MOST_PARTS)
    numbers = ["before", "after", "difference", *(["share"] if table.has_shares else [])]
    yield _row([f"part, {per_step(comparison, table)}", "where", *numbers])
    yield _row(["---", "---", *["---:"] * len(numbers)])
    for group in table.groups:
        yield from _group(group)
    yield _row(["**sum**", "", *_cells(table.total)])
    yield ""


def _group(group: GroupLine) -> Iterator[str]:
    yield _row([f"**{escaped(group.title, _NAME)}**", "", *_cells(group.amounts)])
    for line in group.parts:
        yield _row([_name(line), escaped(line.part.place, _NAME), *_cells(line.amounts)])
    if group.rest and group.parts:
        yield _row([f"{units.count(group.left_out)} smaller", "", *_cells(group.rest)])


def _name(line: PartLine) -> str:
    name = escaped(line.title, _NAME)
    return f"{name} ({line.change})" if line.change else name


def _cells(amounts: Amounts) -> list[str]:
    share = [amounts.share] if amounts.share else []
    return [amounts.before, amounts.after, amounts.difference, *share]


def _counts(comparison: RunComparison) -> Iterator[str]:
    per = wording.PER_STEP if wording.has_steps(comparison) else ""
    changed = wording.changed_counts(comparison)
    if not changed:
        return
    yield _row([f"count{per}", "before", "after"])
    yield _row(["---", "---:", "---:"])
    yield from (_count(count) for count in changed)
    yield ""


def _count(count: CountDifference) -> str:
    name = escaped(wording.count_name(count))
    values = (wording.count_text(count, value) for value in (count.before, count.after))
    return _row([name, *values])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
