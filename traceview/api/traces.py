"""Traces as files: load, convert, export, scrub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.trace import Trace
    from traceview.trace.scrub.scrubber import ScrubReport

_PERFETTO = (".pftrace", ".perfetto-trace")
_WRITTEN = (".sqlite", *_PERFETTO, *(f"{suffix}.gz" for suffix in _PERFETTO))


def load(path: str | Path) -> Trace:
    """Read a trace: an SQLite file of nsys or traceview, or a JSON trace of torch.profiler.

    A .nsys-rep is exported by nsys into a cache first. Each may be compressed (.gz, .xz or .zst).
    Raises TraceFormatError if the file is not a trace, TooLargeError if there is too little memory,
    ToolNotFoundError if nsys is needed and missing.
    """
    from traceview.trace import load as files

    if not files.is_report(Path(path)):
        return files.load(path)
    return replace(files.load(_exported(Path(path))), path=str(path))


def convert(trace: Trace | str | Path, out: str | Path, *, force: bool = False) -> Path:
    """Write a trace in the format that the name of `out` ends in, and return the path of the file.

    `trace` is what `load` takes or returns. `.sqlite` is traceview's own file: the tables of the
    trace, which `load` reads back as they are. `.pftrace` and `.perfetto-trace`, also with `.gz`,
    are Perfetto's: see `export`. Raises InputError if the name ends in none of these or the file
    cannot be written, and otherwise as `export` does.
    """
    from traceview.errors import InputError
    from traceview.outputs import check_trace_output, replacing, unpacked_name
    from traceview.trace.stored.writer import write_trace

    target = Path(out)
    if unpacked_name(target).endswith(_PERFETTO) and target.suffix not in (".xz", ".zst"):
        return export(trace, perfetto=target, force=force)
    if not unpacked_name(target).endswith(".sqlite"):
        raise InputError(
            f"{target} ends in no format that is written", f"end it in {', '.join(_WRITTEN)}"
        )
    source = Path(trace) if isinstance(trace, (str, Path)) else Path(trace.path)
    check_trace_output(target, force=force, source=source)
    loaded = load(trace) if isinstance(trace, (str, Path)) else trace
    with replacing(target) as part:
        write_trace(loaded, part, shown=target)
    return target


def export(trace: Trace | str | Path, *, perfetto: str | Path, force: bool = False) -> Path:
    """Write a trace in Perfetto's format (TrackEvent) and return the path of the file.

    `trace` is what `load` takes or returns. The file has threads with ranges and calls, streams,
    idle time by cause, queue depth and memory, and flows from launch calls to the work that they
    launched; it is compressed if its name ends in .gz. Raises TraceFormatError, TooLargeError or
    ToolNotFoundError as `load` does, InputError if the file cannot be written, and
    OutputExistsError if it exists and not `force`.
    """
    from traceview.facts.steps.inferred import with_steps
    from traceview.outputs import check_report_output, write_pieces
    from traceview.timeline.perfetto import perfetto_pieces
    from traceview.timeline.timeline import timeline

    target = Path(perfetto)
    source = Path(trace) if isinstance(trace, (str, Path)) else Path(trace.path)
    check_report_output(target, force=force, source=source, source_kind="trace")
    loaded = with_steps(load(trace) if isinstance(trace, (str, Path)) else trace)
    write_pieces(target, perfetto_pieces(loaded, timeline(loaded)))
    return target


def scrub(
    trace: str | Path, out: str | Path, *, force: bool = False, names: bool = False
) -> ScrubReport:
    """Copy a trace without private data: only what the analyses read is kept.

    Numbers stay, and the names of kernels, ranges, calls, functions and source files, without their
    folders. With `names`, these names become pseudonyms, except those of known library kernels, and
    the code of kernels goes. A .nsys-rep is exported by nsys first, a trace of torch.profiler
    converted. Raises TraceFormatError if `trace` is not a trace, InputError if `out` cannot be
    written, OutputExistsError if it exists and not `force`.
    """
    from traceview.outputs import check_trace_output
    from traceview.trace import load as files
    from traceview.trace.scrub.scrubber import scrub as scrub_export
    from traceview.vocabulary.libraries import readable

    # Before the export, which can take minutes.
    check_trace_output(Path(out), force=force, source=Path(trace))
    export = _exported(Path(trace)) if files.is_report(Path(trace)) else Path(trace)
    return scrub_export(export, Path(out), force=force, is_known=readable if names else None)


def _exported(report: Path) -> Path:
    from traceview.recorders import export_report
    from traceview.trace.load import unpacked_report

    with unpacked_report(report) as plain:
        return export_report(plain)
