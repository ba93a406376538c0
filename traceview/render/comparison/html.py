"""A comparison of runs as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

from traceview.comparison.comparison import RunComparison
from traceview.render.base.page import STYLES, Style, rendered
from traceview.render.comparison.page import compared_view


def render_html(comparison: RunComparison, version: str) -> str:
    """The page. `version` is that of traceview, for the footer."""
    view = compared_view(comparison)
    return rendered(
        "comparison.html",
        Style((*STYLES, "comparison.css")),
        comparison=view,
        title=f"{view.before} → {view.after}",
        version=version,
    )
