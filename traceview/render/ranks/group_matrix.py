"""Which ranks form which group, as a small table of groups and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from traceview.ranks.job import JobReport
from traceview.render.base.safe_text import visible

MOST_RANKS, MOST_ROWS = 64, 24
_COLOURS = 6


@dataclass(frozen=True)
class GroupCell:
    """The group of a rank: its number in its row, and the class of its colour; empty for none."""

    text: str
    style: str


@dataclass(frozen=True)
class GroupMatrix:
    """One row per kind of group, with a cell for each rank."""

    ranks: tuple[int, ...]
    rows: tuple[tuple[str, tuple[GroupCell, ...]], ...]


def group_matrix(job: JobReport) -> GroupMatrix | None:
    """The matrix of a job with groups other than all ranks; None where it would say nothing."""
    families = _families(job)
    whole = all(len(members) == len(job.ranks) for sets in families for members in sets)
    if whole or not 1 < len(job.ranks) <= MOST_RANKS:
        return None
    ranks = tuple(rank.name.rank for rank in job.ranks)
    rows = tuple((group_name(job, sets), _cells(sets, len(ranks))) for sets in families[:MOST_ROWS])
    return GroupMatrix(ranks, rows)


def _families(job: JobReport) -> list[list[tuple[int, ...]]]:
    """Sets of places of ranks, together where they are equally large and spaced, largest first."""
    every = sorted({tuple(sorted(each.ranks)) for each in job.matched if len(each.ranks) > 1})
    families: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for members in every:
        shape = tuple(b - a for a, b in pairwise(members))
        families.setdefault(shape, []).append(members)
    return sorted(families.values(), key=lambda sets: -len(sets[0]))


def group_name(job: JobReport, sets: Sequence[tuple[int, ...]]) -> str:
    """The name that the table of groups has for one of these sets of places, else its size."""
    table = job.result.tables["groups"]
    texts = (str(text).replace(" ", "") for text in table.cells("ranks"))
    named = dict(zip(texts, table.cells("group"), strict=True))
    for members in sets:
        numbers = [job.ranks[place].name.rank for place in members]
        for text in _spellings(numbers):
            if named.get(text):
                return visible(str(named[text]), 120)
    return f"groups of {len(sets[0])}"


def _spellings(numbers: list[int]) -> tuple[str, str]:
    """`0-3` and `0,1,2,3`."""
    consecutive = numbers == list(range(numbers[0], numbers[-1] + 1))
    listed = ",".join(map(str, numbers))
    return f"{numbers[0]}-{numbers[-1]}" if consecutive else listed, listed


def _cells(sets: list[tuple[int, ...]], ranks: int) -> tuple[GroupCell, ...]:
    cells = [GroupCell("", "")] * ranks
    for number, members in enumerate(sets):
        for place in members:
            more = f"{cells[place].text} " if cells[place].text else ""
            cells[place] = GroupCell(f"{more}{number}", f"g-{number % _COLOURS + 1}")
    return tuple(cells)
