"""`traceview report`: put all questions to a trace and show the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli import debug_option
from traceview.cli.output import (
    STDOUT,
    check_free,
    json_option,
    print_text,
    progress,
    unpacked_name,
    write_file,
)

if TYPE_CHECKING:
    from traceview.report import Report

_HERE = ""


@dataclass(frozen=True)
class _Wanted:
    """Where each output goes; None for an output that was not asked for."""

    html: Path | None
    json: Path | None
    json_to_stdout: bool

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.html, self.json) if path]


@click.command()
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "--html",
    is_flag=False,
    flag_value=_HERE,
    metavar="[PATH]",
    help="Write one HTML page; with no path, <trace>.html in the current folder.",
)
@json_option
@click.option("--only", multiple=True, metavar="NAME", help="Ask this question alone (repeatable).")
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="GLOB",
    help="Speak only of ranges of this name or path (repeatable).",
)
@click.option(
    "--exclude-range",
    "exclude_ranges",
    multiple=True,
    metavar="GLOB",
    help="Leave out ranges of this name or path, such as warm-up steps (repeatable).",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@debug_option
def command(
    trace: Path | None,
    html: str | None,
    json_: str | None,
    only: tuple[str, ...],
    ranges: tuple[str, ...],
    exclude_ranges: tuple[str, ...],
    force: bool,
) -> None:
    """Say where the GPU time of TRACE went, and what to do first.

    TRACE is an nsys SQLite export, also as .gz, .xz or .zst, or a .nsys-rep, which nsys exports
    first. Without --html or --json the report is printed.
    """
    if trace is None:
        raise click.UsageError(_no_trace(html, json_), click.get_current_context())
    wanted = _wanted(trace, html, json_)
    for path in wanted.files:
        check_free(path, source=trace, force=force)
    _show(_made(trace, only, ranges, exclude_ranges), wanted)


def print_summary(path: Path) -> None:
    """Print what a trace is and what to do first. Raises TraceviewError if it cannot be read."""
    from traceview.render.text import render_summary

    report = _made(path)
    print_text(lambda width, color: render_summary(report, width=width, color=color))


def _no_trace(html: str | None, json_: str | None) -> str:
    for option, taken in (("--html", html), ("--json", json_)):
        if taken and taken != STDOUT:
            return (
                f"{option} took {taken!r} as the file to write, which leaves no TRACE. "
                f"Put TRACE first: traceview report {taken} {option}"
            )
    return "Missing argument 'TRACE'."


def _wanted(trace: Path, html: str | None, json_: str | None) -> _Wanted:
    page = Path(f"{_stem(trace)}.html") if html == _HERE else Path(html) if html else None
    to_stdout = json_ == STDOUT
    return _Wanted(page, Path(json_) if json_ and not to_stdout else None, to_stdout)


def _stem(trace: Path) -> str:
    return Path(unpacked_name(trace)).stem


def _made(
    path: Path,
    only: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    exclude_ranges: tuple[str, ...] = (),
) -> Report:
    import traceview

    with progress("Reading the trace") as next_step:
        trace = traceview.load(path)
        next_step("Looking for lost time")
        return traceview.analyze(trace, only, ranges=ranges, exclude_ranges=exclude_ranges)


def _show(report: Report, wanted: _Wanted) -> None:
    from traceview.render import text

    if not wanted.json_to_stdout:
        draw = text.render_summary if wanted.files else text.render_text
        print_text(lambda width, color: draw(report, width=width, color=color))
    if wanted.html:
        write_file(wanted.html, _page(report))
    if wanted.json or wanted.json_to_stdout:
        _put_json(report, wanted.json)


def _page(report: Report) -> str:
    from traceview import __version__
    from traceview.render.html import render_html

    with progress("Drawing the page"):
        return render_html(report, __version__)


def _put_json(report: Report, path: Path | None) -> None:
    from traceview import __version__
    from traceview.render.json_report import render_json

    document = render_json(report, __version__)
    if path:
        write_file(path, document)
    else:
        click.echo(document, nl=False)
