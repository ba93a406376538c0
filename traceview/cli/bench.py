"""`traceview bench`: check and time all versions of one operation, or a program as it grows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from traceview.cli import debug_option
from traceview.cli.output import (
    Outputs,
    check_writable,
    json_option,
    print_text,
    progress,
    put_json,
    write_file,
)

if TYPE_CHECKING:
    from traceview.bench import BenchReport, Description, Operation, Profile, Row

    Profiled = tuple[Row, Profile]

_BAD = 1
_OF_PROGRAMS = {"operation", "arguments", "sweep", "trials", "warmup", "json_", "force", "debug"}


@click.command()
@click.argument("operation", type=click.Path(path_type=Path), metavar="FILE.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Measure at this size (repeatable); the operation's own if none.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="T",
    help="Measure with this data type, such as float16, or all (repeatable); its first if none.",
)
@click.option(
    "--version",
    "versions",
    multiple=True,
    metavar="NAME",
    help="Measure this version alone (repeatable).",
)
@click.option(
    "--sweep",
    metavar="NAME=V,V,V",
    help="Measure at each of these values and fit a line: of the size, of a parameter of the "
    "operation, or of an option of a program.",
)
@click.option("--trials", type=click.IntRange(1), metavar="N", help="30, or 5 runs of a program.")
@click.option("--warmup", type=click.IntRange(0), metavar="N", help="3, or 1 run of a program.")
@click.option("--warm", is_flag=True, help="Leave the L2 cache as the call before left it.")
@click.option("--no-widths", is_flag=True, help="Do not compile the kernels for their load widths.")
@click.option("--arch", metavar="sm_90", help="The GPU to compile for; this one if none is named.")
@click.option(
    "--peak",
    "peaks",
    multiple=True,
    metavar="NAME=VALUE",
    help="A peak of this GPU, such as bandwidth=4.8e12 (repeatable).",
)
@click.option("--describe", is_flag=True, help="Show shapes, layout and values of the tensors.")
@click.option(
    "--profile",
    "flame",
    metavar="OUT.svg",
    help="Show the operators of the last version and their kernels, and write a flame graph.",
)
@click.option("--speedscope", metavar="OUT.json", help="Write that profile for speedscope.")
@json_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@debug_option
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
    describe: bool,
    flame: str | None,
    speedscope: str | None,
    json_: str | None,
    force: bool,
) -> int:
    """Check and time all versions of an operation, or time a program at several sizes.

    FILE.py defines OPERATION (see kernels/); it is imported, and its code runs with your rights.
    Every version is compared with a float64 reference first: one that is wrong is not timed, and
    the exit status is 1. Without a GPU Triton's kernels run in its interpreter.

    With --sweep it can be any program: `--sweep steps=1,2,4,8` runs FILE.py --steps 1 ARGS, and so
    on, in this process, each several times.
    """
    from traceview.bench.loading import is_program

    wanted = Outputs.of(operation.stem, None, json_)
    outputs = [Path(each) for each in (flame, speedscope) if each]
    _refuse_one_file_twice((*wanted.files, *outputs))
    check_writable((*wanted.files, *outputs), source=operation, force=force, kind="operation")
    if sweep and is_program(operation):
        _refuse_options_of_operations(ctx)
        _time_program(operation, sweep, arguments, trials, warmup, wanted)
        return 0
    if arguments:
        raise click.UsageError(f"an operation takes no arguments: {' '.join(arguments)[:60]}")
    made = _Made(operation, versions)
    report = made.report(
        sizes=sizes, dtypes=dtypes, sweep=sweep, trials=trials or 30,
        warmup=3 if warmup is None else warmup, cold=not warm,
        widths=not no_widths, arch=arch, peaks=peaks,
    )  # fmt: skip
    profiled = made.profile(report) if outputs else None
    _show(report, made.description(report) if describe else None, profiled, wanted)
    if outputs:
        _write_profile(report, profiled, flame, speedscope)
    return _BAD if report.bad else 0


def _refuse_one_file_twice(paths: Sequence[Path]) -> None:
    """The second would replace the first."""
    named = [path.resolve() for path in paths]
    twice = next((path for path in paths if named.count(path.resolve()) > 1), None)
    if twice is not None:
        raise click.UsageError(f"two outputs are called {twice}")


def _refuse_options_of_operations(ctx: click.Context) -> None:
    """A program has no versions, types or tensors that they could speak of."""
    for option in ctx.command.params:
        source = ctx.get_parameter_source(option.name or "")
        if option.name not in _OF_PROGRAMS and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} is for operations, and this is a program")


def _time_program(
    program: Path,
    sweep: str,
    arguments: tuple[str, ...],
    trials: int | None,
    warmup: int | None,
    wanted: Outputs,
) -> None:
    from traceview import __version__
    from traceview.bench.program import sweep_program
    from traceview.bench.timing.sweep import Axis
    from traceview.render.bench.json import render_program_json
    from traceview.render.bench.program_text import render_program

    axis = Axis.of(sweep)
    with progress(f"Running {program.name[:60]}") as next_step:
        found = sweep_program(
            program, axis, arguments,
            trials=trials or 5, warmup=1 if warmup is None else warmup, note=next_step,
        )  # fmt: skip
    if not wanted.json_to_stdout:
        print_text(lambda width, color: render_program(found, width=width, color=color))
    if wanted.json or wanted.json_to_stdout:
        put_json(render_program_json(found, __version__), wanted.json)


class _Made:
    """What is made of the operation, with progress on a terminal."""

    def __init__(self, path: Path, versions: tuple[str, ...]) -> None:
        self._path, self._versions = path, versions
        self._operation: Operation | None = None

    def report(self, *, dtypes: tuple[str, ...], **options: object) -> BenchReport:
        import traceview
        from traceview.bench.loading import load_operation

        # What the file prints must not get into the JSON on stdout.
        with progress(f"Reading {self._path.name[:60]}") as next_step, redirect_stdout(sys.stderr):
            self._operation = load_operation(self._path)
            kinds = self._operation.dtypes if "all" in dtypes else dtypes
            return traceview.benchmark(
                self._operation, path=self._path, dtypes=kinds, versions=self._versions,
                note=next_step, **options,
            )  # fmt: skip

    def description(self, report: BenchReport) -> Description:
        from traceview.bench.describe import describe

        with progress("Looking at the tensors"), redirect_stdout(sys.stderr):
            return describe(report.operation, *report.inputs(report.rows[-1]))

    def profile(self, report: BenchReport) -> Profiled | None:
        """Of the last version that was timed: the one that is written to be fast."""
        from traceview.bench.profiling import profile

        row = next((row for row in reversed(report.rows) if row.timing), None)
        if row is None:
            return None
        with progress(f"Profiling {row.version}"), redirect_stdout(sys.stderr):
            inputs, run = report.inputs(row), report.operation.version(row.version).run
            return row, profile(lambda: run(*inputs))


def _title(report: BenchReport, row: Row) -> str:
    return f"{report.operation.name} {row.version}, size {row.size:,}, {row.dtype}"


def _write_profile(
    report: BenchReport, profiled: Profiled | None, flame: str | None, speedscope: str | None
) -> None:
    from traceview import TraceviewError, __version__
    from traceview.render.bench.flame_graph import render_flame
    from traceview.render.bench.speedscope import render_speedscope

    if profiled is None:
        raise TraceviewError("there is nothing to profile", "no version was timed")
    row, profile = profiled
    title = _title(report, row)
    if flame:
        write_file(Path(flame), render_flame(profile, title))
    if speedscope:
        write_file(Path(speedscope), render_speedscope(profile, title, __version__))


def _show(
    report: BenchReport,
    description: Description | None,
    profiled: Profiled | None,
    wanted: Outputs,
) -> None:
    from traceview import __version__
    from traceview.render.bench.json import render_bench_json
    from traceview.render.bench.profile_text import render_profile
    from traceview.render.bench.text import render_bench

    def drawn(width: int, color: bool) -> str:
        text = render_bench(report, description=description, width=width, color=color)
        if profiled is None:
            return text
        row, profile = profiled
        title = _title(report, row)
        return f"{text}\n{render_profile(profile, title, width=width, color=color)}"

    if not wanted.json_to_stdout:
        print_text(drawn)
    if wanted.json or wanted.json_to_stdout:
        put_json(render_bench_json(report, __version__, description, profiled), wanted.json)
    for row in report.bad:
        place = f"size {row.size:,}, {row.dtype}"
        place += "" if row.value is None else f", {report.over} {row.value:,}"
        said = f"{row.version} is {row.status} at {place}: {row.why}"
        click.echo(f"traceview: {said[:600]}", err=True)
