"""`traceview bench`: check and time the versions of an operation, or time a program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from traceview.base.errors import TraceviewError
from traceview.cli import color_option, options
from traceview.cli.options import Verb, option
from traceview.cli.output import Asked, Outputs, check_writable, documents, progress, write_file

if TYPE_CHECKING:
    from traceview.trials.bench import (
        BenchReport,
        BenchRequest,
        Profile,
        VersionResult,
    )
    from traceview.trials.bench.history import BenchDifference, SavedBench

    Profiled = tuple[VersionResult, Profile]


_PROGRAM_OPTIONS = (
    *("operation", "arguments", "sweep", "trials", "warmup", "json_", "force", "debug"),
)


@click.command(
    cls=Verb,
    examples=(
        "traceview bench kernels/gelu.py --size 1048576",
        "traceview bench kernels/softmax.py --sweep size=1024,4096,16384 --json",
        "traceview bench kernels/gelu.py --compare old.json",
    ),
)
@click.argument("operation", type=click.Path(path_type=Path), metavar="FILE.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@option(
    "--size N",
    "Size to measure (repeatable). Default: the operation's own sizes.",
    "sizes",
    multiple=True,
    type=click.IntRange(1),
)
@option(
    "--dtype T",
    "Data type, such as float16, or all (repeatable). Default: the operation's first.",
    "dtypes",
    multiple=True,
)
@option(
    "--version NAME", "Version to measure (repeatable). Default: all.", "versions", multiple=True
)
@option(
    "--sweep NAME=V,V,V",
    "Measure at each value of the size, of an operation's parameter or of a program's option, "
    "and fit how the time grows.",
)
@option(
    "--trials N",
    "Number of measurements. Default: 30, or 5 runs of a program.",
    type=click.IntRange(1),
)
@option(
    "--warmup N",
    "Untimed warm-up calls. Default: 3, or 1 run of a program.",
    type=click.IntRange(0),
)
@option("--warm", "Do not empty the L2 cache before each call.")
@option("--no-widths", "Do not compile the kernels to read their load widths.")
@option(
    "--arch sm_90",
    "Architecture to compile for. Default: this machine's GPU.",
    callback=options.arch,
)
@options.peak("Override a peak rate of the GPU, such as bandwidth=4.8e12")
@option(
    "--compare OLD.json",
    "Compare with the --json output of an earlier run (repeatable).",
    "earlier",
    multiple=True,
    type=click.Path(path_type=Path),
)
@option(
    "--profile OUT.svg",
    "Profile the last timed version: show its operators and kernels, and write a flame graph.",
    "flame",
    type=click.Path(path_type=Path),
)
@documents(
    force=option("--force", "Overwrite existing files, and compare runs on different GPUs."),
    kinds=("json",),
)
@color_option
@click.pass_context
def command(
    ctx: click.Context,
    operation: Path,
    arguments: tuple[str, ...],
    sizes: tuple[int, ...],
    dtypes: tuple[str, ...],
    versions: tuple[str, ...],
    sweep: str | None,
    trials: int | None,
    warmup: int | None,
    warm: bool,
    no_widths: bool,
    arch: str | None,
    peaks: tuple[str, ...],
    earlier: tuple[Path, ...],
    flame: Path | None,
    asked: Asked,
) -> int:
    """Check and time all versions of an operation, or time a program at several sizes.

    FILE.py defines OPERATION (see kernels/). It is imported, so its code runs with your rights.
    Every version is compared with a float64 reference first. A wrong one is not timed, and the exit
    status is 1. Without a GPU, Triton kernels run in the interpreter.

    With --sweep, FILE.py can be any program: `--sweep steps=1,2,4,8` runs FILE.py --steps 1 ARGS
    and so on, several times each, in this process.
    """
    from traceview.trials.bench import BenchRequest, history, profile
    from traceview.trials.bench.operation import is_program

    outputs = asked.outputs(operation.stem)
    files = (*outputs.files, *([flame] if flame else []))
    check_writable(files, source=operation, force=asked.force, kind="operation")
    if sweep and is_program(operation):
        for option in ctx.command.params:
            # A program has no versions, data types or tensors.
            source = ctx.get_parameter_source(option.name or "")
            if option.name not in _PROGRAM_OPTIONS and source is ParameterSource.COMMANDLINE:
                what = f"{option.opts[0]} applies to operations, but FILE.py is a program"
                raise click.UsageError(what)
        _time_program(operation, sweep, arguments, trials or 5, warmup, outputs)
        return 0
    if arguments:
        raise click.UsageError(f"an operation takes no arguments: {' '.join(arguments)[:60]}")
    request = BenchRequest(
        sizes=sizes,
        dtypes=dtypes,
        versions=versions,
        sweep=sweep,
        trials=trials or 30,
        warmup=3 if warmup is None else warmup,
        cold=not warm,
        widths=not no_widths,
        arch=arch,
        peaks=peaks,
    )
    saved = history.benches_of(earlier) if earlier else ()
    report = _measure(operation, request, saved, asked.force)
    difference = None
    if saved:
        difference = history.bench_difference(saved, [history.saved_bench(report)], asked.force)
    profiled = None
    row = next((row for row in reversed(report.rows) if row.timing), None)
    # The file's own output must not get into the JSON on stdout.
    with redirect_stdout(sys.stderr):
        if flame and row:
            # Operations list the fastest version last.
            with progress(f"Profiling {row.version}"):
                inputs, run = report.inputs(row), report.operation.version(row.version).run
                profiled = row, profile(lambda: run(*inputs))
    _put_report(report, profiled, difference, outputs)
    if flame:
        from traceview.render.bench_json import render_flame

        if profiled is None:
            raise TraceviewError(
                "nothing to profile: no version was timed", "see the reasons above"
            )
        write_file(flame, render_flame(profiled[1], _title(report, profiled[0])))
    return 1 if report.bad else 0


def _time_program(
    program: Path,
    sweep: str,
    arguments: tuple[str, ...],
    trials: int,
    warmup: int | None,
    outputs: Outputs,
) -> None:
    from traceview.trials.bench.growth import Axis
    from traceview.trials.bench.program import sweep_program

    axis, warmup = Axis.of(sweep), 1 if warmup is None else warmup
    with progress(f"Running {program.name[:60]}") as show:
        swept = sweep_program(program, axis, arguments, trials=trials, warmup=warmup, note=show)
    outputs.put_answer(swept)


def _measure(
    path: Path, request: BenchRequest, earlier: Sequence[SavedBench], force: bool
) -> BenchReport:
    from traceview.trials.bench import load_operation, measure
    from traceview.trials.bench.growth import SIZE, Axis
    from traceview.trials.bench.history import Measured, check_alike
    from traceview.trials.bench.plan import this_machine

    with progress(f"Reading {path.name[:60]}") as show, redirect_stdout(sys.stderr):
        operation = load_operation(path)
        if earlier:
            # Before measuring, as it takes long.
            over = Axis.of(request.sweep).over if request.sweep else SIZE
            planned = Measured(operation.name, over, this_machine().gpu)
            check_alike([*map(Measured.of, earlier), planned], force=force)
        dtypes = operation.dtypes if "all" in request.dtypes else request.dtypes
        return measure(operation, replace(request, dtypes=dtypes), path=str(path), note=show)


def _put_report(
    report: BenchReport,
    profiled: Profiled | None,
    difference: BenchDifference | None,
    outputs: Outputs,
) -> None:
    from traceview.render.bench_json import BenchDocument, render_profile
    from traceview.render.bench_text import render_bench, render_difference

    def drawn(width: int, color: bool) -> str:
        text = render_bench(report, width=width, color=color)
        if difference is not None:
            text += "\n" + render_difference(difference, width=width, color=color)
        if profiled is not None:
            row, profile = profiled
            text += "\n" + render_profile(profile, _title(report, row), width=width, color=color)
        return text

    outputs.screen(drawn)
    outputs.put_documents(BenchDocument(report, profiled, difference))
    for row in report.bad:
        place = f"size {row.size:,}, {row.dtype}"
        place += "" if row.value is None else f", {report.over} {row.value:,}"
        verdict = "is wrong" if row.status == "wrong" else "failed"
        line = f"{row.version} {verdict} at {place}: {row.why}"
        click.echo(f"traceview: {line[:600]}", err=True)


def _title(report: BenchReport, row: VersionResult) -> str:
    return f"{report.operation.name} {row.version}, size {row.size:,}, {row.dtype}"
