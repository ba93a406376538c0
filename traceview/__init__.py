"""Where the time of a GPU trace went and why, and how to get it back.

Every command of the command line has a function of the same name here. The public types can be
imported from here, too:

    Trace       a recording in memory: typed tables, nothing computed
    Report      the outcome of every analysis of a trace, and all findings, worst first
    JobReport   the answer for a job of many ranks: each rank, who waits for whom, and why
    Result      the answer of one analysis: tables, findings, summary figures, charts
    Skipped     why an analysis could not answer, and how to record what it needs
    WhatIfReport  what edits would win: the time per step with each, its error, and what limits then
    TryReport   remedies applied to a program: what they save, and whether to keep them
    RunComparison  what changed between two sides of recordings
    Finding     what is wrong, what shows it, what to do, and how much time that can save
    Table       rows with declared columns; `to_pandas()` makes a frame of them
    Selection   which range instances a report is restricted to
    Operation   a GPU operation as data, for `benchmark`

Functions and types are imported when they are first used: `import traceview` alone loads neither
numpy nor anything larger.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from traceview.base.errors import TraceviewError
from traceview.base.version import __version__

if TYPE_CHECKING:
    from traceview.api.benchmarks import benchmark, compare_benchmarks
    from traceview.api.comparisons import baseline, compare, gate, history
    from traceview.api.edits import what_if
    from traceview.api.kernels import diff_ptx, inspect_ptx
    from traceview.api.recordings import record, recording
    from traceview.api.traces import analyze, analyze_ranks, convert, export, load, report, scrub
    from traceview.api.tryouts import try_remedies
    from traceview.base.findings import Finding
    from traceview.base.tables import Table
    from traceview.traces.analyses.base import Result, Skipped
    from traceview.traces.comparison.comparison import RunComparison
    from traceview.traces.edits.answer import WhatIfReport
    from traceview.traces.ranks.job import JobReport
    from traceview.traces.recorders import record_ranks
    from traceview.traces.reporting import Report
    from traceview.traces.trace import Selection, Trace
    from traceview.trials.bench.operation import Operation
    from traceview.trials.tryout.answer import TryReport

__all__ = [
    "Finding",
    "JobReport",
    "Operation",
    "Report",
    "Result",
    "RunComparison",
    "Selection",
    "Skipped",
    "Table",
    "Trace",
    "TraceviewError",
    "TryReport",
    "WhatIfReport",
    "__version__",
    "analyze",
    "analyze_ranks",
    "baseline",
    "benchmark",
    "compare",
    "compare_benchmarks",
    "convert",
    "diff_ptx",
    "export",
    "gate",
    "history",
    "inspect_ptx",
    "load",
    "record",
    "record_ranks",
    "recording",
    "report",
    "scrub",
    "try_remedies",
    "what_if",
]
_HOMES = {
    "traceview.traces.analyses.base": ("Result", "Skipped"),
    "traceview.api.benchmarks": ("benchmark", "compare_benchmarks"),
    "traceview.api.comparisons": ("baseline", "compare", "gate", "history"),
    "traceview.api.edits": ("what_if",),
    "traceview.api.kernels": ("diff_ptx", "inspect_ptx"),
    "traceview.api.recordings": ("record", "recording"),
    "traceview.traces.recorders": ("record_ranks",),
    "traceview.api.traces": (
        *("analyze", "analyze_ranks", "convert", "export", "load", "report", "scrub"),
    ),
    "traceview.api.tryouts": ("try_remedies",),
    "traceview.trials.bench.operation": ("Operation",),
    "traceview.traces.comparison.comparison": ("RunComparison",),
    "traceview.base.findings": ("Finding",),
    "traceview.traces.ranks.job": ("JobReport",),
    "traceview.traces.reporting": ("Report",),
    "traceview.base.tables": ("Table",),
    "traceview.traces.trace": ("Selection", "Trace"),
    "traceview.trials.tryout.answer": ("TryReport",),
    "traceview.traces.edits.answer": ("WhatIfReport",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # A type checker sees the imports above, and no others.

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in _HOME:
            raise AttributeError(f"module 'traceview' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
