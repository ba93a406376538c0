"""`traceview report`: run all analyses on a trace and show their results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

import traceview
from traceview.api import traces
from traceview.api.traces import AnalysisOptions
from traceview.base import memory
from traceview.base.errors import suggestion
from traceview.base.outputs import unpacked_name
from traceview.cli import color_option, options, report_outputs
from traceview.cli.options import Verb, complete_analyses, option
from traceview.cli.output import Asked, Outputs, documents, print_text, progress
from traceview.cli.report_outputs import RanksRequest, ScreenOptions

if TYPE_CHECKING:
    from traceview.traces.ranks.job import JobReport
    from traceview.traces.reporting import Report
    from traceview.traces.trace import Trace

_SWITCH_S = 0.0001
"""Interpreter switch interval, a fiftieth of the default: a thread back from C code waits less."""
_ALL, _SCREEN = AnalysisOptions(), Outputs()


def _names(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the values of --only, each a comma-separated list; checked unless a table."""
    names = tuple(name for value in values for name in value.split(",") if name)
    if names:
        from traceview.traces.ranks.tables import TABLES

        _check_analyses([name for name in names if name not in {spec.name for spec in TABLES}])
    return names


def _check_analyses(names: Sequence[str]) -> None:
    if names:
        from traceview.traces.analyses import ALL

        for name in names:
            _known(name, [analysis.name for analysis in ALL])


def _topic(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    if name is None:
        return None
    from traceview.traces.explanation import explanations

    return _known(name, [explanation.name for explanation in explanations()])


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise click.BadParameter(f"no analysis is named {name!r}; {suggestion(name, names)}")
    return name


@click.command(
    cls=Verb,
    sections={
        "Terminal": ("--all", "--only", "--explain", "--full-names", "--no-pager", "--color"),
        "Output": (
            "-o",
            "--html",
            "--open",
            "--json",
            "--markdown",
            "--csv",
            "--all-rows",
            "--force",
        ),
        "Several ranks": ("--rank", "--ranks", "--jobs", "--dask"),
        "Selection": ("--range", "--exclude-range", "--strict"),
        "Additional input": ("--peak", "--ncu", "--cubin"),
    },
    examples=(
        "traceview report train.sqlite --html",
        "traceview report train.sqlite --only gpu-idle,steps --range 'epoch_1/*'",
        "traceview report ranks/ --html",
    ),
)
@click.argument("traces", nargs=-1, metavar="TRACE...", type=click.Path(path_type=Path))
@documents(". Default path: <trace>.html")
@option(
    "--csv DIR", "Write every table as a CSV file into a folder.", type=click.Path(path_type=Path)
)
@option("--all", "Print every table, not just one screen.", "shows_all")
@option(
    "--only NAME[,NAME]",
    "Run only these analyses, such as gpu-idle, and print their tables; for several ranks, "
    "print only these tables, such as stragglers (repeatable).",
    multiple=True,
    callback=_names,
    shell_complete=complete_analyses,
)
@option(
    "--explain NAME",
    "Print what an analysis answers, what its columns mean and how it computes them.",
    callback=_topic,
    shell_complete=complete_analyses,
)
@option("--full-names", "Print full kernel names in tables.")
@option("--no-pager", "Print --all and --only without a pager.")
@color_option
@option(
    "--rank N",
    "Report on this rank of the job alone, as on a single recording.",
    type=click.IntRange(min=0),
)
@option("--ranks", "Compare the processes and GPUs of one recording.")
@option(
    "--jobs N",
    "Read N recordings at a time, each in its own process. Default: one per core, fewer if "
    "memory is short.",
    type=click.IntRange(min=1),
)
@option(
    "--dask SCHEDULER",
    "Read the recordings on a Dask cluster, whose workers must see the same paths. SCHEDULER "
    "is its address or scheduler file, or local[:N] for N workers on this machine.",
)
@options.selection(
    "Analyze only the ranges that match by name or path; 'PATH (N)' is the N-th instance",
    "Leave out the ranges that match by name or path, such as warm-up steps",
)
@options.peak(
    "Override a property of the GPU, such as bandwidth=4.8e12, bf16=989e12, link=64e9, "
    "sms=132 or capability=9.0, in bytes/s and FLOP/s"
)
@option(
    "--ncu FILE",
    "Read Nsight Compute counters of the same program, for roofline, from a .ncu-rep or the "
    "CSV of ncu --csv --page raw.",
    type=click.Path(path_type=Path),
)
@option(
    "--cubin FILE",
    "Read kernel code that the trace lacks, for load-widths, from a .cubin, a .ptx, or a "
    "binary built by nvcc such as an extension module (.so) (repeatable).",
    "cubins",
    multiple=True,
    type=click.Path(path_type=Path),
)
@option(
    "--all-rows",
    "Write all rows of all tables. Default: the first 10,000 per table to JSON, 400 to HTML.",
)
def command(
    traces: tuple[Path, ...],
    asked: Asked,
    csv: Path | None,
    shows_all: bool,
    only: tuple[str, ...],
    explain: str | None,
    full_names: bool,
    no_pager: bool,
    rank: int | None,
    ranks: bool,
    jobs: int | None,
    dask: str | None,
    ranges: tuple[str, ...],
    exclude_ranges: tuple[str, ...],
    strict: bool,
    peaks: tuple[str, ...],
    ncu: Path | None,
    cubins: tuple[Path, ...],
    all_rows: bool,
) -> None:
    """Show where the GPU time of TRACE went and what to fix first.

    TRACE is an nsys SQLite export, a .nsys-rep, which nsys exports first, or a .json of
    torch.profiler; each may be compressed (.gz, .xz, .zst). Prints one screen: the verdict, a
    scoreboard and what to do first.

    Several recordings, or a folder or glob of them, are the ranks of one job: the report compares
    them and shows who waits for whom, and why.
    """
    shown = ScreenOptions(shows_all or bool(only), full_names, pager=not no_pager)
    if explain is not None:
        from traceview.render.explanation import render_explanation
        from traceview.traces.explanation import explained

        explanation = explained(explain)
        print_text(
            lambda width, color: render_explanation(explanation, width=width, color=color),
            pager=shown.pager,
        )
        return
    if not traces:
        raise asked.no_input("TRACE", "Put TRACE first: traceview report {path} {option}")
    request = RanksRequest(traces, ranks, rank, jobs, dask)
    trace = request.recording()
    if trace or rank is not None:
        click.get_current_context().with_resource(memory.paused())
    stem = Path(unpacked_name(trace)).stem if trace else request.stem
    sources = (trace,) if trace else traces
    outputs = asked.outputs(stem, sources, csv=csv, all_rows=all_rows)
    report_outputs.check_folder(outputs.csv, force=asked.force)
    options = AnalysisOptions(only, ranges, exclude_ranges, strict, peaks, ncu, cubins)
    if trace is None and rank is None:
        of_one_recording = {
            "--range": ranges,
            "--exclude-range": exclude_ranges,
            "--strict": strict,
            "--peak": peaks,
            "--ncu": ncu,
            "--cubin": cubins,
            "--full-names": full_names,
        }
        request.check_job(of_one_recording)
        report_outputs.check_tables(only, outputs)
        report_outputs.put_job(_compared(request), outputs, shown, only)
    else:
        if trace:
            request.check_one()
        _check_analyses(only)
        load = partial(traceview.load, trace) if trace else request.load_rank
        tables = bool(outputs.files or outputs.stdout or outputs.csv) or shown.tables
        report_outputs.put_report(_analyzed(load, options, tables, outputs), outputs, shown)


def _compared(request: RanksRequest) -> JobReport:
    with progress("Reading the ranks"):
        return traceview.analyze_ranks(request.patterns, jobs=request.jobs, dask=request.dask)


def print_summary(path: Path) -> None:
    """Print the screen of a trace. Raises TraceviewError if it cannot be read."""
    report_outputs.print_report(_analyzed(partial(traceview.load, path)), ScreenOptions())


def print_job_summary(paths: Sequence[Path]) -> None:
    """Print the screen of the ranks of a job. Raises TraceviewError if none can be read."""
    request = RanksRequest(tuple(paths))
    report_outputs.put_job(_compared(request), _SCREEN, ScreenOptions(), ())


def _import_ahead(outputs: Outputs) -> None:
    """Import the modules that analyze a trace and write the outputs, ahead of their use."""
    # An import that fails or is interrupted is reported where the module is used.
    with suppress(Exception):
        import_module("traceview.traces.reporting")
        if not outputs.stdout:
            import_module("traceview.render.screen")
        if outputs.json or outputs.stdout == "json":
            import_module("traceview.render.report.json")
        if outputs.html:
            import_module("traceview.render.report.html").prepare()


def _draw_ahead(trace: Trace) -> None:
    """Draw the page's timeline, which needs no findings, while the analyses run."""
    from traceview.render.timeline import timeline_view

    # A failure is reported when the page is rendered.
    with suppress(Exception):
        timeline_view(trace)


def _analyzed(
    load: Callable[[], Trace],
    options: AnalysisOptions = _ALL,
    tables: bool = False,
    outputs: Outputs = _SCREEN,
) -> Report:
    """Load a trace and analyze it, while another thread imports what renders the report."""

    memory.prepare()
    sys.setswitchinterval(_SWITCH_S)
    # Before the thread starts: two threads that import would take turns, and reading would wait.
    import_module("traceview.traces.trace.load")
    # Reading is mostly C code without the GIL, so these imports run in parallel.
    Thread(target=_import_ahead, args=(outputs,)).start()
    with progress("Reading the trace") as next_step:
        trace = load()
        next_step("Analyzing")
        beside = _draw_ahead if outputs.html else None
        return traces.analyzed(trace, options, tables=tables, beside=beside)
