"""Traces as files, and their reports: of one recording, or of a job of many ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.base.records import record

if TYPE_CHECKING:
    from traceview.traces.ranks.job import JobReport
    from traceview.traces.reporting import Report
    from traceview.traces.trace import Trace
    from traceview.traces.trace.scrub.scrubber import ScrubReport


_PERFETTO = (".pftrace", ".perfetto-trace")
_WRITTEN = (".sqlite", *_PERFETTO, *(f"{suffix}.gz" for suffix in _PERFETTO))


def load(path: str | Path) -> Trace:
    """Read a trace: an SQLite file of nsys or traceview, or a JSON trace of torch.profiler.

    A .nsys-rep is exported by nsys into a cache first. Each may be compressed (.gz, .xz or .zst).
    Raises TraceFormatError if the file is not a trace, TooLargeError if there is too little memory,
    ToolNotFoundError if nsys is needed and missing.
    """
    from traceview.traces.trace import load as files

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
    from traceview.base.errors import InputError
    from traceview.base.outputs import check_trace_output, replacing, unpacked_name
    from traceview.traces.trace.stored_writer import write_trace

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
    launched; it is compressed if its name ends in .gz. `load` reads it back. Raises
    TraceFormatError, TooLargeError or ToolNotFoundError as `load` does, InputError if the file
    cannot be written, and OutputExistsError if it exists and not `force`.
    """
    from itertools import chain

    from traceview.base.outputs import check_report_output, write_pieces
    from traceview.traces.facts.steps.inferred import with_steps
    from traceview.traces.timeline.perfetto import perfetto_pieces
    from traceview.traces.timeline.timeline import timeline
    from traceview.traces.trace.perfetto import recording_packets

    target = Path(perfetto)
    source = Path(trace) if isinstance(trace, (str, Path)) else Path(trace.path)
    check_report_output(target, force=force, source=source, source_kind="trace")
    loaded = with_steps(load(trace) if isinstance(trace, (str, Path)) else trace)
    write_pieces(
        target, chain(recording_packets(loaded), perfetto_pieces(loaded, timeline(loaded)))
    )
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
    from traceview.base.outputs import check_trace_output
    from traceview.base.vocabulary.libraries import readable
    from traceview.traces.trace import load as files
    from traceview.traces.trace.scrub.scrubber import scrub as scrub_export

    # Before the export, which can take minutes.
    check_trace_output(Path(out), force=force, source=Path(trace))
    export = _exported(Path(trace)) if files.is_report(Path(trace)) else Path(trace)
    return scrub_export(export, Path(out), force=force, is_known=readable if names else None)


def _exported(report: Path) -> Path:
    from traceview.traces.recorders import export_report
    from traceview.traces.trace.load import unpacked_report

    with unpacked_report(report) as plain:
        return export_report(plain)


def analyze(
    trace: Trace,
    only: str | Sequence[str] = (),
    *,
    ranges: str | Sequence[str] = (),
    exclude_ranges: str | Sequence[str] = (),
    strict: bool = False,
    peaks: str | Mapping[str, float] | Sequence[str] = (),
    ncu: str | Path | None = None,
    cubins: str | Path | Sequence[str | Path] = (),
    tables: bool = True,
) -> Report:
    """Run all analyses on a trace, or `only` those named, and rank their findings.

    Arguments:
        trace: what `load` returns.
        only: names of analyses, such as "gpu-idle".
        ranges: globs over range names and paths; the report then covers only the work of the
            instances of these ranges.
        exclude_ranges: globs for ranges whose work is left out, such as warm-up steps.
        strict: infer no range for work that a thread without ranges launched. By default it
            belongs to the range that is open on the main thread.
        peaks: figures of the GPU that replace those of the trace and the data sheets, such as
            {"bandwidth": 4.8e12, "bf16": 989e12} or "bandwidth=4.8e12". Units are bytes/s and
            FLOP/s; `traceview.base.hardware.rates.FIGURES` lists the names.
        ncu: a report of Nsight Compute (.ncu-rep), or its CSV (`ncu --csv --page raw`), with the
            bytes and FLOP that the same program's kernels moved and did, for "roofline".
        cubins: files with the code of kernels that were recorded without it: .cubin, .ptx, or
            what nvcc built, for "load-widths".
        tables: compute the tables of all answers now, on two threads. Otherwise the tables of an
            answer are computed when they are first read, for programs that read only findings.

    Raises InputError if `trace` is no Trace, a name or glob matches nothing, or a file has another
    format, PtxSyntaxError if a .ptx file is damaged, and ToolNotFoundError if reading a cubin needs
    a tool that is missing.
    """
    options = AnalysisOptions(only, ranges, exclude_ranges, strict, peaks, ncu, cubins)
    return analyzed(trace, options, tables=tables)


@record
class AnalysisOptions:
    """What to analyze of a recording, as `analyze` takes it: analyses, ranges, further input."""

    only: str | Sequence[str] = ()
    ranges: str | Sequence[str] = ()
    exclude_ranges: str | Sequence[str] = ()
    strict: bool = False
    peaks: str | Mapping[str, float] | Sequence[str] = ()
    ncu: str | Path | None = None
    cubins: str | Path | Sequence[str | Path] = ()


def analyzed(
    trace: Trace,
    options: AnalysisOptions,
    *,
    tables: bool,
    beside: Callable[[Trace], None] | None = None,
) -> Report:
    """As `analyze`, with `beside` called for the prepared trace: see `reporting.analyze`."""
    from traceview.traces import reporting
    from traceview.traces.facts.ranges import selection
    from traceview.traces.facts.steps.inferred import with_steps
    from traceview.traces.trace import Selection

    only, ranges, exclude_ranges = (
        (names,) if isinstance(names, str) else tuple(names)
        for names in (options.only, options.ranges, options.exclude_ranges)
    )
    trace = with_steps(prepared(trace, options), () if only else reporting.STARTED_WITH_STEPS)
    if ranges or exclude_ranges:
        trace = trace.but(selection=Selection(ranges, exclude_ranges))
        selection.check(trace)
    return reporting.analyze(trace, only, tables=tables, beside=beside)


def prepared(trace: Trace, options: AnalysisOptions) -> Trace:
    """The trace with the further input of the options. Raises InputError if it is no Trace."""
    from traceview.base.errors import InputError
    from traceview.base.hardware import parse_figures
    from traceview.traces.trace import Trace

    if not isinstance(trace, Trace):
        raise InputError(f"{trace!r} is not a Trace", "pass what traceview.load(path) returns")
    if options.strict:
        trace = trace.but(strict=True)
    if options.peaks:
        trace = trace.but(peaks=parse_figures(options.peaks))
    if options.ncu is not None:
        from traceview.traces.trace.ncu import read_counters
        from traceview.traces.trace.ncu_report import is_report, read_report

        path = Path(options.ncu)
        counters, remarks = (read_report if is_report(path) else read_counters)(path)
        tables_read = {**trace.tables, "kernel_counters": counters}
        trace = trace.but(tables=tables_read, warnings=(*trace.warnings, *remarks))
    if cubins := options.cubins:
        from traceview.kernels.inspect.targets import binary_kernels
        from traceview.traces.facts.code import with_code

        files = (cubins,) if isinstance(cubins, (str, Path)) else cubins
        trace = with_code(trace, binary_kernels(files))
    return trace


def report(traces: Trace | str | Path | Sequence[str | Path], **options: Any) -> Report | JobReport:
    """The report of a recording, as `traceview report` prints it.

    `traces` is a recording, as `load` takes or returns it, with `options` as those of `analyze`; of
    a folder or several recordings, one per rank, it is that of their job (see `analyze_ranks`).
    Raises what these raise.
    """
    from traceview.traces.trace import Trace

    if isinstance(traces, Trace):
        return analyze(traces, **options)
    if not isinstance(traces, (str, Path)) or Path(traces).is_dir() or "*" in str(traces):
        return analyze_ranks(traces, **options)
    return analyze(load(traces), **options)


def analyze_ranks(
    recordings: str | Path | Sequence[str | Path],
    *,
    jobs: int | None = None,
    dask: str | None = None,
) -> JobReport:
    """Analyze the ranks of one job side by side: who waits for whom, and why.

    `recordings` are files as `load` takes them, folders and globs: one file per rank, or one with
    several processes. Each is read in a process of its own, `jobs` at a time, by default as many as
    there are cores, and as fit into memory. `dask` has the workers of a Dask cluster read them
    where they see these paths: the address of its scheduler, the path of its scheduler file, or
    "local" or "local:N" for a cluster of this machine, in a script that guards its main program
    (`if __name__ == "__main__"`).

    Recordings that cannot be read are listed in `failed` of the report; the other ranks are
    analyzed. Raises InputError if there are no recordings, two are of one rank, or they are of
    different jobs or profilers; TraceviewError if none can be read; ToolNotFoundError for `dask`
    without the package.
    """
    from traceview.traces.ranks.execution.reading import read_job

    paths = [recordings] if isinstance(recordings, (str, Path)) else recordings
    return read_job([str(path) for path in paths], jobs, dask)
