"""`traceview convert`: write a trace as an SQLite file, or for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.cli.options.verb import Verb
from traceview.cli.output import OutputFile, progress


@click.command(
    cls=Verb,
    examples=(
        "traceview convert trace.json.gz trace.sqlite",
        "traceview convert train.sqlite train.pftrace.gz --force",
    ),
)
@click.argument("trace", type=click.Path(path_type=Path), metavar="IN")
@click.argument("out", type=OutputFile())
@click.option("--force", is_flag=True, help="Overwrite OUT.")
@debug_option
def command(trace: Path, out: Path, force: bool) -> None:
    """Write the trace IN as OUT, in the format that its name ends in.

    A .sqlite holds the tables that a report reads, whatever recorded them, and its report equals
    that of IN. A .pftrace or .perfetto-trace, also with .gz, is for Perfetto, as `traceview export`
    writes it. IN is any trace that `traceview report` takes, and is not changed.
    """
    import traceview
    from traceview.memory.allocator import keep_freed_memory
    from traceview.memory.blas_threads import import_numpy

    import_numpy()
    keep_freed_memory()
    with progress("Converting the trace"):
        written = traceview.convert(trace, out, force=force)
    click.echo(f"Wrote {click.format_filename(written)}", err=True)
