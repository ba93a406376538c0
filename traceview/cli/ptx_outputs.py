"""Targets of `traceview ptx`, and what is printed and written of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.cli.output import STDOUT, Outputs, print_text, put_json, write_file
from traceview.outputs import unpacked_name

if TYPE_CHECKING:
    from traceview.inspect.compare.comparison import Diff
    from traceview.inspect.expectations import Expectation
    from traceview.inspect.target_report import PtxReport


# The targets of `traceview ptx`: one or several, and the files that they are in.

_ENDINGS = (".py", ".ptx", ".cubin", ".cu", ".sqlite", ".nsys-rep", ".json")


def targets_of(
    target: str | None, diff: tuple[str, str] | None, options: dict[str, Any]
) -> list[str]:
    """The targets to inspect. With TARGET, --diff names two kernels of it, added to `options`."""
    if diff is None or target is None:
        return [target] if target else list(diff or ())
    if options["kernel"]:
        raise click.UsageError("--diff already names the kernels of TARGET; leave out --kernel")
    options["kernel"] = list(diff)
    return [target]


def is_diff(targets: Sequence[str], options: dict[str, Any]) -> bool:
    values = [*options.values(), *options["constexprs"].values()]
    return len(targets) > 1 or any(isinstance(value, list) for value in values)


def no_target(html: str | None, json_: str | None) -> str:
    for option, path in (("--html", html), ("--json", json_)):
        if path and path != STDOUT:
            return (
                f"{option} took {path!r} as its output path, so TARGET is missing. "
                f"Put TARGET first: traceview ptx {path} {option}"
            )
    return "Missing argument 'TARGET'."


def file_of(target: str) -> Path:
    """The file that a target is in: `gelu.py` of `gelu.py:kernel`."""
    file, colon, _ = target.rpartition(":")
    return Path(file if colon and not Path(target).exists() else target)


def stem_of(targets: Sequence[str]) -> str:
    """The file name of an HTML page without its ending: the names of the targets, joined by `-`."""
    names = [unpacked_name(file_of(target).resolve()) for target in targets]
    stems = (Path(name).stem if Path(name).suffix in _ENDINGS else name for name in names)
    return "-".join(dict.fromkeys(stems)) or "kernels"


# Output of `traceview ptx`: listings and findings, or expectations that are not met.


def put_expectations(
    report: PtxReport | Diff, expectations: list[Expectation], outputs: Outputs
) -> None:
    """Print a line per expectation that is not met, and exit with 1 if there is one."""
    from traceview.inspect.expectations import judge, unmet
    from traceview.inspect.target_report import PtxReport
    from traceview.render.base.safe_text import visible

    if not isinstance(report, PtxReport):
        raise TypeError("a comparison has no expectations")
    report = replace(report, verdicts=judge(expectations, report.kernels))
    _write(report, outputs)
    lines = unmet(report.verdicts)
    for line in lines or [_all_met(report)]:
        click.echo(visible(line, 600), err=outputs.json_to_stdout)
    if lines:
        click.get_current_context().exit(1)


def _all_met(report: PtxReport) -> str:
    from traceview import units

    conditions = units.counted(
        len({(v.expectation, v.condition) for v in report.verdicts}), "condition"
    )
    kernels = units.counted(len({v.kernel for v in report.verdicts}), "kernel")
    return f"{conditions} met by {kernels}"


def put_kernels(
    report: PtxReport | Diff, views: list[str], outputs: Outputs, details: bool
) -> None:
    from traceview.render.kernels import formats as ptx

    if not outputs.json_to_stdout:
        print_text(
            lambda width, color: ptx.text(report, views, width=width, color=color, details=details)
        )
    _write(report, outputs)


def _write(report: PtxReport | Diff, outputs: Outputs) -> None:
    from traceview import __version__
    from traceview.render.kernels import formats as ptx

    if outputs.html:
        write_file(outputs.html, ptx.html(report, __version__))
    if outputs.json or outputs.json_to_stdout:
        put_json(ptx.json(report, __version__), outputs.json)
