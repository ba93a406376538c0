"""The bar of the run's time: GPU work after warm-up, and idle time by cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from traceview import units
from traceview.analyses.verdict.scoreboard import RunTime, TimePart
from traceview.records import record
from traceview.render.base.colors import color_class
from traceview.render.charts.svg.marks import NEUTRAL, rect, svg

_HEIGHT_PX = 36.0
_LEAST_PCT = 1.0
"""Least percentage to be named in the legend; a smaller part has only a tooltip."""

_PATTERN = Markup(
    '<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="2.5" height="6" class="hatch"/></pattern></defs>'
)


@record
class LegendEntry:
    """A part of the bar in words. `style` is the CSS class of its colour."""

    name: str
    style: str
    share: str
    time: str


@record
class TimeBarView:
    """The bar, its named busy and idle parts, and the time that it leaves out."""

    drawn: Markup
    busy: tuple[LegendEntry, ...]
    idle: tuple[LegendEntry, ...]
    busy_pct: str
    idle_pct: str
    of: str
    apart: str


def time_bar(time: RunTime) -> TimeBarView:
    """The bar of one GPU's time after warm-up and first uses."""
    kinds = {kind: [part for part in time.parts if part.kind == kind] for kind in ("busy", "idle")}
    sums = {kind: sum(part.time_ns for part in parts) for kind, parts in kinds.items()}
    gpu = f"GPU {time.device_id}" if time.devices > 1 else "the GPU"
    apart_ns = max(time.run_ns - time.steady_ns, 0)
    return TimeBarView(
        drawn=_bar(time),
        busy=tuple(_entries(kinds["busy"], time.steady_ns)),
        idle=tuple(_entries(kinds["idle"], time.steady_ns)),
        busy_pct=_share(sums["busy"], time.steady_ns),
        idle_pct=_share(sums["idle"], time.steady_ns),
        of=f"{units.duration(time.steady_ns)} of {gpu} after warm-up and first uses",
        apart=f"{units.duration(apart_ns)} of start-up, warm-up and first uses apart"
        if apart_ns
        else "",
    )


def _bar(time: RunTime) -> Markup:
    whole = max(time.steady_ns, 1)
    marks, start = [_PATTERN], 0.0
    for part in time.parts:
        width = part.time_ns / whole
        idle = "idle: " if part.kind == "idle" else ""
        tooltip = (
            f"{idle}{part.name}: {units.duration(part.time_ns)}, {_share(part.time_ns, whole)}"
        )
        marks.append(rect(start, 0, width, _HEIGHT_PX, f"part {_style(part)}", tooltip))
        if part.kind == "idle":
            marks.append(rect(start, 0, width, _HEIGHT_PX, "hatched", tooltip))
        start += width
    return svg(_HEIGHT_PX, marks, "time-bar")


def _style(part: TimePart) -> str:
    return color_class(part.name) or NEUTRAL


def _share(part_ns: int, whole_ns: int) -> str:
    return units.percent(100.0 * part_ns / max(whole_ns, 1))


def _entries(parts: Sequence[TimePart], whole_ns: int) -> Iterator[LegendEntry]:
    """The parts worth a name, and one entry for all others."""
    named = [part for part in parts if 100.0 * part.time_ns >= _LEAST_PCT * whole_ns]
    for part in named:
        time, share = units.duration(part.time_ns), _share(part.time_ns, whole_ns)
        yield LegendEntry(part.name, _style(part), share, time)
    rest_ns = sum(part.time_ns for part in parts) - sum(part.time_ns for part in named)
    if rest_ns:
        rest = units.counted(len(parts) - len(named), "smaller part")
        yield LegendEntry(rest, NEUTRAL, _share(rest_ns, whole_ns), units.duration(rest_ns))
