"""`traceview scrub`: copy a trace without private data."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.cli.options import Verb, option
from traceview.cli.output import OutputFile, output_file, say_written


@click.command(
    cls=Verb,
    examples=(
        "traceview scrub train.sqlite train.clean.sqlite",
        "traceview scrub train.nsys-rep train.clean.sqlite --names",
    ),
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("out", type=OutputFile(), metavar="[OUT.sqlite]", required=False)
@output_file("OUT.sqlite", "Write the copy to this file; an alternative to the second argument.")
@option(
    "--names",
    "Replace names of kernels, ranges, functions and files by pseudonyms, too, and leave out "
    "the code of kernels. Names of known library kernels stay. A pseudonym is a hash of the name: "
    "equal names stay equal, and whoever guesses a name can check the guess.",
)
@option("--force", "Overwrite OUT.sqlite.")
@debug_option
def command(trace: Path, out: Path | None, output: Path | None, names: bool, force: bool) -> None:
    """Copy TRACE to OUT.sqlite without private data.

    Keeps only what a report needs: numbers, and the names of kernels, ranges, calls, functions and
    source files. Everything else is left out, such as environment variables, program output, user
    and host names, the command's arguments, and lines of source files. Folders become `…`, home
    folders in names `~`. TRACE is not changed. A trace of torch.profiler becomes an SQLite file.
    """
    import traceview

    if (out is None) == (output is None):
        raise click.UsageError("name one file to write: OUT.sqlite, or -o OUT.sqlite")
    target = out or output or Path()
    report = traceview.scrub(trace, target, force=force, names=names)
    for what, values in report.replaced.items():
        click.echo(f"{values:>6} {what}", err=True)
    click.echo(f"{report.total:>6} values removed or shortened in total", err=True)
    say_written(target)
