"""The colours of a chart."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.records import record
from traceview.render.base.colors import light_color


@record
class Palette:
    """Colours as matplotlib takes them; `series` has one for each of `bars.MOST_SERIES`."""

    ink: str
    quiet: str
    grid: str
    series: tuple[str, ...]
    paper: str = "none"

    def of(self, name: str, series: Sequence[str] = ()) -> str:
        """The page's colour for a meaning, else the series' own colour."""
        return light_color(name) or self.series[series.index(name) if series else 0]


LIGHT = Palette(
    ink="#1b1f24",
    quiet="#59626d",
    grid="#dfe3e8",
    series=("#2f6db3", "#c8701a", "#4b9560", "#a8517f", "#7c6bb5", "#8b929b"),
    paper="#ffffff",
)
"""The light colours of `templates/report.css`, for a figure that stands alone."""
