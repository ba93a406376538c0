"""Outputs of a report, of one recording or of several ranks: terminal, files, data on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from traceview.base.errors import InputError, OutputExistsError, suggestion
from traceview.base.outputs import unpacked_name, write_folder
from traceview.base.records import record
from traceview.base.version import __version__
from traceview.cli.output import Outputs, print_text, say_written, shows_links

if TYPE_CHECKING:
    from traceview.traces.ranks.job import JobReport
    from traceview.traces.reporting import Report
    from traceview.traces.trace import Trace


@record
class ScreenOptions:
    """What a terminal shows of a report: every table, or one screen."""

    tables: bool = False
    full_names: bool = False
    pager: bool = True


def check_folder(folder: Path | None, *, force: bool) -> None:
    """Raise InputError or OutputExistsError if tables cannot be written into a folder."""
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
        from traceview.render.base.page import MOST_ROWS
        from traceview.render.report.html import html_pieces

        return [*html_pieces(report, __version__, None if outputs.all_rows else MOST_ROWS)]

    with ThreadPoolExecutor(1) as pool:
        rendered = pool.submit(page) if outputs.html else None
        if not outputs.stdout:
            print_report(report, shown)
        outputs.put_documents(report, page=rendered.result if rendered else None)
    if outputs.csv:
        from traceview.render.report.json import csv_tables

        put_tables(csv_tables(report), outputs.csv)


def print_report(report: Report, shown: ScreenOptions) -> None:
    """Print one screen, or every table."""
    if not shown.tables:
        from traceview.render.screen import render_screen

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


# The subject of a report: one recording, one rank of a job, or all ranks of a job.


@record
class RanksRequest:
    """The recordings named on the command line, and the options about ranks."""

    paths: tuple[Path, ...]
    ranks: bool = False
    rank: int | None = None
    jobs: int | None = None
    dask: str | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for options that exclude each other."""
        of_job = (("--ranks", self.ranks), ("--jobs", self.jobs), ("--dask", self.dask))
        for option, value in of_job:
            if value and self.rank is not None:
                raise _misuse(f"{option} compares ranks, and --rank reports on one alone.")

    def recording(self) -> Path | None:
        """The recording if the report is about a single one; None for a job or a rank of one."""
        if self.rank is not None or self.ranks or self.dask or len(self.paths) > 1:
            return None
        if not (self.paths[0].is_dir() or _is_glob(self.paths[0])):
            return self.paths[0]
        from traceview.traces.ranks.execution.task import rank_files

        files = rank_files([str(self.paths[0])])
        return Path(files[0].path) if len(files) == 1 else None

    @property
    def patterns(self) -> list[str]:
        return [str(path) for path in self.paths]

    @property
    def stem(self) -> str:
        """The file name of outputs without extension, from the folder or the first recording."""
        first = self.paths[0]
        if len(self.paths) > 1 or _is_glob(first):
            first = first.parent
        name = first.resolve().name if first.is_dir() else Path(unpacked_name(first)).stem
        if self.rank is not None:
            return f"{name}-rank-{self.rank}"
        return f"{name or 'job'}{'-ranks' if self.ranks and not first.is_dir() else ''}"

    def load_rank(self) -> Trace:
        """The trace of the rank that --rank names."""
        from traceview import load
        from traceview.traces.ranks.execution.reading import trace_of_rank

        return trace_of_rank(self.patterns, self.rank or 0, load)

    def check_one(self) -> None:
        """Raise UsageError for options that apply only to a job."""
        for option, value in (("--jobs", self.jobs), ("--ranks", self.ranks)):
            if value:
                raise _misuse(f"{option} compares ranks, and this is one recording.")

    def check_job(self, of_one_rank: Mapping[str, object]) -> None:
        """Raise UsageError for a set option that applies only to the report of one rank."""
        for option, value in of_one_rank.items():
            if value:
                raise _misuse(f"{option} applies to the report of one rank: add --rank N.")


def _is_glob(path: Path) -> bool:
    return any(sign in str(path) for sign in "*?[") and not path.exists()


def _misuse(text: str) -> click.UsageError:
    return click.UsageError(text, click.get_current_context())


def check_tables(names: Sequence[str], outputs: Outputs) -> None:
    """Raise UsageError if --only names no table of a job, or if an output does not support it."""
    from traceview.traces.ranks.tables import TABLES

    tables = [spec.name for spec in TABLES]
    for name in names:
        if name not in tables:
            raise _misuse(
                f"no table of several ranks is named {name!r}; {suggestion(name, tables)}"
            )
    if names and (outputs.html or outputs.markdown or outputs.stdout == "markdown"):
        raise _misuse(
            "--only selects tables of the terminal, --json and --csv, not of other outputs."
        )


# Outputs of the report of a job: one screen or every table, files, data on stdout.


def put_job(job: JobReport, outputs: Outputs, shown: ScreenOptions, only: Sequence[str]) -> None:
    """Write and print the report of a job, with the tables named in `only`, or all if empty."""
    from traceview.base import units
    from traceview.render.base.safe_text import visible

    if not outputs.stdout:
        from traceview.render.ranks.text import render_job

        print_text(
            lambda width, color: render_job(
                job, width=width, color=color, all_tables=shown.tables, only=only
            ),
            pager=shown.tables and shown.pager,
        )
    outputs.put_documents(job, only)
    if outputs.csv:
        put_tables(_tables(job, only), outputs.csv)
    if job.failed:
        # The exit status does not show that recordings could not be read.
        first, others = job.failed[0], len(job.failed) - 1
        text = visible(f"{PurePath(first.path).name}: {first.reason}", 400)
        rest = f" (and {units.count(others)} more)" if others else ""
        click.echo(f"traceview: warning: left out {text}{rest}", err=True)


def _tables(job: JobReport, only: Sequence[str]) -> Iterator[tuple[str, Iterator[str]]]:
    from traceview.render.ranks.document import ranked_findings
    from traceview.render.report.json import csv_text
    from traceview.traces.ranks.tables import chosen
    from traceview.traces.reporting import findings_table

    yield "findings.csv", csv_text(findings_table(ranked_findings(job)))
    for spec in chosen(only):
        yield f"{spec.name}.csv", csv_text(job.result.tables[spec.name])
