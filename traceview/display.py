"""Display of the public types: `repr`, HTML for notebooks, charts, whole documents.

These types stand below `render` in the order of imports, and `render` draws them. Their methods
call the functions of this module, which import `render` when they are called: it is the one place
where an import points up, and tests/test_architecture.py excuses it by name. A registry that
`render` fills would avoid the exception, but a value would then have its methods only after
somebody has imported `render`, and a type checker could not see what they return.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, overload

from traceview.errors import ToolNotFoundError
from traceview.outputs import check_output
from traceview.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

    from traceview.analyses.base import Result
    from traceview.comparison.comparison import RunComparison
    from traceview.comparison.gate.rules import GateReport
    from traceview.ranks.job import JobReport
    from traceview.render.interactive.kernels import Inspected
    from traceview.render.interactive.text import Displayable
    from traceview.report import Report


class WrittenReport:
    """Base of reports: HTML page, JSON document, one-screen `repr`, HTML in a notebook."""

    @overload
    def to_html(self, path: None = None, *, force: bool = False, all_rows: bool = False) -> str: ...
    @overload
    def to_html(self, path: str | Path, *, force: bool = False, all_rows: bool = False) -> Path: ...
    def to_html(
        self, path: str | Path | None = None, *, force: bool = False, all_rows: bool = False
    ) -> str | Path:
        """The report as one HTML page; with a path, write it there and return the path.

        The page has the first 1,000 rows of each table unless `all_rows`. Raises
        OutputExistsError if the file exists and not `force`.
        """
        return output(lambda: self._page(all_rows), path, force)

    @overload
    def to_json(self, path: None = None, *, force: bool = False, all_rows: bool = False) -> str: ...
    @overload
    def to_json(self, path: str | Path, *, force: bool = False, all_rows: bool = False) -> Path: ...
    def to_json(
        self, path: str | Path | None = None, *, force: bool = False, all_rows: bool = False
    ) -> str | Path:
        """The report as JSON, as `traceview report --json` prints it; with a path, write it there.

        A table has at most 10,000 rows unless `all_rows`. Raises OutputExistsError if the file
        exists and not `force`.
        """
        return output(lambda: self._document(all_rows), path, force)

    def __repr__(self) -> str:
        return text(self)  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return html(self)  # type: ignore[arg-type]

    def _page(self, all_rows: bool) -> str:
        raise NotImplementedError

    def _document(self, all_rows: bool) -> str:
        raise NotImplementedError


def text(value: Displayable) -> str:
    """The `repr` of a public value: at most one screen of plain lines."""
    from traceview.render.interactive.text import described

    return described(value)


def kernel_text(value: Inspected) -> str:
    """The `repr` of a report on kernels: their figures and findings, without their code."""
    from traceview.render.interactive.kernels import kernel_text

    return kernel_text(value)


def gate_text(report: GateReport) -> str:
    """The `repr` of a gate report: the text that the command prints."""
    from traceview.render.gate.text import render_text

    return render_text(report).rstrip("\n")


def html(value: Displayable) -> str:
    """The HTML of a notebook cell: self-contained, without scripts."""
    from traceview.render.interactive.html import snippet

    return snippet(value)


def figure(result: Result, table: str) -> Figure:
    """The chart that an analysis declares for one of its tables.

    Raises ToolNotFoundError without matplotlib.
    """
    if not find_spec("matplotlib"):
        remedy = "install it: pip install matplotlib"
        raise ToolNotFoundError("figure() needs matplotlib", remedy)
    from traceview.render.interactive.figure import figure_of

    return figure_of(result, table)


def page(report: Report, all_rows: bool) -> str:
    """The report as an HTML page."""
    from traceview.render.base.table_view import MOST_ROWS
    from traceview.render.report.html import render_html

    return render_html(report, __version__, None if all_rows else MOST_ROWS)


def document(report: Report, all_rows: bool) -> str:
    """The report as a JSON document."""
    from traceview.render.base.row_limit import MOST_ROWS
    from traceview.render.report.json import render_json

    return render_json(report, __version__, None if all_rows else MOST_ROWS)


def comparison_page(comparison: RunComparison) -> str:
    """A comparison of runs as an HTML page; recordings are read again for their timelines."""
    from traceview import load
    from traceview.render.comparison.html import render_html

    traces = [load(each) if isinstance(each, Path) else each for each in comparison.recordings]
    return render_html(comparison, __version__, traces)


def comparison_document(comparison: RunComparison) -> str:
    """A comparison of runs as a JSON document."""
    from traceview.render.comparison.json import render_json

    return render_json(comparison, __version__)


def comparison_markdown(comparison: RunComparison) -> str:
    """A comparison of runs as Markdown."""
    from traceview.render.documents.comparison import comparison_document
    from traceview.render.markdown import render_markdown

    return render_markdown(comparison_document(comparison))


def job_page(job: JobReport, all_rows: bool) -> str:
    """A job of many ranks as an HTML page."""
    from traceview.render.base.table_view import MOST_ROWS
    from traceview.render.ranks.html import render_html

    return render_html(job, __version__, None if all_rows else MOST_ROWS)


def job_document(job: JobReport, all_rows: bool) -> str:
    """A job of many ranks as a JSON document."""
    from traceview.render.base.row_limit import MOST_ROWS
    from traceview.render.ranks.json import render_json

    return render_json(job, __version__, None if all_rows else MOST_ROWS)


def job_markdown(job: JobReport) -> str:
    """A job of many ranks as Markdown."""
    from traceview.render.documents.job import job_document
    from traceview.render.markdown import render_markdown

    return render_markdown(job_document(job))


def output(make: Callable[[], str], path: str | Path | None, force: bool) -> str | Path:
    """Return the text that `make` builds, or write it to `path` and return the path.

    Raises InputError or OutputExistsError, before calling `make`, if `path` cannot be written.
    """
    if path is None:
        return make()
    target = Path(path)
    check_output(target, force=force)
    target.write_text(make(), "utf-8")
    return target
