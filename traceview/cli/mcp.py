"""`traceview mcp`: answer agents' and editors' questions about recordings in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import debug_option
from traceview.cli.options import Verb, option


@click.command(cls=Verb, examples=("traceview mcp", "traceview mcp recordings/"))
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@option("--mcp", "As `traceview serve` was called.", hidden=True)
@debug_option
def command(folder: Path, mcp: bool) -> None:  # noqa: ARG001 (a verb of its own now)
    """Answer questions from agents and editors about the recordings in FOLDER.

    Speaks the Model Context Protocol on stdin and stdout. They can list recordings and questions,
    ask one, see the evidence of a finding, inspect a kernel, and compare. Nothing is written, no
    program of yours is run, and nothing outside FOLDER is read. Default: the current folder.
    """
    from traceview.serve.server import serve

    serve(folder)
