"""A comparison of runs as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.comparison import wording
from traceview.comparison.comparison import RunComparison
from traceview.render.base.page import STYLES, Style, rendered
from traceview.render.comparison.page import compared_view
from traceview.render.comparison.timelines import side_timelines
from traceview.trace import Trace

_ALIGNED = {
    True: "Aligned at the start of the median step of the median run of each side.",
    False: "Aligned at the start of the steady time of each side.",
}


def render_html(
    comparison: RunComparison, version: str, traces: Sequence[Trace | None] = (None, None)
) -> str:
    """The page, with a timeline for each recording in `traces` (before, after)."""
    view = compared_view(comparison)
    return rendered(
        "comparison.html",
        Style((*STYLES, "comparison.css")),
        comparison=view,
        timelines=side_timelines(traces),
        aligned=_ALIGNED[wording.has_steps(comparison)],
        title=f"{view.before} → {view.after}",
        version=version,
    )
