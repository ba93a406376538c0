"""The kernels of one target, or of several versions, as text, JSON or a page."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.inspect.compare.comparison import Diff
from traceview.inspect.target_report import PtxReport
from traceview.render.kernels.diff import render_diff_text
from traceview.render.kernels.json import render_ptx_json
from traceview.render.kernels.text import render_ptx_text, render_views


def text(
    made: PtxReport | Diff,
    views: Sequence[str],
    *,
    width: int,
    color: bool,
    details: bool = False,
) -> str:
    """Render as text in lines of at most `width` cells; with `views`, a target's code instead.

    With `details`, the text of one target has all its tables.
    """
    if isinstance(made, Diff):
        return render_diff_text(made, width=width, color=color)
    if views:
        return render_views(made, views, width=width, color=color)
    return render_ptx_text(made, width=width, color=color, details=details)


def json(made: PtxReport | Diff, version: str) -> str:
    """Render as one JSON document. `version` is traceview's own."""
    return render_ptx_json(made, version)


def html(made: PtxReport | Diff, version: str) -> str:
    """Render as one HTML page. `version` is traceview's own."""
    # Imported late: only pages need Jinja.
    from traceview.render.kernels.html import render_diff_html, render_ptx_html

    if isinstance(made, Diff):
        return render_diff_html(made, version)
    return render_ptx_html(made, version)
