"""`traceview ptx --triton`: what other versions of Triton change about the kernels of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from traceview.cli.options import misuse
from traceview.cli.output import Outputs, print_text, progress


def versions(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """The versions of `--triton 3.6.0 3.7.1`, of `--triton 3.6.0,3.7.1`, or of several options."""
    from traceview.toolchain.triton_versions import check_version

    listed = [part.strip() for value in values for part in value.split(",") if part.strip()]
    with misuse(parameter):
        for version in listed:
            check_version(version)
    return tuple(dict.fromkeys(listed))


def check_combination(
    targets: Sequence[str], options: Mapping[str, Any], others: Mapping[str, bool]
) -> None:
    """Raise UsageError for options that a comparison of Triton versions does not take."""
    used = [name for name, is_set in others.items() if is_set]
    values = {**options, **options["constexprs"]}
    used += [
        f"several values of --{name.replace('_', '-')}"
        for name, value in values.items()
        if isinstance(value, list) and name != "arch"
    ]
    if used:
        raise click.UsageError(f"--triton cannot be combined with {used[0]}")
    if len(targets) != 1:
        raise click.UsageError("--triton compares versions of one TARGET")


def run(target: str, triton: Sequence[str], options: Mapping[str, Any], outputs: Outputs) -> None:
    """Compare the versions and print the answer; exits with 1 if a kernel gets worse."""
    from traceview import __version__
    from traceview.headless.compile_options import CompileOptions
    from traceview.inspect.upgrade import check_upgrade
    from traceview.render.base.safe_text import visible
    from traceview.render.kernels.upgrade import render_json, render_text

    arch = options["arch"]
    archs = arch if isinstance(arch, list) else [arch] if arch else []
    rest = {name: v for name, v in options.items() if name not in ("arch", "sm_count")}

    def note(text: str) -> None:
        click.echo(f"traceview: {visible(text, 600)}", err=True)

    with progress(f"Compiling the kernels of {target[:60]}") as show:
        report = check_upgrade(
            target,
            triton,
            archs,
            CompileOptions(**rest),
            note=note,
            step=lambda text: show(visible(text, 100)),
        )
    if not outputs.stdout:
        print_text(lambda width, color: render_text(report, width=width, color=color))
    outputs.put("json", lambda: render_json(report, __version__))
    if report.worse or report.failures:
        click.get_current_context().exit(1)
