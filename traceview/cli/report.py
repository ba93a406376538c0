"""`traceview report`: run all analyses on a trace and show their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli import color_option, debug_option
from traceview.cli.options import values
from traceview.cli.options.completions import complete_analyses, complete_ranges
from traceview.cli.options.report_outputs import (
    ReportOutputs,
    ScreenOptions,
    print_report,
    put_report,
)
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
from traceview.cli.verb import Verb
from traceview.errors import suggestion
from traceview.outputs import unpacked_name

if TYPE_CHECKING:
    from traceview.report import Report

_DEFAULT_PATH = ""


def _names(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The names in options that may each hold several, separated by commas."""
    from traceview.analyses import ALL

    names = tuple(name for value in given for name in value.split(",") if name)
    return tuple(_known(name, [each.name for each in ALL]) for name in names)


def _topic(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    from traceview.explanation import explanations

    return given and _known(given, [each.name for each in explanations()])


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
        "Selection": ("--range", "--exclude-range", "--strict"),
        "Additional input": ("--peak", "--ncu", "--cubin"),
    },
    examples=(
        "traceview report train.sqlite --html",
        "traceview report train.sqlite --only gpu-idle,steps --range 'epoch_1/*'",
    ),
)
@click.argument("trace", required=False, type=click.Path(path_type=Path))
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
    help="Run only these analyses, such as gpu-idle, and print their tables (repeatable).",
)
@click.option(
    "--explain",
    metavar="NAME",
    callback=_topic,
    shell_complete=complete_analyses,
    help="Print what an analysis answers, what its columns mean and how it computes them.",
)
@click.option("--full-names", is_flag=True, help="Print the whole names of kernels in tables.")
@click.option("--no-pager", is_flag=True, help="Print --all and --only without a pager.")
@color_option
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
    callback=values.peaks,
    metavar="NAME=VALUE",
    help="Override a property of the GPU, such as bandwidth=4.8e12, bf16=989e12, link=64e9, "
    "sms=132 or capability=9.0, in bytes/s and FLOP/s (repeatable).",
)
@click.option(
    "--ncu",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Nsight Compute counters of the same program: a .ncu-rep, or the CSV of ncu --csv --page "
    "raw; used by roofline.",
)
@click.option(
    "--cubin",
    "cubins",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Code of kernels that the trace lacks: a .cubin, a .ptx, or a binary built by nvcc such "
    "as an extension module (.so); used by load-widths (repeatable).",
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
    trace: Path | None,
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

    TRACE is an nsys SQLite export or a .nsys-rep, which nsys exports first; either may be
    compressed (.gz, .xz, .zst). Prints one screen: the verdict, a scoreboard and what to do first.
    """
    shown = ScreenOptions(shows_all or bool(only), full_names, pager=not no_pager)
    if explain is not None:
        _explain(explain, shown)
        return
    if trace is None:
        raise click.UsageError(_no_trace(html, json_, markdown), click.get_current_context())
    if opens and html is None and not (output and output.suffix.startswith(".htm")):
        html = _DEFAULT_PATH
    outputs = ReportOutputs.of(_stem(trace), output, html, json_, markdown, csv, all_rows)
    outputs.check(trace, force=force)
    report = _analyzed(trace, only, ranges, exclude_ranges, strict, peaks, ncu, cubins)
    put_report(report, outputs, shown)
    if opens and outputs.html:
        open_in_browser(outputs.html)


def _explain(name: str, shown: ScreenOptions) -> None:
    from traceview.explanation import explained
    from traceview.render.terminal.explanation import render_explanation

    told = explained(name)
    print_text(
        lambda width, color: render_explanation(told, width=width, color=color),
        pager=shown.pager,
    )


def print_summary(path: Path) -> None:
    """Print the screen of a trace. Raises TraceviewError if it cannot be read."""
    print_report(_analyzed(path), ScreenOptions())


def _no_trace(html: str | None, json_: str | None, markdown: str | None) -> str:
    for option, taken in (("--html", html), ("--json", json_), ("--markdown", markdown)):
        if taken and taken != STDOUT:
            return (
                f"{option} took {taken!r} as its output file, so TRACE is missing. "
                f"Put TRACE first: traceview report {taken} {option}"
            )
    return "Missing argument 'TRACE'."


def _stem(trace: Path) -> str:
    return Path(unpacked_name(trace)).stem


def _analyzed(
    path: Path,
    only: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    exclude_ranges: tuple[str, ...] = (),
    strict: bool = False,
    peaks: tuple[str, ...] = (),
    ncu: Path | None = None,
    cubins: tuple[Path, ...] = (),
) -> Report:
    import traceview
    from traceview.trace.memory.allocator import keep_freed_memory

    keep_freed_memory()
    with progress("Reading the trace") as next_step:
        trace = traceview.load(path)
        next_step("Analyzing")
        return traceview.analyze(
            trace,
            only,
            ranges=ranges,
            exclude_ranges=exclude_ranges,
            strict=strict,
            peaks=peaks,
            ncu=ncu,
            cubins=cubins,
        )
