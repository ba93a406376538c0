"""`traceview schema`: print the JSON Schema of a JSON output."""

from __future__ import annotations

import json
from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.cli.options import Verb, option
from traceview.cli.output import output_file, put_json

OUTPUTS = (
    "report",
    "ranks",
    "compare",
    "gate",
    "history",
    "ptx",
    "ptx-diff",
    "ptx-triton",
    "ptx-configs",
    "bench",
    "bench-program",
    "what-if",
    "doctor",
    "try",
)


@click.command(
    cls=Verb, examples=("traceview schema report", "traceview schema ptx -o ptx.schema.json")
)
@click.argument("name", type=click.Choice(OUTPUTS))
@output_file("PATH", "Write the schema to this file. Default: stdout.")
@option("--force", "Overwrite an existing file.")
@debug_option
def command(name: str, output: Path | None, force: bool) -> None:
    """Print the JSON Schema of what a command writes with --json.

    ranks is `traceview report` of several ranks, ptx-diff, ptx-triton and ptx-configs are
    `traceview ptx` with --diff, --triton and --configs, bench-program is `traceview bench` of a
    whole program, try is also of `traceview accuracy`.
    """
    from traceview.base.outputs import check_output
    from traceview.render.schemas import schema

    if output is not None:
        check_output(output, force=force)
    put_json(json.dumps(schema(name), indent=1) + "\n", output)
