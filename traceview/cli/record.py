"""`traceview record`: run a script under a profiler and keep the trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.cli import closed_stdout, debug_option
from traceview.errors import TraceviewError

if TYPE_CHECKING:
    from traceview.recorders import Recording


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--backend",
    type=click.Choice(["auto", "nsys"]),
    default="auto",
    show_default=True,
    help="What records; auto takes what this machine has.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT.sqlite",
    help="File to write; without it, <script>.sqlite in the current folder.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--trace",
    default="cuda,nvtx,cublas",
    show_default=True,
    help="What nsys traces, its own names.",
)
@click.option(
    "--graph-trace",
    type=click.Choice(["node", "graph"]),
    default="node",
    show_default=True,
    help="Record CUDA graphs node by node, or whole (cheaper, and hides their kernels).",
)
@click.option(
    "--backtrace",
    type=click.Choice(["none", "sync", "all"]),
    default="sync",
    show_default=True,
    help="Keep the C++ call chain of these CUDA calls.",
)
@click.option("--gpu-metrics", is_flag=True, help="Sample the GPU's counters, too.")
@click.option(
    "--shapes",
    is_flag=True,
    help="Have torch name the shapes of tensors: for the FLOP and the tiles of matrix products.",
)
@click.option(
    "--nsys-option",
    "nsys_options",
    multiple=True,
    metavar="OPTION",
    help="An option of nsys profile, such as --nsys-option=--delay=5, in place of one of ours "
    "(repeatable).",
)
@click.option(
    "--no-kernels",
    "kernels",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave out the code of the Triton kernels that run.",
)
@click.option(
    "--no-sync-sites",
    "sync_sites",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave out which lines of Python wait for the GPU.",
)
@click.option("--keep-env", is_flag=True, help="Leave environment and home paths in the trace.")
@click.option(
    "--keep-rep", is_flag=True, help="Keep the .nsys-rep, which holds the environment, beside it."
)
@debug_option
def command(
    script: str,
    arguments: tuple[str, ...],
    backend: str,  # noqa: ARG001 (one backend so far: auto is nsys)
    output: Path | None,
    force: bool,
    keep_env: bool,
    keep_rep: bool,
    **options: Any,
) -> None:
    """Run SCRIPT [ARGS...] under nsys, write the trace and say what to do first.

    SCRIPT is a .py file or any program. Options stand before it; what follows it is its own. The
    exit status is that of the script. Ctrl-C ends it and keeps what was recorded.
    """
    from traceview.recorders import RecordOptions, record

    done = record(
        (script, *arguments),
        output,
        options=RecordOptions(**options),
        force=force,
        keep_env=keep_env,
        keep_rep=keep_rep,
        note=_note,
    )
    _tell(done)
    raise click.exceptions.Exit(done.exit_status)


def _note(line: str) -> None:
    click.echo(f"traceview: {line}", err=True)


def _tell(done: Recording) -> None:
    if done.path is None:
        _note("given up: nothing was written")
        return
    if done.interrupted:
        _note("interrupted; what was recorded is kept")
    elif done.exit_status:
        _note(f"the script ended with exit status {done.exit_status}; its trace is kept")
    _summarise(done.path)
    if done.report:
        click.echo(f"Wrote {click.format_filename(done.report)} (with the environment)", err=True)
    click.echo(f"Wrote {click.format_filename(done.path)}", err=True)


def _summarise(path: Path) -> None:
    from traceview.cli.report import print_summary

    if closed_stdout.stdout_is_closed():
        # No error: the trace is what was asked for, and the exit status is the script's.
        _note("no summary: stdout is closed")
        return
    try:
        print_summary(path)
    except TraceviewError as error:
        # The trace is there, whatever the report makes of it, and the script's status is due.
        _note(f"no summary: {error}")
