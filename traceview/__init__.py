"""Where the time of a GPU trace went and why, and how to get it back.

Every command of the command line has a function of the same name here. The public types can be
imported from here, too:

    Trace       a recording in memory: typed tables, nothing computed
    Report      the outcome of every analysis of a trace, and all findings, worst first
    JobReport   the answer for a job of many ranks: each rank, who waits for whom, and why
    Result      the answer of one analysis: tables, findings, summary figures, charts
    Skipped     why an analysis could not answer, and how to record what it needs
    RunComparison  what changed between two sides of recordings
    Finding     what is wrong, what shows it, what to do, and how much time that can save
    Table       rows with declared columns; `to_pandas()` makes a frame of them
    Selection   which range instances a report is restricted to
    Operation   a GPU operation as data, for `benchmark`

Functions and types import what they need when they are used: `import traceview` alone loads
neither numpy nor anything larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from traceview.errors import TraceviewError
from traceview.version import __version__

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from traceview.analyses.base import Result, Skipped
    from traceview.bench import BenchReport
    from traceview.bench.history.difference import BenchDifference
    from traceview.bench.operation import Operation
    from traceview.comparison.comparison import RunComparison
    from traceview.comparison.gate import GateReport
    from traceview.comparison.inputs import Input
    from traceview.findings import Finding
    from traceview.headless.compile_options import CompileOptions
    from traceview.headless.signatures.notation import Value
    from traceview.inspect.compare.comparison import Diff
    from traceview.inspect.target_report import PtxReport
    from traceview.ranks.job import JobReport
    from traceview.recorders import Recording
    from traceview.recorders.options import Backend
    from traceview.report import Report
    from traceview.tables import Table
    from traceview.trace import Selection, Trace
    from traceview.trace.scrub.scrubber import ScrubReport

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
    "inspect_ptx",
    "load",
    "record",
    "recording",
    "scrub",
]
_TYPES = {
    "Finding": "traceview.findings",
    "JobReport": "traceview.ranks.job",
    "Operation": "traceview.bench.operation",
    "Report": "traceview.report",
    "Result": "traceview.analyses.base",
    "RunComparison": "traceview.comparison.comparison",
    "Selection": "traceview.trace",
    "Skipped": "traceview.analyses.base",
    "Table": "traceview.tables",
    "Trace": "traceview.trace",
}


PERFETTO_SUFFIXES = (".pftrace", ".perfetto-trace")
WRITTEN = (".sqlite", *PERFETTO_SUFFIXES, *(f"{each}.gz" for each in PERFETTO_SUFFIXES))
"""What the name of a file ends in that `convert` writes."""

if not TYPE_CHECKING:  # A type checker sees the imports above, and no others.

    def __getattr__(name: str) -> Any:
        """Import a public type when it is first used."""
        if name not in _TYPES:
            raise AttributeError(f"module 'traceview' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_TYPES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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


def record(
    *command: str,
    out: str | Path | None = None,
    backend: Backend = "auto",
    steps: tuple[int, int] | None = None,
    range_name: str | None = None,
    force: bool = False,
    trace: str = "cuda,nvtx,cublas",
    graph_trace: Literal["node", "graph"] = "node",
    backtrace: Literal["none", "sync", "all"] = "sync",
    gpu_metrics: bool = False,
    shapes: bool = False,
    kernels: bool = True,
    sync_sites: bool = True,
    python_samples: bool = False,
    native_samples: bool | None = None,
    source_lines: bool = True,
    annotate: Literal["auto", "modules", "off"] = "off",
    nsys_options: Sequence[str] = (),
    keep_env: bool = False,
    keep_rep: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Run SCRIPT [ARGS...] under a profiler and write the trace.

    The trace goes to `out`, or to `<script stem>.sqlite` in the current folder. `backend` is nsys,
    torch (torch.profiler inside the program), or auto: nsys where it works. `steps` keeps the steps
    from the first to before the second, `range_name` the first NVTX range of that name. `trace` to
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
        backend=backend,
        options=recorders.RecordOptions(
            steps=steps,
            range_name=range_name,
            trace=trace,
            graph_trace=graph_trace,
            backtrace=backtrace,
            gpu_metrics=gpu_metrics,
            shapes=shapes,
            kernels=kernels,
            sync_sites=sync_sites,
            python_samples=python_samples,
            native_samples=native_samples,
            source_lines=source_lines,
            annotate=annotate,
            nsys_options=nsys_options,
        ),
        force=force,
        keep_env=keep_env,
        keep_rep=keep_rep,
        note=note,
    )


def recording(
    out: str | Path,
    *,
    force: bool = False,
    shapes: bool = False,
    sync_sites: bool = True,
    python_samples: bool = False,
    source_lines: bool = True,
    annotate: Literal["auto", "modules", "off"] = "off",
    keep_env: bool = False,
) -> AbstractContextManager[Path]:
    """Record a block of this program with torch.profiler: `with recording("out.sqlite"):`.

    The trace is written when the block ends, also if it raises, and `load` reads it. The options
    are those of `record`. One block is recorded at a time; a profiler that the block itself starts
    ends the recording there, with a warning. Raises InputError or OutputExistsError if `out` cannot
    be written, ToolNotFoundError without torch, and RecordingError if a profiler is running.
    """
    from traceview.recorders.block import BlockOptions, record_block

    options = BlockOptions(shapes, sync_sites, python_samples, source_lines, annotate, keep_env)
    return record_block(Path(out), options, force=force)


def scrub(trace: str | Path, out: str | Path, *, force: bool = False) -> ScrubReport:
    """Copy a trace without environment, output, source lines, user, host and home paths.

    Names of kernels, ranges and calls stay as they are. A .nsys-rep is exported by nsys first, a
    trace of torch.profiler converted. Raises TraceFormatError if `trace` is no trace, InputError if
    `out` cannot be written, OutputExistsError if it exists and not `force`.
    """
    from traceview.outputs import check_trace_output
    from traceview.trace import load as files
    from traceview.trace.scrub.scrubber import scrub as scrub_export

    # Before the export, which can take minutes.
    check_trace_output(Path(out), force=force, source=Path(trace))
    export = _exported(Path(trace)) if files.is_report(Path(trace)) else Path(trace)
    return scrub_export(export, Path(out), force=force)


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
    from traceview.timeline.perfetto.export import perfetto_pieces
    from traceview.timeline.timeline import timeline

    target = Path(perfetto)
    source = Path(trace) if isinstance(trace, (str, Path)) else Path(trace.path)
    check_report_output(target, force=force, source=source, source_kind="trace")
    loaded = with_steps(load(trace) if isinstance(trace, (str, Path)) else trace)
    write_pieces(target, perfetto_pieces(loaded, timeline(loaded)))
    return target


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
    if unpacked_name(target).endswith(PERFETTO_SUFFIXES) and target.suffix not in (".xz", ".zst"):
        return export(trace, perfetto=target, force=force)
    if not unpacked_name(target).endswith(".sqlite"):
        raise InputError(
            f"{target} ends in no format that is written", f"end it in {', '.join(WRITTEN)}"
        )
    source = Path(trace) if isinstance(trace, (str, Path)) else Path(trace.path)
    check_trace_output(target, force=force, source=source)
    loaded = load(trace) if isinstance(trace, (str, Path)) else trace
    with replacing(target) as part:
        write_trace(loaded, part)
    return target


def baseline(*traces: Trace | str | Path, out: str | Path, force: bool = False) -> Path:
    """Write the figures of recordings, each one run of a program, to one small JSON file.

    `traces` are what `load` takes or returns, or baselines, whose runs are added. `gate` reads the
    file in place of the recordings. Returns its path. Raises InputError for a recording without GPU
    work or if the file cannot be written, OutputExistsError if it exists and not `force`, and
    otherwise as `load` does.
    """
    from traceview.comparison.baseline import baseline_text, is_baseline
    from traceview.comparison.inputs import side
    from traceview.errors import InputError
    from traceview.outputs import check_report_output, write_pieces

    if not traces:
        raise InputError("no recordings for the baseline", "pass one or more")
    target = Path(out)
    sources = [Path(each) if isinstance(each, (str, Path)) else Path(each.path) for each in traces]
    for source in sources:
        # A baseline may take the place of one that it holds.
        given = Path() if force and is_baseline(source) else source
        check_report_output(target, force=force, source=given, source_kind="trace")
    runs = [run.figures for run in side(list(traces), load)]
    write_pieces(target, [baseline_text(runs, __version__).encode()])
    return target


def gate(
    baselines: Trace | str | Path | Sequence[Trace | str | Path],
    candidates: Trace | str | Path | Sequence[Trace | str | Path],
    config: str | Path,
    *,
    force: bool = False,
) -> GateReport:
    """Judge runs by the rules of a config, against the runs of a baseline.

    Both sides are what `load` takes or returns, or files of `baseline`; `config` is a gate.toml.
    The report's `outcome` is "passed", "regressed" or "undecided", its `decisions` one per rule
    and condition. Raises InputError for a config that is not in the grammar, TraceFormatError for a
    damaged baseline, ComparisonRefusedError where comparing makes no sense, unless `force`, and
    otherwise as `load` does.
    """
    from traceview.comparison.gate import decide, read_config
    from traceview.comparison.inputs import side

    rules = read_config(Path(config))
    before, after = (
        [run.figures for run in side(given, load, force=force)] for given in (baselines, candidates)
    )
    return decide(before, after, rules, force=force)


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
            FLOP/s; `traceview.hardware.overrides.FIGURES` lists the names.
        ncu: a report of Nsight Compute (.ncu-rep), or its CSV (`ncu --csv --page raw`), with the
            bytes and FLOP that the same program's kernels moved and did, for "roofline".
        cubins: files with the code of kernels that were recorded without it: .cubin, .ptx, or
            what nvcc built, for "load-widths".
        tables: compute the tables of all answers now, on two threads. Otherwise those of an answer
            are computed when they are first read, for programs that read the findings.

    Raises InputError if `trace` is none, a name or glob matches nothing or a file is none of these,
    PtxSyntaxError if a .ptx file is damaged, and ToolNotFoundError if reading a cubin needs a
    tool that is missing.
    """
    from traceview import report
    from traceview.errors import InputError
    from traceview.facts.ranges import selection
    from traceview.facts.steps.inferred import with_steps
    from traceview.hardware import given
    from traceview.trace import Selection, Trace

    if not isinstance(trace, Trace):
        raise InputError(f"{trace!r} is not a Trace", "pass what traceview.load(path) returns")
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
        from traceview.trace.ncu.report_file import is_report, read_report

        read = read_report if is_report(Path(ncu)) else read_counters
        trace = trace.with_counters(*read(Path(ncu)))
    if cubins:
        from traceview.facts.code.user_binaries import with_code
        from traceview.inspect.targets.binaries import binary_kernels

        files = (cubins,) if isinstance(cubins, (str, Path)) else cubins
        trace = with_code(trace, binary_kernels(files))
    trace = with_steps(trace)
    if ranges or exclude_ranges:
        trace = trace.restricted(Selection(ranges, exclude_ranges))
        selection.check(trace)
    return report.analyze(trace, only, tables=tables)


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

    What cannot be read is in `failed` of the report, and the other ranks answer. Raises InputError
    if there are no recordings, two are of one rank, or they are of different jobs or profilers;
    TraceviewError if none can be read; ToolNotFoundError for `dask` without the package.
    """
    from traceview.ranks.execution.reading import read_job

    given = [recordings] if isinstance(recordings, (str, Path)) else recordings
    return read_job([str(each) for each in given], jobs, dask)


def inspect_ptx(
    target: str | Path,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    signature: str | None = None,
    constexprs: Mapping[str, Value] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    first_config: bool = False,
    all_configs: bool = False,
    guess: bool = False,
    emulate: bool = False,
    compile_torch: bool = False,
    timeout_s: float | None = None,
    budget_s: float | None = None,
    arguments: str | Sequence[str] = (),
    sm_count: int | None = None,
    what_if: bool = False,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> PtxReport:
    """Compile the kernels of a target without launching any, and report on their memory accesses.

    `target` is what `traceview ptx` takes. `kernel` selects one kernel by name. `arch` is such as
    "sm_90". `signature` declares argument types in Triton's notation ("*fp32:16, i32"), and
    `constexprs` maps names to values, or to text as on the command line ("tl.float16").
    `constexprs`, `num_warps` and `num_stages` also replace what a script passes.

    A script gets `arguments` and is interrupted after `timeout_s`. After `budget_s` (20) no guess
    of arguments, recompilation or comparison of results is begun, and a note says what was left
    out; after half of it a script that has compiled a kernel is interrupted. Of an autotuned kernel
    up to four configurations are compiled, one with `first_config`, all with `all_configs`. `guess`
    goes on with guessed arguments where a script fails before it launches a kernel. `emulate` runs
    kernels in Triton's interpreter so that tensors get their values, and `compile_torch`
    (experimental) compiles what torch.compile generates. `sm_count` is the number of SMs of the
    GPU, for the waves. With `what_if` the kernels of a Python target are also compiled with other
    warps, stages and tiles, to compare occupancy. `note` gets a line at a time for the user, `step`
    names what is done next.

    For a trace, the kernels are those that ran, longest first, with the grids and SMs of the run.
    Raises InputError, PtxSyntaxError, TraceFormatError, MissingTableError, ToolNotFoundError, or
    TraceviewError if a compiler fails.
    """
    from traceview.headless.compile_options import CompileOptions
    from traceview.headless.signatures.notation import as_written

    options = CompileOptions(
        kernel=kernel,
        arch=None if arch is None else str(arch),
        signature=signature,
        constexprs={name: as_written(name, value) for name, value in (constexprs or {}).items()},
        num_warps=num_warps,
        num_stages=num_stages,
        first_config=first_config,
        all_configs=all_configs,
        guess=guess,
        emulate=emulate,
        compile_torch=compile_torch,
        timeout_s=timeout_s,
        budget_s=budget_s,
        arguments=(arguments,) if isinstance(arguments, str) else tuple(arguments),
    )
    return _inspect(target, options, sm_count, note, step, what_if=what_if)


def _inspect(
    target: str | Path,
    options: CompileOptions,
    sm_count: int | None,
    note: Callable[[str], None],
    step: Callable[[str], None],
    *,
    what_if: bool = False,
) -> PtxReport:
    from traceview.inspect.target_report import inspect_target
    from traceview.trace.load import is_trace

    if is_trace(Path(target)):
        from traceview.inspect.recorded_kernels import inspect_trace

        return inspect_trace(load(target), options, sm_count=sm_count, note=note)
    return inspect_target(
        str(target), options, sm_count=sm_count, neighbours=what_if, note=note, step=step
    )


def diff_ptx(
    *targets: str | Path,
    kernel: str | Sequence[str] | None = None,
    arch: str | Sequence[str] | None = None,
    signature: str | Sequence[str] | None = None,
    constexprs: Mapping[str, Value | Sequence[Value]] | None = None,
    num_warps: int | Sequence[int] | None = None,
    num_stages: int | Sequence[int] | None = None,
    first_config: bool = False,
    all_configs: bool = False,
    guess: bool = False,
    emulate: bool = False,
    compile_torch: bool = False,
    timeout_s: float | None = None,
    budget_s: float | None = None,
    arguments: str | Sequence[str] = (),
    sm_count: int | None = None,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> Diff:
    """Compare kernels in two to four versions: their accesses, registers and instructions.

    Pass either two targets, or one target and a list of values for one option: `num_warps=[4, 8]`,
    `kernel=["a", "b"]`, `constexprs={"BLOCK": [256, 1024]}`. The options are those of
    `inspect_ptx`. Raises InputError unless that makes two to four versions with a kernel in
    common, and TraceviewError if one cannot be compiled.
    """
    from traceview.headless.compile_options import CompileOptions
    from traceview.headless.signatures.notation import all_as_written
    from traceview.inspect.compare.comparison import ComparedVersion, compare
    from traceview.inspect.compare.versions import plan

    options = {
        "kernel": kernel,
        "arch": arch,
        "signature": signature,
        "constexprs": all_as_written(constexprs or {}),
        "num_warps": num_warps,
        "num_stages": num_stages,
        "first_config": first_config,
        "all_configs": all_configs,
        "guess": guess,
        "emulate": emulate,
        "compile_torch": compile_torch,
        "timeout_s": timeout_s,
        "budget_s": budget_s,
        "arguments": arguments,
    }
    planned = plan([str(target) for target in targets], options)
    versions = []
    for each in planned.versions:
        try:
            report = _inspect(each.target, CompileOptions(**each.options), sm_count, note, step)
        except TraceviewError as error:
            raise TraceviewError(f"{planned.named(each)}: {error.what}", error.remedy) from error
        versions.append(ComparedVersion(each.label, report))
    return compare(versions, planned.option, planned.varied)


def compare(
    before: Input | Sequence[Input], after: Input | Sequence[Input], *, force: bool = False
) -> RunComparison:
    """Compare recordings of two versions of a program: how much faster a step is, and why.

    Each side is a trace, the path of one, a folder of recordings, or a list of these: with several
    recordings per side the difference is told from noise. Raises ComparisonRefusedError where the
    comparison makes no sense (another GPU, the same capture twice), unless `force`, and what `load`
    raises.
    """
    from traceview.comparison.decomposition import compare_runs
    from traceview.comparison.inputs import median_recording, side

    old, new = (side(each, load, force=force) for each in (before, after))
    compared = compare_runs([run.figures for run in old], [run.figures for run in new], force=force)
    return replace(compared, recordings=(median_recording(old), median_recording(new)))


def benchmark(
    operation: str | Path | Operation,
    *,
    sizes: int | Sequence[int] = (),
    dtypes: str | Sequence[str] = (),
    versions: str | Sequence[str] = (),
    sweep: str | None = None,
    warmup: int = 3,
    trials: int = 30,
    cold: bool = True,
    widths: bool = True,
    arch: str | None = None,
    peaks: str | Mapping[str, float] | Sequence[str] = (),
    path: str | Path | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> BenchReport:
    """Check every version of an operation against its reference, and time those that are right.

    `operation` is an Operation, or a file that defines OPERATION, which is run. By default its own
    sizes, its first data type and all versions are measured. `sweep`, such as "batch=1,2,4", varies
    the size or a parameter and fits the growth of time. Each version is called `warmup` times
    before `trials` measurements; `cold` empties the L2 cache before each. `widths` compiles the
    kernels for `arch` (by default that of this GPU) to read their load widths; for an Operation
    that needs `path`, its file. `peaks` override peak rates, such as "bandwidth=4.8e12". `note`
    receives progress messages. Versions that are wrong or fail are in the report's `bad`. Raises
    InputError if the file is at fault, or if the operation has no such version, data type, size or
    parameter.
    """
    from traceview.bench import BenchRequest, load_operation, measure
    from traceview.bench.operation import Operation as LoadedOperation

    if not isinstance(operation, LoadedOperation):
        path, operation = operation, load_operation(operation)
    request = BenchRequest(
        sizes=(sizes,) if isinstance(sizes, int) else sizes,
        dtypes=(dtypes,) if isinstance(dtypes, str) else dtypes,
        versions=(versions,) if isinstance(versions, str) else versions,
        warmup=warmup,
        trials=trials,
        cold=cold,
        widths=widths,
        arch=arch,
        peaks=peaks,
        sweep=sweep,
    )
    return measure(operation, request, path=str(path) if path else None, note=note)


def compare_benchmarks(
    before: str | Path | BenchReport | Sequence[str | Path | BenchReport],
    after: str | Path | BenchReport | Sequence[str | Path | BenchReport],
    *,
    force: bool = False,
) -> BenchDifference:
    """Compare runs of `benchmark`, or files that `traceview bench --json` wrote, per version.

    Runs of one operation differ more than trials of one run do: differences are certain from four
    runs per side on, each of a process of its own. Raises ComparisonRefusedError for another
    operation, or another GPU unless `force`, and InputError for other files.
    """
    from traceview.bench.history.difference import bench_difference
    from traceview.bench.history.saved import benches_of

    return bench_difference(benches_of(before), benches_of(after), force)
