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
from traceview import memory
from traceview.cli import color_option, debug_option, options
from traceview.cli.options import AnalysisOptions, Verb, complete_analyses, complete_ranges
from traceview.cli.output import (
    STDOUT,
    document_option,
    json_option,
    markdown_option,
    open_in_browser,
    open_option,
    print_text,
    progress,
)
from traceview.cli.ranks import RanksRequest, check_tables, put_job
from traceview.cli.report_outputs import ReportOutputs, ScreenOptions, print_report, put_report
from traceview.errors import suggestion
from traceview.outputs import unpacked_name

if TYPE_CHECKING:
    from traceview.ranks.job import JobReport
    from traceview.report import Report
    from traceview.trace import Trace

_DEFAULT_PATH = ""
_SWITCH_S = 0.0001
"""Interpreter switch interval, a fiftieth of the default: a thread back from C code waits less."""
_ALL = AnalysisOptions()
_SCREEN = ReportOutputs()


def _names(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the values of --only, each a comma-separated list; checked unless a table."""
    if not values:
        return ()
    from traceview.analyses import ALL
    from traceview.ranks.tables import TABLES

    names = tuple(name for value in values for name in value.split(",") if name)
    tables = {spec.name for spec in TABLES}
    analyses = [each.name for each in ALL]
    return tuple(name if name in tables else _known(name, analyses) for name in names)


def _topic(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    if name is None:
        return None
    from traceview.explanation import explanations

    return _known(name, [each.name for each in explanations()])


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
@click.option(
    "--html",
    is_flag=False,
    flag_value=_DEFAULT_PATH,
    metavar="[PATH]",
    help="Write a self-contained HTML page. Default path: <trace>.html in the current folder.",
)
@document_option
@open_option
@json_option
@markdown_option
@click.option(
    "--csv",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write every table as a CSV file into a folder.",
)
@click.option("--all", "shows_all", is_flag=True, help="Print every table, not just one screen.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME[,NAME]",
    callback=_names,
    shell_complete=complete_analyses,
    help="Run only these analyses, such as gpu-idle, and print their tables; for several ranks, "
    "print only these tables, such as stragglers (repeatable).",
)
@click.option(
    "--explain",
    metavar="NAME",
    callback=_topic,
    shell_complete=complete_analyses,
    help="Print what an analysis answers, what its columns mean and how it computes them.",
)
@click.option("--full-names", is_flag=True, help="Print full kernel names in tables.")
@click.option("--no-pager", is_flag=True, help="Print --all and --only without a pager.")
@color_option
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Report on this rank of the job alone, as on a single recording.",
)
@click.option("--ranks", is_flag=True, help="Compare the processes and GPUs of one recording.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read N recordings at a time, each in its own process. Default: one per core, fewer if "
    "memory is short.",
)
@click.option(
    "--dask",
    metavar="SCHEDULER",
    help="Read the recordings on a Dask cluster, whose workers must see the same paths. SCHEDULER "
    "is its address or scheduler file, or local[:N] for N workers on this machine.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="GLOB",
    shell_complete=complete_ranges,
    help="Analyze only the ranges that match by name or path; 'PATH (N)' is the N-th instance "
    "(repeatable).",
)
@click.option(
    "--exclude-range",
    "exclude_ranges",
    multiple=True,
    metavar="GLOB",
    shell_complete=complete_ranges,
    help="Leave out the ranges that match by name or path, such as warm-up steps (repeatable).",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Do not assign work from threads without ranges, such as autograd's, to a range of "
    "the main thread.",
)
@click.option(
    "--peak",
    "peaks",
    multiple=True,
    callback=options.peaks,
    metavar="NAME=VALUE",
    help="Override a property of the GPU, such as bandwidth=4.8e12, bf16=989e12, link=64e9, "
    "sms=132 or capability=9.0, in bytes/s and FLOP/s (repeatable).",
)
@click.option(
    "--ncu",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read Nsight Compute counters of the same program, for roofline, from a .ncu-rep or the "
    "CSV of ncu --csv --page raw.",
)
@click.option(
    "--cubin",
    "cubins",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read kernel code that the trace lacks, for load-widths, from a .cubin, a .ptx, or a "
    "binary built by nvcc such as an extension module (.so) (repeatable).",
)
@click.option(
    "--all-rows",
    is_flag=True,
    help="Write all rows of all tables. Default: the first 10,000 per table to JSON, 1,000 to "
    "HTML.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@debug_option
def command(
    traces: tuple[Path, ...],
    html: str | None,
    output: Path | None,
    opens: bool,
    json_: str | None,
    markdown: str | None,
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
    force: bool,
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
        _explain(explain, shown)
        return
    if not traces:
        raise click.UsageError(_no_trace(html, json_, markdown), click.get_current_context())
    if opens and html is None and not (output and output.suffix.startswith(".htm")):
        html = _DEFAULT_PATH
    request = RanksRequest(traces, ranks, rank, jobs, dask)
    trace = request.recording()
    if trace or rank is not None:
        click.get_current_context().with_resource(memory.paused())
    stem = _stem(trace) if trace else request.stem
    outputs = ReportOutputs.of(stem, output, html, json_, markdown, csv, all_rows)
    for source in (trace,) if trace else traces:
        outputs.check(source, force=force)
    options = AnalysisOptions(only, ranges, exclude_ranges, strict, peaks, ncu, cubins)
    if trace is None and rank is None:
        request.check_job({**options.of_one_recording, "--full-names": full_names})
        check_tables(only, outputs)
        put_job(_compared(request), outputs, shown, only)
    else:
        if trace:
            request.check_one()
        _check_analyses(only)
        load = partial(traceview.load, trace) if trace else request.load_rank
        tables = outputs.has_tables or shown.tables
        put_report(_analyzed(load, options, tables, outputs), outputs, shown)
    if opens and outputs.html:
        open_in_browser(outputs.html)


def _check_analyses(only: Sequence[str]) -> None:
    if only:
        from traceview.analyses import ALL

        for name in only:
            _known(name, [each.name for each in ALL])


def _compared(request: RanksRequest) -> JobReport:
    with progress("Reading the ranks"):
        return traceview.analyze_ranks(request.patterns, jobs=request.jobs, dask=request.dask)


def _explain(name: str, shown: ScreenOptions) -> None:
    from traceview.explanation import explained
    from traceview.render.terminal.explanation import render_explanation

    explanation = explained(name)
    print_text(
        lambda width, color: render_explanation(explanation, width=width, color=color),
        pager=shown.pager,
    )


def print_summary(path: Path) -> None:
    """Print the screen of a trace. Raises TraceviewError if it cannot be read."""
    print_report(_analyzed(partial(traceview.load, path)), ScreenOptions())


def print_job_summary(paths: Sequence[Path]) -> None:
    """Print the screen of the ranks of a job. Raises TraceviewError if none can be read."""
    request = RanksRequest(tuple(paths))
    put_job(_compared(request), ReportOutputs(), ScreenOptions(), ())


def _no_trace(html: str | None, json_: str | None, markdown: str | None) -> str:
    for option, value in (("--html", html), ("--json", json_), ("--markdown", markdown)):
        if value and value != STDOUT:
            return (
                f"{option} took {value!r} as its output file, so TRACE is missing. "
                f"Put TRACE first: traceview report {value} {option}"
            )
    return "Missing argument 'TRACE'."


def _stem(trace: Path) -> str:
    return Path(unpacked_name(trace)).stem


def _import_ahead(outputs: ReportOutputs) -> None:
    # An import that fails or is interrupted is reported where the module is used.
    with suppress(Exception):
        import_module("traceview.report")
        outputs.prepare()


def _draw_ahead(trace: Trace) -> None:
    """Draw the page's timeline, which needs no findings, while the analyses run."""
    from traceview.render.timeline.document import timeline_view

    # A failure is reported when the page is rendered.
    with suppress(Exception):
        timeline_view(trace)


def _analyzed(
    load: Callable[[], Trace],
    options: AnalysisOptions = _ALL,
    tables: bool = False,
    outputs: ReportOutputs = _SCREEN,
) -> Report:
    """Load a trace and analyze it, while another thread imports what renders the report."""
    from traceview.api import reports
    from traceview.memory import import_numpy, keep_freed_memory

    import_numpy()
    keep_freed_memory()
    sys.setswitchinterval(_SWITCH_S)
    # Before the thread starts: two threads that import would take turns, and reading would wait.
    import_module("traceview.trace.load")
    # Reading is mostly C code without the GIL, so these imports run in parallel.
    Thread(target=_import_ahead, args=(outputs,)).start()
    with progress("Reading the trace") as next_step:
        trace = load()
        next_step("Analyzing")
        return reports.analyzed(
            trace,
            options.only,
            ranges=options.ranges,
            exclude_ranges=options.exclude_ranges,
            strict=options.strict,
            peaks=options.peaks,
            ncu=options.ncu,
            cubins=options.cubins,
            tables=tables,
            beside=_draw_ahead if outputs.html else None,
        )
