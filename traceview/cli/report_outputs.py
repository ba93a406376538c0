"""Outputs of a report: one screen or every table on the terminal, files, data on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.cli.output import (
    Outputs,
    check_writable,
    print_text,
    progress,
    say_written,
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


@record
class ScreenOptions:
    """What a terminal shows of a report: every table, or one screen."""

    tables: bool = False
    full_names: bool = False
    pager: bool = True


def check_outputs(outputs: Outputs, source: Path, *, force: bool) -> None:
    """Raise InputError or OutputExistsError if an output cannot be written."""
    check_writable(outputs.files, source=source, force=force)
    folder = outputs.csv
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "pass the path of a folder to --csv")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"folder {folder.parent} does not exist", "create it or choose another")
    present = next(folder.glob("*.csv"), None) if folder.is_dir() else None
    if present is not None and not force:
        raise OutputExistsError(present)


def put_report(report: Report, outputs: Outputs, shown: ScreenOptions) -> None:
    """Write and print a report; the page is rendered while the screen is printed."""
    from concurrent.futures import ThreadPoolExecutor

    def page() -> list[str]:
        from traceview.render.base.table_view import MOST_ROWS
        from traceview.render.report.html import html_pieces

        return [*html_pieces(report, __version__, None if outputs.all_rows else MOST_ROWS)]

    def document() -> Iterator[str]:
        from traceview.render.base.row_limit import MOST_ROWS
        from traceview.render.report.json import json_pieces

        return json_pieces(report, __version__, None if outputs.all_rows else MOST_ROWS)

    with ThreadPoolExecutor(1) as pool:
        rendered = pool.submit(page) if outputs.html else None
        if not outputs.stdout:
            print_report(report, shown)
        if outputs.html and rendered:
            with progress("Rendering the page"):
                pieces = rendered.result()
            write_file(outputs.html, pieces)
    outputs.put("json", document)
    outputs.put("markdown", lambda: show(report, "markdown"))
    if outputs.csv:
        from traceview.render.report.csv_tables import csv_tables

        put_tables(csv_tables(report), outputs.csv)


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
    say_written(folder, f" ({write_folder(folder, written)} tables)")
