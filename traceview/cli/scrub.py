"""`traceview scrub`: copy a trace without what it tells of the machine and its user."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.errors import InputError, OutputExistsError


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path), metavar="OUT.sqlite")
@click.option("--force", is_flag=True, help="Replace OUT.sqlite if it exists.")
@debug_option
def command(trace: Path, output: Path, force: bool) -> None:
    """Copy TRACE to OUT.sqlite without environment, program output, user, host and home paths.

    Names of kernels, ranges and calls stay as they are; TRACE is not changed.
    """
    from traceview.trace.scrub.scrubber import scrub

    _check_output(output, force)
    report = scrub(_exported(trace), output)
    for what, values in report.replaced.items():
        click.echo(f"{values:>6} {what}", err=True)
    click.echo(f"{report.total:>6} values removed or shortened", err=True)
    click.echo(f"Wrote {click.format_filename(output)}", err=True)


def _check_output(output: Path, force: bool) -> None:
    if output.suffix in (".gz", ".xz", ".zst"):
        raise InputError(f"{output} is named like an archive", "name it .sqlite; compress it later")
    if output.is_dir():
        raise InputError(f"{output} is a folder", "name a file to write")
    if not output.absolute().parent.is_dir():
        raise InputError(f"there is no folder {output.parent}", "make it first, or choose another")
    if output.exists() and not force:
        raise OutputExistsError(output)


def _exported(trace: Path) -> Path:
    from traceview.trace import load

    if not load.is_report(trace):
        return trace
    from traceview.recorders import export_report

    with load.unpacked_report(trace) as report:
        return export_report(report)
