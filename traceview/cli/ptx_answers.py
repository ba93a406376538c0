"""`traceview ptx --triton`, `--configs` and `--reproducer`: what is not a report on the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.base.errors import InputError
from traceview.cli.options import misuse
from traceview.cli.output import Outputs, progress, write_file

if TYPE_CHECKING:
    from traceview.kernels.headless.compile_options import CompileOptions
    from traceview.kernels.inspect.comparison import Diff
    from traceview.kernels.inspect.target_report import PtxReport


def versions(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """The versions of `--triton 3.6.0 3.7.1`, of `--triton 3.6.0,3.7.1`, or of several options."""
    from traceview.kernels.toolchain.triton_versions import check_version

    listed = [part.strip() for value in values for part in value.split(",") if part.strip()]
    with misuse(parameter):
        for version in listed:
            check_version(version)
    return tuple(dict.fromkeys(listed))


def check_combination(
    option: str,
    targets: Sequence[str],
    options: Mapping[str, Any],
    others: Mapping[str, object],
    several: Sequence[str] = (),
) -> None:
    """Raise UsageError for what an option with an answer of its own does not take.

    `several` are the options that may have several values.
    """
    used = [name for name, is_set in others.items() if is_set]
    values = {**options, **options["constexprs"]}
    used += [
        f"several values of --{name.replace('_', '-')}"
        for name, value in values.items()
        if isinstance(value, list) and name not in several
    ]
    if used:
        raise click.UsageError(f"{option} cannot be combined with {used[0]}")
    if len(targets) != 1:
        raise click.UsageError(f"{option} takes one TARGET")


def _note(text: str) -> None:
    from traceview.render.base.safe_text import visible

    click.echo(f"traceview: {visible(text, 600)}", err=True)


def _compile_options(options: Mapping[str, Any], outputs: Outputs) -> CompileOptions:
    from traceview.kernels.headless.compile_options import CompileOptions

    if outputs.html:
        raise click.UsageError("--triton and --configs cannot be combined with --html; use --json")
    return CompileOptions(**{n: v for n, v in options.items() if n != "sm_count"})


def compare_versions(
    target: str, triton: Sequence[str], options: Mapping[str, Any], outputs: Outputs
) -> None:
    """Compare the versions and print the answer; exits with 1 if a kernel gets worse."""
    from traceview.kernels.inspect.upgrade import check_upgrade

    arch = options["arch"]
    archs = arch if isinstance(arch, list) else [arch] if arch else []
    given = _compile_options({**options, "arch": None}, outputs)
    with progress(f"Compiling the kernels of {target[:60]}") as show:
        report = check_upgrade(target, triton, archs, given, note=_note, step=show)
    outputs.put_answer(report)
    if report.worse or report.failures:
        click.get_current_context().exit(1)


def write_reproducer(report: PtxReport | Diff, path: Path) -> None:
    """Write the script of the first launch in a report."""
    from traceview.kernels.inspect.reproducer import reproducer
    from traceview.kernels.inspect.target_report import PtxReport

    if not isinstance(report, PtxReport):
        raise click.UsageError("--reproducer cannot be combined with a comparison")
    kernels = [kernel.compiled for kernel in report.kernels]
    for source in {Path(each.source_file) for each in kernels if each.source_file}:
        # A module's file is known only now.
        if path.resolve() == source.resolve():
            raise InputError(f"{path} has the source of a kernel", "give the script another name")
    write_file(path, reproducer(kernels, path.name))


def preselect_configurations(target: str, options: Mapping[str, Any], outputs: Outputs) -> None:
    """Print which configurations of the target's autotuners are worth timing."""
    from traceview.kernels.inspect.configurations import preselect
    from traceview.render.kernels.configurations import PreselectionReport

    with progress(f"Compiling the configurations of {target[:60]}") as show:
        kernels = preselect(
            target,
            _compile_options(options, outputs),
            sm_count=options["sm_count"],
            note=_note,
            step=show,
        )
    report = PreselectionReport(target, kernels)
    outputs.put_answer(report)
