"""Output of `traceview ptx`: listings and findings, or expectations that are not met."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from traceview.cli.output import Outputs, print_text, put_json, write_file

if TYPE_CHECKING:
    from traceview.inspect.compare.comparison import Diff
    from traceview.inspect.expectations.grammar import Expectation
    from traceview.inspect.target_report import PtxReport


def put_expectations(
    report: PtxReport | Diff, expectations: list[Expectation], outputs: Outputs
) -> None:
    """Print a line per expectation that is not met, and exit with 1 if there is one."""
    from traceview.inspect.expectations.verdicts import judge, unmet
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
