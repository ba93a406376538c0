"""Outputs of a report: one screen or every table on the terminal, files, data on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli.output import (
    STDOUT,
    check_writable,
    print_text,
    progress,
    put_json,
    shows_links,
    write_file,
)
from traceview.display import show
from traceview.errors import InputError, OutputExistsError
from traceview.outputs import write_folder
from traceview.records import record
from traceview.version import __version__

if TYPE_CHECKING:
    from traceview.report import Report


_SUFFIXES = {".html": "html", ".htm": "html", ".json": "json", ".md": "markdown"}


@record
class ScreenOptions:
    """What a terminal shows of a report: every table, or one screen."""

    tables: bool = False
    full_names: bool = False
    pager: bool = True


@record
class ReportOutputs:
    """Destination of each output; None if it was not requested.

    `stdout` is what stdout gets in place of the screen: `json`, `markdown` or nothing.
    """

    html: Path | None = None
    json: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    stdout: str = ""
    all_rows: bool = False

    @classmethod
    def of(
        cls,
        stem: str,
        output: Path | None,
        html: str | None,
        json_: str | None,
        markdown: str | None,
        csv: Path | None,
        all_rows: bool,
    ) -> ReportOutputs:
        """Create from the options; an empty `html` means `<stem>.html`. Misuse is a UsageError."""
        paths = {"html": html, "json": json_, "markdown": markdown}
        if html == "":
            paths["html"] = f"{stem}.html"
        if output is not None:
            kind = _kind_of(output)
            if paths[kind] not in (None, STDOUT):
                raise click.UsageError(f"-o {output} and --{kind} {paths[kind]} both name a file")
            paths[kind] = str(output)
        to_stdout = [kind for kind in ("json", "markdown") if paths[kind] == STDOUT]
        if len(to_stdout) > 1:
            raise click.UsageError("--json and --markdown cannot both go to stdout")
        files = {k: Path(p) for k, p in paths.items() if p is not None and k not in to_stdout}
        if all_rows and not (files or to_stdout):
            raise click.UsageError("--all-rows needs --html or --json")
        return cls(**files, csv=csv, stdout="".join(to_stdout), all_rows=all_rows)

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.html, self.json, self.markdown) if path]

    @property
    def has_tables(self) -> bool:
        """Whether any output shows more than the findings."""
        return bool(self.files or self.stdout or self.csv)

    def prepare(self) -> None:
        """Import the modules that write the outputs, ahead of their use."""
        if not self.stdout:
            import_module("traceview.render.terminal.screen")
        if self.json or self.stdout == "json":
            import_module("traceview.render.report.json")
        if self.html:
            from traceview.render.report.html import prepare

            prepare()

    def check(self, source: Path, *, force: bool) -> None:
        """Raise InputError or OutputExistsError if an output cannot be written."""
        check_writable(self.files, source=source, force=force)
        if self.csv is not None:
            _check_folder(self.csv, force)


def _kind_of(output: Path) -> str:
    kind = _SUFFIXES.get(output.suffix.lower())
    if kind is None:
        known = ", ".join(_SUFFIXES)
        raise click.UsageError(f"-o {output}: its name does not end in one of {known}")
    return kind


def _check_folder(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "pass the path of a folder to --csv")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"folder {folder.parent} does not exist", "create it or choose another")
    present = next(folder.glob("*.csv"), None) if folder.is_dir() else None
    if present is not None and not force:
        raise OutputExistsError(present)


def put_report(report: Report, outputs: ReportOutputs, shown: ScreenOptions) -> None:
    """Write and print a report; the page is rendered while the screen is printed."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(_page, report, outputs.all_rows) if outputs.html else None
        if not outputs.stdout:
            print_report(report, shown)
        if outputs.html and page:
            with progress("Rendering the page"):
                pieces = page.result()
            write_file(outputs.html, pieces)
    if outputs.json or outputs.stdout == "json":
        put_json(_document(report, outputs.all_rows), outputs.json)
    if outputs.markdown or outputs.stdout == "markdown":
        put_json(show(report, "markdown"), outputs.markdown)
    if outputs.csv:
        from traceview.render.report.csv_tables import csv_tables

        put_tables(csv_tables(report), outputs.csv)


def _page(report: Report, all_rows: bool) -> list[str]:
    from traceview.render.base.table_view import MOST_ROWS
    from traceview.render.report.html import html_pieces

    return [*html_pieces(report, __version__, None if all_rows else MOST_ROWS)]


def print_report(report: Report, shown: ScreenOptions) -> None:
    """Print one screen, or every table."""
    if not shown.tables:
        from traceview.render.terminal.screen import render_screen

        print_text(
            lambda width, color: render_screen(
                report, width=width, color=color, links=shows_links()
            )
        )
        return
    from traceview.render.report.text import TextOptions, render_text

    options = TextOptions(full_names=shown.full_names)
    # Older pagers print the escape codes of links as text.
    links = shows_links() and not shown.pager
    print_text(
        lambda width, color: render_text(
            report, width=width, color=color, links=links, options=options
        ),
        pager=shown.pager,
    )


def put_tables(files: Iterable[tuple[str, Iterable[str]]], folder: Path) -> None:
    """Write tables, each a file name and its text in pieces, into a folder."""
    written = ((name, (piece.encode() for piece in pieces)) for name, pieces in files)
    tables = write_folder(folder, written)
    click.echo(f"Wrote {click.format_filename(folder)} ({tables} tables)", err=True)


def _document(report: Report, all_rows: bool) -> Iterator[str]:
    from traceview import __version__
    from traceview.render.base.row_limit import MOST_ROWS
    from traceview.render.report.json import json_pieces

    return json_pieces(report, __version__, None if all_rows else MOST_ROWS)
