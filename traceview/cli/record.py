"""`traceview record`: run a script under a profiler and write its trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.base.errors import TraceviewError
from traceview.cli import process
from traceview.cli.options import Verb, option
from traceview.cli.output import force_option, output_file, say_written

if TYPE_CHECKING:
    from traceview.traces.recorders import RankRecordings, Recording
    from traceview.traces.recorders.options import Backend


def _steps(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Parse the bounds in `10:20`; None without the option."""
    if value is None:
        return None
    first, _colon, end = value.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise click.BadParameter("pass first and end, such as 10:20")
    return int(first), int(end)


def _without(part: str, text: str) -> Callable[[Any], Any]:
    """The option --no-PART, which leaves a part of the recording out."""
    field = part.replace("-", "_")
    return click.option(
        f"--no-{part}", field, is_flag=True, flag_value=False, default=True, help=text
    )


@click.command(
    cls=Verb,
    context_settings={"allow_interspersed_args": False},
    sections={
        "Program": ("--backend", "--nproc", "-m"),
        "Output": ("-o", "--force", "--keep-rep", "--keep-env"),
        "When to record": ("--steps", "--range", "--whole"),
        "What to record": (
            *("--trace", "--graph-trace", "--backtrace", "--gpu-metrics", "--shapes"),
            *("--no-kernels", "--no-sync-sites", "--annotate", "--python-samples"),
            *("--native-samples", "--no-source-lines", "--nsys-option"),
        ),
    },
    examples=(
        "traceview record train.py --epochs 1",
        "traceview record --nproc 2 -o run.sqlite train.py",
    ),
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS...]")
@option(
    "--backend",
    "Profiler: nsys, or torch.profiler inside the program; auto prefers nsys if it works.",
    type=click.Choice(["auto", "nsys", "torch"]),
    default="auto",
    show_default=True,
)
@output_file("OUT.sqlite", "Output file. Default: <script>.sqlite in the current folder.")
@force_option
@option(
    "--nproc N",
    "Start SCRIPT as N ranks on this machine, as torchrun does; each writes its own file.",
    type=click.IntRange(min=1),
)
@option("-m, --module", "SCRIPT is a module, as in python -m.", "module")
@option(
    "--steps A:B",
    "Record only training steps A to B-1, counted from 0; a torch optimizer ends each step.",
    callback=_steps,
)
@option("--range NAME", "Record only the first NVTX range of this name.", "range_name")
@option("--whole", "Record a long program to its end. Default: until the file has some 100 MB.")
@option(
    "--trace",
    "APIs for nsys to trace, as in nsys profile --trace.",
    default="cuda,nvtx,cublas",
    show_default=True,
)
@option(
    "--graph-trace",
    "Record the kernels of CUDA graphs, or each graph launch as a whole (lower overhead).",
    type=click.Choice(["node", "graph"]),
    default="node",
    show_default=True,
)
@option(
    "--backtrace",
    "Record the C++ call chain of these CUDA calls.",
    type=click.Choice(["none", "sync", "all"]),
    default="sync",
    show_default=True,
)
@option("--gpu-metrics", "Also sample the GPU's hardware counters.")
@option(
    "--shapes",
    "Record the tensor shapes of torch operators; needed for the FLOP and tiles of GEMMs.",
)
@option(
    "--nsys-option OPTION",
    "Pass an option to nsys profile, such as --nsys-option=--delay=5. Overrides "
    "traceview's own (repeatable).",
    "nsys_options",
    multiple=True,
)
@_without("kernels", "Do not store the code of the Triton kernels that run.")
@_without("sync-sites", "Do not record which Python lines wait for the GPU.")
@_without(
    "source-lines",
    "Do not store the source lines that wait or are sampled, nor the lines around them.",
)
@option(
    "--annotate",
    "Add ranges to a torch program: its steps, data loading, forward, backward and optimizer; "
    "'modules' also adds the modules of the model.",
    type=click.Choice(["auto", "modules", "off"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--python-samples/--no-python-samples",
    default=True,
    show_default=True,
    help="Sample Python stacks, to show the line at which the GPU waits for the CPU.",
)
@click.option(
    "--native-samples/--no-native-samples",
    default=None,
    help="Sample native stacks and record thread scheduling, to show the function in which the GPU "
    "waits for the CPU. Default: only for programs that are not Python.",
)
@option("--keep-env", "Keep environment and home paths in the trace.")
@option("--keep-rep", "Also keep the .nsys-rep file. It contains the environment.")
def command(
    script: str,
    arguments: tuple[str, ...],
    backend: Backend,
    output: Path | None,
    force: bool,
    nproc: int | None,
    module: bool,
    keep_env: bool,
    keep_rep: bool,
    **options: Any,
) -> None:
    """Run SCRIPT [ARGS...] under a profiler, write its trace and print what to fix first.

    SCRIPT is a .py file or any program. Options of traceview come before SCRIPT; everything after
    it is passed to the script. The exit status is the script's. Ctrl-C stops the script and keeps
    what was recorded so far.

    Each rank started by torchrun, mpirun or srun writes its own file, such as run.rank3.sqlite.
    """
    from traceview.traces.recorders import RecordOptions, record, record_ranks
    from traceview.traces.recorders.job import module_command
    from traceview.traces.recorders.options import nsys_only
    from traceview.traces.trace.rank_identity import launched_rank

    if options["steps"] and options["range_name"]:
        raise click.UsageError("--steps and --range exclude each other")
    chosen = RecordOptions(**options)
    only_nsys = nsys_only(chosen, keep_rep=keep_rep)
    if backend == "torch" and only_nsys:
        raise click.UsageError(f"{only_nsys[0]} needs --backend nsys")
    words = module_command(script, arguments) if module else (script, *arguments)
    recorder_options: Any = {"backend": backend, "options": chosen, "force": force}
    recorder_options |= {"keep_env": keep_env, "keep_rep": keep_rep}
    if nproc:
        ranks = record_ranks(words, nproc, output, **recorder_options, note=_note)
        _report_ranks(ranks)
        raise click.exceptions.Exit(ranks.exit_status)
    place = launched_rank(os.environ)

    def warn(line: str) -> None:
        # Ranks other than 0 print only warnings.
        if place and line.startswith("warning: "):
            _note(f"rank {place.rank}: {line}")

    note = warn if place and place.rank else _note
    recording = record(words, output, **recorder_options, note=note)
    _report(recording, place.rank if place else None)
    raise click.exceptions.Exit(recording.exit_status)


def _note(line: str) -> None:
    click.echo(f"traceview: {line}", err=True)


def _report(recording: Recording, rank: int | None) -> None:
    """Say how a recording ended; rank 0 also prints its summary."""
    who = "" if rank is None else f"rank {rank}: "
    if recording.path is None:
        _note(f"{who}recording aborted; nothing was written")
        return
    if recording.interrupted:
        _note(f"{who}interrupted; the trace ends there")
    elif recording.exit_status:
        status = recording.exit_status
        _note(f"{who}the script failed with exit status {status}; its trace is kept")
    if not rank:
        _print_summary(recording.path)
    _print_written(recording)
    if recording.pattern and rank == 0:
        _note(f"read all ranks with: traceview report {recording.pattern}")


def _report_ranks(ranks: RankRecordings) -> None:
    if not ranks.recordings:
        _note("recording aborted; nothing was written")
        return
    if ranks.interrupted:
        _note("interrupted; the traces end there")
    _print_summary(*(recording.path for recording in ranks.recordings if recording.path))
    for recording in ranks.recordings:
        _print_written(recording)
    if ranks.pattern:
        _note(f"read all ranks with: traceview report {ranks.pattern}")


def _print_written(recording: Recording) -> None:
    if recording.report:
        say_written(recording.report, " (contains the environment)")
    if recording.path:
        say_written(recording.path)


def _print_summary(*paths: Path) -> None:
    """Print the report of one recording, or of several ranks side by side."""
    from traceview.cli.report import print_job_summary, print_summary

    if process.stdout_is_closed():
        # Not an error: the trace was written, and the exit status is the script's.
        _note("no summary: stdout is closed")
        return
    try:
        if len(paths) == 1:
            print_summary(paths[0])
        else:
            print_job_summary(paths)
    except TraceviewError as error:
        # The trace was written, whether or not it can be read; the exit status is the script's.
        _note(f"no summary: {error}")
