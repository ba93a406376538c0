"""Read a GPU trace, ask it where the time went and why, show the answers.

Every verb of the command line has its twin here. What a twin needs is imported when it is called:
`import traceview` costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from traceview.errors import TraceviewError
from traceview.version import __version__

if TYPE_CHECKING:
    from traceview.bench import BenchReport, Operation
    from traceview.headless.signatures.notation import Value
    from traceview.inspect.compare.comparison import Diff
    from traceview.inspect.target_report import PtxReport
    from traceview.recorders import Recording
    from traceview.report import Report
    from traceview.trace import Trace
    from traceview.trace.scrub.scrubber import ScrubReport

__all__ = [
    "TraceviewError",
    "__version__",
    "analyze",
    "benchmark",
    "diff_ptx",
    "inspect_ptx",
    "load",
    "record",
    "scrub",
]


def load(path: str | Path) -> Trace:
    """Read a trace: an nsys SQLite export, or a .nsys-rep, which nsys exports into a cache first.

    Either may be compressed (.gz, .xz or .zst). Raises TraceFormatError if the file is not a
    trace, TooLargeError if there is too little memory, ToolNotFoundError if nsys is needed and
    missing.
    """
    from traceview.trace import load as files

    if not files.is_report(Path(path)):
        return files.load(path)
    return replace(files.load(_exported(Path(path))), path=str(path))


def record(
    *command: str,
    out: str | Path | None = None,
    force: bool = False,
    trace: str = "cuda,nvtx,cublas",
    graph_trace: Literal["node", "graph"] = "node",
    backtrace: Literal["none", "sync", "all"] = "sync",
    gpu_metrics: bool = False,
    shapes: bool = False,
    kernels: bool = True,
    sync_sites: bool = True,
    nsys_options: Sequence[str] = (),
    keep_env: bool = False,
    keep_rep: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Run SCRIPT [ARGS...] under nsys and write the trace.

    The trace goes to `out`, or to `<script stem>.sqlite` in the current folder. `trace` to
    `nsys_options` select what is recorded: see recorders.RecordOptions. `keep_env` leaves the
    environment and home paths in the trace; `keep_rep` also keeps the .nsys-rep file. `note`
    receives each message for the user, one line per call. Raises InputError, OutputExistsError,
    ToolNotFoundError or RecordingError.
    """
    from traceview import recorders
    from traceview.errors import InputError

    if not command:
        raise InputError("nothing to record", "pass a script and its arguments")
    return recorders.record(
        command,
        None if out is None else Path(out),
        options=recorders.RecordOptions(
            trace=trace,
            graph_trace=graph_trace,
            backtrace=backtrace,
            gpu_metrics=gpu_metrics,
            shapes=shapes,
            kernels=kernels,
            sync_sites=sync_sites,
            nsys_options=nsys_options,
        ),
        force=force,
        keep_env=keep_env,
        keep_rep=keep_rep,
        note=note,
    )


def scrub(trace: str | Path, out: str | Path, *, force: bool = False) -> ScrubReport:
    """Copy a trace without environment, program output, user, host and home paths.

    Names of kernels, ranges and calls stay as they are. A .nsys-rep is exported by nsys first.
    Raises TraceFormatError if `trace` is not an nsys export, InputError if `out` cannot be written,
    OutputExistsError if it exists and not `force`.
    """
    from traceview.outputs import check_trace_output
    from traceview.trace import load as files
    from traceview.trace.scrub.scrubber import scrub as scrub_export

    # Before the export, which can take minutes.
    check_trace_output(Path(out), force=force, source=Path(trace))
    export = _exported(Path(trace)) if files.is_report(Path(trace)) else Path(trace)
    return scrub_export(export, Path(out), force=force)


def _exported(report: Path) -> Path:
    from traceview.recorders import export_report
    from traceview.trace.load import unpacked_report

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
) -> Report:
    """Put all questions to a trace, or `only` those named.

    `ranges` and `exclude_ranges` are globs over range names and paths: the answers then speak of
    the instances of those ranges alone. Work launched by a thread without ranges is in the range
    open on the main thread, or, if `strict`, in none. `peaks` are figures of the GPU that come
    before those of the trace and of data sheets, such as {"bandwidth": 4.8e12, "bf16": 989e12}
    or "bandwidth=4.8e12": see hardware.FIGURES. `ncu` is a CSV file of Nsight Compute (`ncu --csv
    --page raw`) that counts bytes and FLOP of the same program. `cubins` are files with the code
    of kernels that were recorded without it: see ptx.given_code. Raises InputError if a name or
    glob fits nothing, or if a file is none of these, and what `given_kernels` raises.
    """
    from traceview import report
    from traceview.facts.ranges import selection
    from traceview.hardware import given
    from traceview.trace import Selection

    only, ranges, exclude_ranges = (
        (names,) if isinstance(names, str) else tuple(names)
        for names in (only, ranges, exclude_ranges)
    )
    if strict:
        trace = trace.strictly()
    if peaks:
        trace = trace.with_peaks(given(peaks))
    if ncu is not None:
        from traceview.trace.ncu.counters_csv import read_counters

        trace = trace.with_counters(*read_counters(Path(ncu)))
    if cubins:
        from traceview.facts.code.user_binaries import with_code
        from traceview.inspect.targets.binaries import given_kernels

        files = (cubins,) if isinstance(cubins, (str, Path)) else cubins
        trace = with_code(trace, given_kernels(files))
    if ranges or exclude_ranges:
        trace = trace.restricted(Selection(ranges, exclude_ranges))
        selection.check(trace)
    return report.analyze(trace, only)


def inspect_ptx(
    target: str | Path,
    *,
    sm_count: int | None = None,
    constexprs: Mapping[str, Value] | None = None,
    arch: str | None = None,
    **options: Any,
) -> PtxReport:
    """Compile the kernels of a target, launch none, and say how wide their accesses are and why.

    `target` is what `traceview ptx` takes; `constexprs` maps names to values, or to texts as on the
    command line ("tl.float16"); `arch` is such as "sm_90"; `options` are those of
    ptx.target.Options: kernel, signature, num_warps …. `sm_count` is the number of SMs of the GPU,
    for the waves. Of a trace, the kernels are those that ran, the longest first, with the grids and
    SMs of the run. Raises InputError, PtxSyntaxError, TraceFormatError, MissingTableError,
    ToolNotFoundError, or TraceviewError if a compiler refuses.
    """
    from traceview.headless.signatures.notation import as_written
    from traceview.inspect.target_report import inspect_target
    from traceview.inspect.targets.target import Options
    from traceview.trace.load import is_trace

    texts = {name: as_written(name, value) for name, value in (constexprs or {}).items()}
    chosen = Options(arch=None if arch is None else str(arch), constexprs=texts, **options)
    if is_trace(Path(target)):
        from traceview.inspect.recorded_kernels import inspect_trace

        return inspect_trace(load(target), chosen, sm_count=sm_count)
    return inspect_target(str(target), chosen, sm_count=sm_count)


def diff_ptx(*targets: str | Path, **options: Any) -> Diff:
    """Inspect kernels in two to four versions and say what is equal, what differs and what comes.

    Either two targets, or one and an option with a list of values: `num_warps=[4, 8]`,
    `kernel=["a", "b"]`, `constexprs={"BLOCK": [256, 1024]}`. `options` are those of
    `inspect_ptx`. Raises InputError if that is not two to four versions, or if they have no
    kernel in common, and TraceviewError if one cannot be compiled.
    """
    from traceview.headless.signatures.notation import all_as_written
    from traceview.inspect.compare.comparison import Version, compare
    from traceview.inspect.compare.versions import plan

    options["constexprs"] = all_as_written(options.get("constexprs") or {})
    asked = plan([str(target) for target in targets], options)
    versions = []
    for each in asked.versions:
        try:
            versions.append(Version(each.label, inspect_ptx(each.target, **each.options)))
        except TraceviewError as error:
            raise TraceviewError(f"{asked.named(each)}: {error.what}", error.remedy) from error
    return compare(versions, asked.option, asked.varied)


def benchmark(
    operation: str | Path | Operation,
    *,
    path: str | Path | None = None,
    note: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> BenchReport:
    """Check and time all versions of an operation: an OPERATION.py, which is run, or an Operation.

    `options` are those of bench.Asked: sizes, dtypes, versions, trials, cold …. `path` is the file
    of an Operation, from which its kernels are compiled for their load widths. A version that is
    wrong or fails is in the report's `bad`. Raises InputError if the file is at fault, or if the
    operation has no such version, type or size.
    """
    from traceview.bench import Asked, load_operation, measure
    from traceview.bench.operation import Operation as Loaded

    if not isinstance(operation, Loaded):
        path, operation = operation, load_operation(operation)
    return measure(operation, Asked(**options), path=str(path) if path else None, note=note)
