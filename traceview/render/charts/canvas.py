"""The figure that charts are drawn on."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

_TITLE_IN = 0.4


class ChartFigure(Figure):
    """A matplotlib figure that a notebook shows without `%matplotlib inline`."""

    def _repr_svg_(self) -> str:
        written = io.StringIO()
        self.savefig(written, format="svg")
        return written.getvalue()

    def add_heading(self, title: str) -> None:
        """Put a title over the chart, in room of its own."""
        width, height = self.get_size_inches()
        shrink = height / (height + _TITLE_IN)
        for axes in self.axes:
            left, bottom, across, up = axes.get_position().bounds
            axes.set_position((left, bottom * shrink, across, up * shrink))
        self.set_size_inches(width, height + _TITLE_IN)
        self.text(0.01, 1 - 0.1 / (height + _TITLE_IN), title, va="top", size=11, parse_math=False)
