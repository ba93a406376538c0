"""`traceview record`: run a script under nsys and write its trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.cli import debug_option
from traceview.cli.process import closed_stdout
from traceview.cli.verb import Verb
from traceview.errors import TraceviewError

if TYPE_CHECKING:
    from traceview.recorders import Recording


@click.command(
    cls=Verb,
    context_settings={"allow_interspersed_args": False},
    sections={
        "Output": ("-o", "--force", "--keep-rep", "--keep-env"),
        "What to record": (
            *("--trace", "--graph-trace", "--backtrace", "--gpu-metrics", "--shapes"),
            *("--no-kernels", "--no-sync-sites", "--annotate", "--python-samples"),
            *("--no-source-lines", "--nsys-option"),
        ),
    },
    examples=(
        "traceview record train.py --epochs 1",
        "traceview record -o run.sqlite --shapes torchrun --nproc-per-node 2 train.py",
    ),
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS...]")
@click.option(
    "--backend",
    type=click.Choice(["auto", "nsys"]),
    default="auto",
    show_default=True,
    help="Profiler to use; auto picks the best one on this machine.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT.sqlite",
    help="Output file. Default: <script>.sqlite in the current folder.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--trace",
    default="cuda,nvtx,cublas",
    show_default=True,
    help="APIs for nsys to trace, as in nsys profile --trace.",
)
@click.option(
    "--graph-trace",
    type=click.Choice(["node", "graph"]),
    default="node",
    show_default=True,
    help="Record the kernels of CUDA graphs, or each graph launch as a whole (lower overhead).",
)
@click.option(
    "--backtrace",
    type=click.Choice(["none", "sync", "all"]),
    default="sync",
    show_default=True,
    help="CUDA calls whose C++ call chain is recorded.",
)
@click.option("--gpu-metrics", is_flag=True, help="Also sample the GPU's hardware counters.")
@click.option(
    "--shapes",
    is_flag=True,
    help="Record the tensor shapes of torch operators; needed for the FLOP and tiles of GEMMs.",
)
@click.option(
    "--nsys-option",
    "nsys_options",
    multiple=True,
    metavar="OPTION",
    help="Pass an option to nsys profile, such as --nsys-option=--delay=5. Overrides "
    "traceview's own (repeatable).",
)
@click.option(
    "--no-kernels",
    "kernels",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not store the code of the Triton kernels that run.",
)
@click.option(
    "--no-sync-sites",
    "sync_sites",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not record which Python lines wait for the GPU.",
)
@click.option(
    "--no-source-lines",
    "source_lines",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not store the lines of the program that wait or are sampled, with their neighbours.",
)
@click.option(
    "--annotate",
    type=click.Choice(["auto", "modules", "off"]),
    default="off",
    show_default=True,
    help="Add ranges to a torch program: its steps, data loading, forward, backward and optimizer; "
    "with modules, the modules of the model as well.",
)
@click.option(
    "--python-samples/--no-python-samples",
    default=False,
    show_default=True,
    help="Sample the Python stacks, which show at which line the GPU waits for the CPU.",
)
@click.option(
    "--native-samples/--no-native-samples",
    default=None,
    help="Sample the stacks of native code and record thread scheduling, which show in which "
    "function the GPU waits for the CPU. Default: for programs that are not Python.",
)
@click.option("--keep-env", is_flag=True, help="Keep environment and home paths in the trace.")
@click.option(
    "--keep-rep",
    is_flag=True,
    help="Also keep the .nsys-rep file. It contains the environment.",
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
    """Run SCRIPT [ARGS...] under nsys, write its trace and print what to fix first.

    SCRIPT is a .py file or any program. Options of traceview come before SCRIPT; everything after
    it is passed to the script. The exit status is the script's. Ctrl-C stops the script and keeps
    what was recorded so far.
    """
    from traceview.recorders import RecordOptions, record

    recording = record(
        (script, *arguments),
        output,
        options=RecordOptions(**options),
        force=force,
        keep_env=keep_env,
        keep_rep=keep_rep,
        note=_note,
    )
    _report(recording)
    raise click.exceptions.Exit(recording.exit_status)


def _note(line: str) -> None:
    click.echo(f"traceview: {line}", err=True)


def _report(recording: Recording) -> None:
    if recording.path is None:
        _note("recording aborted; nothing was written")
        return
    if recording.interrupted:
        _note("interrupted; the trace ends there")
    elif recording.exit_status:
        _note(f"the script failed with exit status {recording.exit_status}; its trace is kept")
    _print_summary(recording.path)
    if recording.report:
        path = click.format_filename(recording.report)
        click.echo(f"Wrote {path} (contains the environment)", err=True)
    click.echo(f"Wrote {click.format_filename(recording.path)}", err=True)


def _print_summary(path: Path) -> None:
    from traceview.cli.report import print_summary

    if closed_stdout.stdout_is_closed():
        # Not an error: the trace was written, and the exit status is the script's.
        _note("no summary: stdout is closed")
        return
    try:
        print_summary(path)
    except TraceviewError as error:
        # The trace was written, whether or not it can be read; the exit status is the script's.
        _note(f"no summary: {error}")
