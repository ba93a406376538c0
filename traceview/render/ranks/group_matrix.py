"""The membership of ranks in groups, as a small table of groups and ranks."""

from __future__ import annotations

from traceview.ranks.job import JobReport
from traceview.ranks.process_groups import ProcessGroups, process_groups
from traceview.records import record
from traceview.render.base.safe_text import visible
from traceview.tables import NULL

MOST_RANKS, MOST_ROWS = 64, 24
_COLOURS = 6


@record
class GroupCell:
    """The numbers of a rank's groups within the row, and the CSS class of the cell's colour."""

    text: str
    style: str


@record
class GroupMatrix:
    """One row per shape of group, with a cell for each rank."""

    ranks: tuple[int, ...]
    rows: tuple[tuple[str, tuple[GroupCell, ...]], ...]


def group_matrix(job: JobReport) -> GroupMatrix | None:
    """The matrix of a job; None if all groups consist of all ranks, or if it is too large."""
    if not 1 < len(job.ranks) <= MOST_RANKS:
        return None
    shapes = [(each.label, _sets(job, each)) for each in process_groups(job.ranks, job.matched)]
    if all(len(places) == len(job.ranks) for _, sets in shapes for places in sets):
        return None
    numbers = tuple(rank.name.rank for rank in job.ranks)
    rows = ((visible(label, 120), _cells(sets, len(numbers))) for label, sets in shapes[:MOST_ROWS])
    return GroupMatrix(numbers, tuple(rows))


def group_names(job: JobReport) -> list[str]:
    """The name of the group of each communicator in JobReport.matched."""
    names = [""] * len(job.matched)
    for each in process_groups(job.ranks, job.matched):
        for place in each.members:
            names[place] = visible(each.label, 120)
    return names


def _sets(job: JobReport, groups: ProcessGroups) -> list[tuple[int, ...]]:
    """The places of the ranks in each group of one shape, sorted."""
    sets: dict[object, set[int]] = {}
    for place in groups.members:
        each = job.matched[place]
        key = tuple(sorted(each.ranks)) if each.number == NULL else each.number
        sets.setdefault(key, set()).update(each.ranks)
    return sorted(tuple(sorted(places)) for places in sets.values())


def _cells(sets: list[tuple[int, ...]], ranks: int) -> tuple[GroupCell, ...]:
    cells = [GroupCell("", "")] * ranks
    for number, members in enumerate(sets):
        for place in members:
            more = f"{cells[place].text} " if cells[place].text else ""
            cells[place] = GroupCell(f"{more}{number}", f"g-{number % _COLOURS + 1}")
    return tuple(cells)
