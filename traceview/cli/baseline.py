"""`traceview baseline`: keep the figures of recordings in one small file."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli.options import Verb, option
from traceview.cli.output import output_file, say_written


@click.command(
    cls=Verb,
    examples=(
        "traceview baseline run1.sqlite run2.sqlite run3.sqlite -o base.json",
        "traceview baseline base.json run4.sqlite -o base.json --force",
    ),
)
@click.argument("traces", type=click.Path(path_type=Path), metavar="TRACE...", nargs=-1)
@output_file("BASE.json", "Write the baseline to this file.", required=True)
@option("--force", "Overwrite BASE.json.")
def command(traces: tuple[Path, ...], output: Path, force: bool) -> None:
    """Write the figures of TRACE... to one file for `traceview gate` and `traceview compare`.

    Each TRACE is one run of the same program. The recordings are not needed afterwards. A baseline
    among them adds its runs.
    """
    import traceview

    if not traces:
        raise click.UsageError("name the recordings of one or more runs: TRACE...")
    traceview.baseline(*traces, out=output, force=force)
    say_written(output)
