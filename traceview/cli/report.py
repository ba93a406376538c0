"""`traceview report`: run all analyses on a trace and show their results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli import debug_option
from traceview.cli.output import (
    STDOUT,
    Outputs,
    check_writable,
    json_option,
    print_text,
    progress,
    put_json,
    write_file,
)
from traceview.cli.verb import Verb
from traceview.outputs import unpacked_name

if TYPE_CHECKING:
    from traceview.report import Report

_DEFAULT_PATH = ""


@click.command(
    cls=Verb,
    sections={
        "Output": ("--html", "--json", "--all-rows", "--force"),
        "Selection": ("--only", "--range", "--exclude-range", "--strict"),
        "Additional input": ("--peak", "--ncu", "--cubin"),
    },
    examples=(
        "traceview report train.sqlite --html",
        "traceview report train.sqlite --only gpu-idle --range 'epoch_1/*'",
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
@json_option
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run only this analysis, such as gpu-idle (repeatable).",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="GLOB",
    help="Analyze only the ranges that match by name or path; 'PATH (N)' is the N-th instance "
    "(repeatable).",
)
@click.option(
    "--exclude-range",
    "exclude_ranges",
    multiple=True,
    metavar="GLOB",
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
    metavar="NAME=VALUE",
    help="Override a property of the GPU, such as bandwidth=4.8e12, bf16=989e12, link=64e9, "
    "sms=132 or capability=9.0, in bytes/s and FLOP/s (repeatable).",
)
@click.option(
    "--ncu",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Nsight Compute counters of the same program, from ncu --csv --page raw; used by "
    "roofline.",
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
    json_: str | None,
    only: tuple[str, ...],
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
    compressed (.gz, .xz, .zst). Without --html or --json the report is printed.
    """
    if trace is None:
        raise click.UsageError(_no_trace(html, json_), click.get_current_context())
    outputs = Outputs.of(_stem(trace), html, json_)
    if all_rows and html is None and json_ is None:
        raise click.UsageError("--all-rows needs --html or --json")
    check_writable(outputs.files, source=trace, force=force)
    _show(
        _analyzed(trace, only, ranges, exclude_ranges, strict, peaks, ncu, cubins),
        outputs,
        all_rows,
    )


def print_summary(path: Path) -> None:
    """Print the header and findings of a trace. Raises TraceviewError if it cannot be read."""
    from traceview.render.report.text import render_summary

    report = _analyzed(path)
    print_text(lambda width, color: render_summary(report, width=width, color=color))


def _no_trace(html: str | None, json_: str | None) -> str:
    for option, taken in (("--html", html), ("--json", json_)):
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
    from traceview.cli.allocator import keep_freed_memory

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


def _show(report: Report, outputs: Outputs, all_rows: bool) -> None:
    from traceview.render.report import text

    if not outputs.json_to_stdout:
        draw = text.render_summary if outputs.files else text.render_text
        print_text(lambda width, color: draw(report, width=width, color=color))
    if outputs.html:
        write_file(outputs.html, _page(report, all_rows))
    if outputs.json or outputs.json_to_stdout:
        put_json(_document(report, all_rows), outputs.json)


def _page(report: Report, all_rows: bool) -> str:
    from traceview import __version__
    from traceview.render.base.table_view import MOST_ROWS
    from traceview.render.report.html import render_html

    with progress("Rendering the page"):
        return render_html(report, __version__, None if all_rows else MOST_ROWS)


def _document(report: Report, all_rows: bool) -> Iterator[str]:
    from traceview import __version__
    from traceview.render.base.row_limit import MOST_ROWS
    from traceview.render.report.json import json_pieces

    return json_pieces(report, __version__, None if all_rows else MOST_ROWS)
