"""Kernels as text, JSON or a page: those of one target, or versions side by side."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.inspect.compare.comparison import Diff
from traceview.inspect.target_report import PtxReport
from traceview.render.kernels.diff_text import render_diff_text
from traceview.render.kernels.json import render_diff_json, render_ptx_json
from traceview.render.kernels.listing import render_views
from traceview.render.kernels.text import render_ptx_text


def text(
    made: PtxReport | Diff,
    views: Sequence[str],
    *,
    width: int,
    color: bool,
    details: bool = False,
) -> str:
    """In lines of at most `width` cells; `views` of one target show its code instead.

    With `details` one target has all its tables.
    """
    if isinstance(made, Diff):
        return render_diff_text(made, width=width, color=color)
    if views:
        return render_views(made, views, width=width, color=color)
    return render_ptx_text(made, width=width, color=color, details=details)


def json(made: PtxReport | Diff, version: str) -> str:
    """One JSON document. `version` is traceview's own."""
    if isinstance(made, Diff):
        return render_diff_json(made, version)
    return render_ptx_json(made, version)


def html(made: PtxReport | Diff, version: str) -> str:
    """One page. `version` is traceview's own."""
    # Jinja is imported for a page alone.
    from traceview.render.kernels.html import render_diff_html, render_ptx_html

    if isinstance(made, Diff):
        return render_diff_html(made, version)
    return render_ptx_html(made, version)
