"""A roofline worked out from its declaration and its rows, before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from traceview import units
from traceview.analyses.base import Chart
from traceview.render.base.safe_text import shortened_apart, visible
from traceview.tables import Cell, Table

_LABEL_WIDTH = 32
_ROOM = 3.0
_LEAST, _MOST = 1e-12, 1e24


@dataclass(frozen=True)
class Point:
    """One row: where it is, its share of the sizes of all that are shown, and what it is called."""

    x: float
    y: float
    share: float
    label: str


@dataclass(frozen=True)
class Roofline:
    """Points under roofs, both axes logarithmic.

    `slopes` are roofs that rise with x, `levels` those that do not, with their labels. `x` and `y`
    are the columns on the axes, `left` to `top` where they begin and end; `left_out` counts the
    rows that have no place, or for which there was no room.
    """

    points: tuple[Point, ...]
    slopes: tuple[tuple[float, str], ...]
    levels: tuple[tuple[float, str], ...]
    x: str
    y: str
    left: float
    right: float
    bottom: float
    top: float
    left_out: int


def roofline(chart: Chart, table: Table) -> Roofline | None:
    """The points of a chart, the largest first; None if none of its rows has a place."""
    x, y, size, label = chart.x or "", chart.value, chart.size or "", chart.label
    slope, level, kind = chart.slope or "", chart.level or "", chart.stack or ""
    rows = [row for row in table.rows() if _positive(row[x]) and _positive(row[y])]
    rows.sort(key=lambda row: -_number(row[size]))
    shown = rows[: chart.most]
    if not shown:
        return None
    slopes = _roofs((row[slope], "memory") for row in shown)
    levels = _roofs((row[level], str(row[kind])) for row in shown)
    labels = shortened_apart([visible(str(row[label])) for row in shown], _LABEL_WIDTH)
    whole = sum(_number(row[size]) for row in shown) or 1.0
    points = tuple(
        Point(_number(row[x]), _number(row[y]), _number(row[size]) / whole, said)
        for row, said in zip(shown, labels, strict=True)
    )
    return _framed(points, slopes, levels, (x, y), (slope, level), len(table) - len(shown))


def _framed(
    points: tuple[Point, ...],
    slopes: dict[float, str],
    levels: dict[float, str],
    axes: tuple[str, str],
    columns: tuple[str, str],
    left_out: int,
) -> Roofline:
    """With room for all points, and for where the roofs meet."""
    ridges = [level / slope for level in levels for slope in slopes]
    across = [*(point.x for point in points), *ridges]
    up = [*(point.y for point in points), *levels]
    left, right = min(across) / _ROOM, max(across) * _ROOM
    up += [slope * min(across) for slope in slopes]
    return Roofline(
        points,
        tuple(_said(slopes, columns[0])),
        tuple(_said(levels, columns[1])),
        *axes,
        left=left,
        right=right,
        bottom=min(up) / _ROOM,
        top=max(up) * _ROOM,
        left_out=left_out,
    )


def _roofs(rates: Iterable[tuple[Cell, str]]) -> dict[float, str]:
    return {_number(rate): name for rate, name in rates if _positive(rate)}


def _said(roofs: dict[float, str], column: str) -> Iterator[tuple[float, str]]:
    for rate, name in sorted(roofs.items()):
        yield rate, f"{name} {units.quantity(column, rate)}"


def _positive(cell: Cell) -> bool:
    """Whether it has a place on an axis that no machine leaves."""
    return _LEAST < _number(cell) < _MOST


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0
