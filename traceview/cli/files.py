"""`traceview convert`, `export` and `scrub`: a trace as another file."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli.options import Verb, option
from traceview.cli.output import OutputFile, output_file, progress, say_written


@click.command(
    cls=Verb,
    examples=(
        "traceview convert trace.json.gz trace.sqlite",
        "traceview convert train.sqlite train.pftrace.gz --force",
    ),
)
@click.argument("trace", type=click.Path(path_type=Path), metavar="IN")
@click.argument("out", type=OutputFile())
@option("--force", "Overwrite OUT.")
def convert(trace: Path, out: Path, force: bool) -> None:
    """Write the trace IN to OUT, in the format of OUT's extension.

    A .sqlite holds the tables that a report reads, whichever profiler recorded them, and gives the
    same report as IN. A .pftrace or .perfetto-trace, optionally with .gz, is for Perfetto, as
    written by `traceview export`. IN is any trace that `traceview report` accepts; it is not
    changed.
    """
    import traceview
    from traceview.base import memory

    memory.prepare()
    with progress("Converting the trace"):
        written = traceview.convert(trace, out, force=force)
    say_written(written)


@click.command(
    cls=Verb,
    examples=(
        "traceview export train.sqlite --perfetto train.pftrace",
        "traceview export train.sqlite --perfetto train.pftrace.gz --force",
    ),
)
@click.argument("trace", type=click.Path(path_type=Path))
@option(
    "-o, --output, --perfetto OUT",
    "Write Perfetto's TrackEvent format to this file, compressed if it ends in .gz.",
    "perfetto",
    required=True,
    type=OutputFile(),
)
@option("--force", "Overwrite OUT.")
def export(trace: Path, perfetto: Path, force: bool) -> None:
    """Write TRACE for Perfetto, to open on ui.perfetto.dev.

    The file shows threads with their ranges and CUDA calls, streams with kernels and copies, idle
    time by cause, queue depth and memory, and flows from each launch call to the work that it
    launched. TRACE is not changed.
    """
    import traceview
    from traceview.base import memory

    memory.prepare()
    with progress("Exporting the trace"):
        written = traceview.export(trace, perfetto=perfetto, force=force)
    say_written(written)


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
def scrub(trace: Path, out: Path | None, output: Path | None, names: bool, force: bool) -> None:
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
