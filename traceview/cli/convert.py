"""`traceview convert`: write a trace as an SQLite file, or for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.cli.options import Verb, option
from traceview.cli.output import OutputFile, progress, say_written


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
@debug_option
def command(trace: Path, out: Path, force: bool) -> None:
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
