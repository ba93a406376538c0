"""The registry of `traceview.display`: for each public type and form, what renders it.

Each renderer is imported when it is called: a `repr` needs no page.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.display import shows
from traceview.errors import ToolNotFoundError
from traceview.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from traceview.analyses.base import Result
    from traceview.comparison.comparison import RunComparison
    from traceview.comparison.gate.rules import GateReport
    from traceview.ranks.job import JobReport
    from traceview.render.interactive.kernels import Inspected
    from traceview.report import Report


@shows("text", "object")
def text(value: Any) -> str:
    """The `repr` of a public value: at most one screen of plain lines."""
    from traceview.render.interactive.text import described

    return described(value)


@shows("text", "PtxReport", "KernelReport", "Diff")
def kernel_text(value: Inspected) -> str:
    """Figures and findings of kernels, without their code."""
    from traceview.render.interactive.kernels import kernel_text

    return kernel_text(value)


@shows("text", "GateReport")
def gate_text(report: GateReport) -> str:
    """The text that the command prints."""
    from traceview.render.gate.text import render_text

    return render_text(report).rstrip("\n")


@shows("html", "object")
def html(value: Any) -> str:
    """The HTML of a notebook cell."""
    from traceview.render.interactive.html import snippet

    return snippet(value)


@shows("figure", "Result")
def figure(result: Result, table: str) -> Figure:
    """The chart that an analysis declares for one of its tables."""
    if not find_spec("matplotlib"):
        remedy = "install it: pip install matplotlib"
        raise ToolNotFoundError("figure() needs matplotlib", remedy)
    from traceview.render.interactive.figure import figure_of

    return figure_of(result, table)


@shows("page", "Report", "JobReport")
def page(report: Report | JobReport, all_rows: bool) -> str:
    """A report, or a job of many ranks, as an HTML page."""
    from traceview.render.base.table_view import MOST_ROWS

    return _rendered(report, "html", None if all_rows else MOST_ROWS)


@shows("page", "RunComparison")
def comparison_page(comparison: RunComparison) -> str:
    """A comparison of runs as an HTML page; recordings are read again for their timelines."""
    from traceview.api.traces import load
    from traceview.render.comparison.html import render_html

    traces = [load(each) if isinstance(each, Path) else each for each in comparison.recordings]
    return render_html(comparison, __version__, traces)


@shows("json", "Report", "JobReport")
def json(report: Report | JobReport, all_rows: bool) -> str:
    """A report, or a job of many ranks, as a JSON document."""
    from traceview.render.base.row_limit import MOST_ROWS

    return _rendered(report, "json", None if all_rows else MOST_ROWS)


def _rendered(report: Report | JobReport, form: str, most_rows: int | None) -> str:
    room = "ranks" if type(report).__name__ == "JobReport" else "report"
    render = getattr(import_module(f"traceview.render.{room}.{form}"), f"render_{form}")
    text: str = render(report, __version__, most_rows)
    return text


@shows("json", "RunComparison")
def comparison_json(comparison: RunComparison) -> str:
    """A comparison of runs as a JSON document."""
    from traceview.render.comparison.json import render_json

    return render_json(comparison, __version__)


@shows("markdown", "Report", "RunComparison", "JobReport", "GateReport")
def markdown(answer: Report | RunComparison | JobReport | GateReport) -> str:
    """An answer as Markdown for an issue or a pull request."""
    from traceview.render.documents import document_of
    from traceview.render.markdown import render_markdown

    return render_markdown(document_of(answer))
