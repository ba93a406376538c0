"""Read a GPU trace, ask it where the time went and why, show the answers.

Every verb of the command line has its twin here. What a twin needs is imported when it is called:
`import traceview` costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceview.report import Report
    from traceview.trace import Trace

__all__ = ["__version__", "analyze", "load"]


def load(path: str | Path) -> Trace:
    """Read a recording; a `.nsys-rep` is exported by nsys first, into a cache.

    Raises TraceFormatError if it is not a trace, ToolNotFoundError if nsys is needed and missing.
    """
    from traceview.trace.files import load as read

    if Path(path).suffix in {".nsys-rep", ".qdrep"}:
        from traceview.record import export_report

        return read(export_report(Path(path)))
    return read(Path(path))


def analyze(
    trace: Trace,
    only: Sequence[str] = (),
    *,
    ranges: Sequence[str] = (),
    exclude_ranges: Sequence[str] = (),
) -> Report:
    """Put all questions to a trace, or `only` those named.

    `ranges` and `exclude_ranges` are globs over range names and paths: the answers then speak of
    the instances of those ranges alone. Raises InputError if a name or glob fits nothing.
    """
    from traceview import report
    from traceview.facts import selection
    from traceview.trace import Selection

    if ranges or exclude_ranges:
        trace = trace.restricted(Selection(tuple(ranges), tuple(exclude_ranges)))
        selection.check(trace)
    return report.analyze(trace, only)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("traceview")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
