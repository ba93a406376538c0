"""`traceview export`: write a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.cli.options import Verb, option
from traceview.cli.output import OutputFile, progress, say_written


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
@debug_option
def command(trace: Path, perfetto: Path, force: bool) -> None:
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
