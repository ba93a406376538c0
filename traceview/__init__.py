"""Read a GPU trace, ask it where the time went and why, show the answers.

Every verb of the command line has its twin here. What a twin needs is imported when it is called:
`import traceview` costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.errors import TraceviewError
from traceview.version import __version__

if TYPE_CHECKING:
    from traceview.ptx.report import PtxReport
    from traceview.recorders import Recording
    from traceview.report import Report
    from traceview.trace import Trace
    from traceview.trace.scrub import ScrubReport

__all__ = ["TraceviewError", "__version__", "analyze", "inspect_ptx", "load", "record", "scrub"]


def load(path: str | Path) -> Trace:
    """Read a recording; a `.nsys-rep` is exported by nsys first, into a cache.

    Either may be inside a .gz, .xz or .zst file. Raises TraceFormatError if it is not a trace,
    ToolNotFoundError if nsys is needed and missing.
    """
    from traceview.trace import files

    if not files.is_report(Path(path)):
        return files.load(path)
    from traceview.recorders import export_report

    with files.unpacked_report(Path(path)) as report:
        exported = export_report(report)
    return replace(files.load(exported), path=str(path))


def record(
    *command: str,
    out: str | Path | None = None,
    force: bool = False,
    keep_env: bool = False,
    note: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Recording:
    """Run SCRIPT [ARGS...] under nsys and write the trace, `<script stem>.sqlite` unless `out`.

    `options` are those of recorders.Choices: what nsys traces. `note` gets a line at a time for
    the user. Raises InputError, OutputExistsError, ToolNotFoundError or RecordingError.
    """
    from traceview import recorders
    from traceview.errors import InputError

    if not command:
        raise InputError("there is no program to record", "name a script and its arguments")
    target = None if out is None else Path(out)
    choices = recorders.Choices(**options)
    return recorders.record(
        command, target, choices=choices, force=force, keep_env=keep_env, note=note
    )


def scrub(trace: str | Path, out: str | Path, *, force: bool = False) -> ScrubReport:
    """Write a copy of a trace that tells nothing of its user: no environment, no home paths.

    Names of kernels, ranges and calls stay. Raises TraceFormatError if it is no nsys export,
    OutputExistsError if `out` exists and not `force`.
    """
    from traceview.errors import OutputExistsError
    from traceview.trace.scrub import scrub as cleaned

    if Path(out).exists() and not force:
        raise OutputExistsError(Path(out))
    return cleaned(Path(trace), Path(out))


def analyze(
    trace: Trace,
    only: str | Sequence[str] = (),
    *,
    ranges: str | Sequence[str] = (),
    exclude_ranges: str | Sequence[str] = (),
) -> Report:
    """Put all questions to a trace, or `only` those named.

    `ranges` and `exclude_ranges` are globs over range names and paths: the answers then speak of
    the instances of those ranges alone. Raises InputError if a name or glob fits nothing.
    """
    from traceview import report
    from traceview.facts import selection
    from traceview.trace import Selection

    only, ranges, exclude_ranges = (
        (names,) if isinstance(names, str) else tuple(names)
        for names in (only, ranges, exclude_ranges)
    )
    if ranges or exclude_ranges:
        trace = trace.restricted(Selection(ranges, exclude_ranges))
        selection.check(trace)
    return report.analyze(trace, only)


def inspect_ptx(
    target: str | Path,
    *,
    sm_count: int | None = None,
    constexprs: Mapping[str, str] | None = None,
    **options: Any,
) -> PtxReport:
    """Compile the kernels of a target, launch none, and say how wide their accesses are and why.

    `target` is what `traceview ptx` takes; `options` are those of ptx.target.Options: arch,
    kernel, signature, num_warps …. `sm_count` is the number of SMs of the GPU, for the waves.
    Raises InputError, PtxSyntaxError, ToolNotFoundError, or TraceviewError if a compiler refuses.
    """
    from traceview.ptx.report import inspect_target
    from traceview.ptx.target import Options

    chosen = Options(constexprs=dict(constexprs or {}), **options)
    return inspect_target(str(target), chosen, sm_count=sm_count)
