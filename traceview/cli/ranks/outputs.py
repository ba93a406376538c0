"""Outputs of the report of a job: one screen or every table, files, data on stdout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from traceview.cli.options.report_outputs import ReportOutputs, ScreenOptions, put_tables
from traceview.cli.output import print_text, progress, put_json, write_file

if TYPE_CHECKING:
    from traceview.ranks.job import JobReport


def put_job(
    job: JobReport, outputs: ReportOutputs, shown: ScreenOptions, only: Sequence[str]
) -> None:
    """Write and print the report of a job, with the tables named in `only`, or all if empty."""
    if not outputs.stdout:
        _print(job, shown, only)
    if outputs.html:
        write_file(outputs.html, _page(job, outputs.all_rows))
    if outputs.json or outputs.stdout == "json":
        put_json(_document(job, outputs.all_rows, only), outputs.json)
    if outputs.markdown or outputs.stdout == "markdown":
        put_json(job.to_markdown(), outputs.markdown)
    if outputs.csv:
        put_tables(_tables(job, only), outputs.csv)
    _warn(job)


def _print(job: JobReport, shown: ScreenOptions, only: Sequence[str]) -> None:
    from traceview.render.ranks.text import render_job

    print_text(
        lambda width, color: render_job(
            job, width=width, color=color, all_tables=shown.tables, only=only
        ),
        pager=shown.tables and shown.pager,
    )


def _page(job: JobReport, all_rows: bool) -> str:
    with progress("Rendering the page"):
        return job.to_html(all_rows=all_rows)


def _document(job: JobReport, all_rows: bool, only: Sequence[str]) -> Iterator[str]:
    from traceview import __version__
    from traceview.render.base.row_limit import MOST_ROWS
    from traceview.render.ranks.json import json_pieces

    return json_pieces(job, __version__, None if all_rows else MOST_ROWS, only)


def _tables(job: JobReport, only: Sequence[str]) -> Iterator[tuple[str, Iterator[str]]]:
    from traceview.ranks.tables import chosen
    from traceview.render.ranks.figures import ranked_findings
    from traceview.render.report.csv_tables import csv_text
    from traceview.report import findings_table

    yield "findings.csv", csv_text(findings_table(ranked_findings(job)))
    for spec in chosen(only):
        yield f"{spec.name}.csv", csv_text(job.result.tables[spec.name])


def _warn(job: JobReport) -> None:
    """Warn on stderr of recordings that could not be read: the exit status does not show it."""
    from traceview import units
    from traceview.render.base.safe_text import visible

    if not job.failed:
        return
    first = job.failed[0]
    text = f"{PurePath(first.path).name}: {first.reason}"
    rest = f" (and {units.count(len(job.failed) - 1)} more)" if len(job.failed) > 1 else ""
    click.echo(f"traceview: warning: left out {visible(text, 400)}{rest}", err=True)
