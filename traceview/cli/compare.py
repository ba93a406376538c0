"""`traceview compare`: what changed between two recordings, or between several per side."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli import color_option, debug_option
from traceview.cli.options import Verb
from traceview.cli.output import (
    STDOUT,
    document_option,
    json_option,
    markdown_option,
    open_in_browser,
    open_option,
    print_text,
    progress,
    put_json,
    write_file,
)
from traceview.cli.report_outputs import ReportOutputs
from traceview.outputs import unpacked_name

if TYPE_CHECKING:
    from traceview.comparison.comparison import RunComparison

_DEFAULT_PATH = ""
_MAGIC = frozenset("*?[")


def _matching(
    _: click.Context, parameter: click.Parameter, patterns: tuple[str, ...]
) -> tuple[Path, ...]:
    """The files and folders that globs match; a name without wildcards is itself."""
    paths: list[Path] = []
    for pattern in patterns:
        matches = _files(pattern)
        if not matches:
            raise click.BadParameter(f"no file matches {pattern!r}", param=parameter)
        paths += map(Path, matches)
    return tuple(dict.fromkeys(paths))


def _files(pattern: str) -> list[str]:
    if not _MAGIC & set(pattern):
        return [pattern]
    # A Path has no glob for absolute patterns.
    return sorted(glob.glob(pattern))  # noqa: PTH207


@click.command(
    cls=Verb,
    sections={
        "Input": ("--before", "--after"),
        "Terminal": ("--no-pager", "--color"),
        "Output": ("-o", "--html", "--open", "--json", "--markdown", "--force"),
    },
    examples=(
        "traceview compare before.sqlite after.sqlite --html",
        "traceview compare --before 'main/*.sqlite' --after 'branch/*.sqlite'",
    ),
)
@click.argument("paths", nargs=-1, metavar="BEFORE AFTER", type=click.Path(path_type=Path))
@click.option(
    "--before",
    multiple=True,
    metavar="GLOB",
    callback=_matching,
    help="Recordings from before the change, or folders of them (repeatable).",
)
@click.option(
    "--after",
    multiple=True,
    metavar="GLOB",
    callback=_matching,
    help="Recordings from after the change, or folders of them (repeatable).",
)
@click.option(
    "--html",
    is_flag=False,
    flag_value=_DEFAULT_PATH,
    metavar="[PATH]",
    help="Write a self-contained HTML page with both timelines. Default path: "
    "<before>-vs-<after>.html in the current folder.",
)
@document_option
@open_option
@json_option
@markdown_option
@click.option("--no-pager", is_flag=True, help="Print without a pager.")
@color_option
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite existing files, and compare recordings that are otherwise refused, such as "
    "those of different GPUs.",
)
@debug_option
def command(
    paths: tuple[Path, ...],
    before: tuple[Path, ...],
    after: tuple[Path, ...],
    html: str | None,
    output: Path | None,
    opens: bool,
    json_: str | None,
    markdown: str | None,
    no_pager: bool,
    force: bool,
) -> None:
    """Show what changed between BEFORE and AFTER, and how much of the step each change takes.

    Each is a recording or a folder of recordings. With one recording per side it is not known
    whether a difference is noise: record each version four times or more, and pass --before and
    --after. Exit status: 0 compared, 1 a file cannot be read, 2 refused or misuse.
    """
    sides = _sides(paths, before, after, html, json_, markdown)
    if opens and html is None and not (output and output.suffix.startswith(".htm")):
        html = _DEFAULT_PATH
    stem = "-vs-".join(_stem(side) for side in sides)
    outputs = ReportOutputs.of(stem, output, html, json_, markdown, None, all_rows=False)
    for source in (*sides[0], *sides[1]):
        outputs.check(source, force=force)
    _put(_compared(*sides, force), outputs, pager=not no_pager)
    if opens and outputs.html:
        open_in_browser(outputs.html)


def _sides(
    paths: Sequence[Path],
    before: Sequence[Path],
    after: Sequence[Path],
    *outputs: str | None,
) -> tuple[Sequence[Path], Sequence[Path]]:
    """The inputs of both sides. Misuse is a UsageError."""
    context = click.get_current_context()
    if not paths and before and after:
        return before, after
    if len(paths) == 2 and not (before or after):
        return paths[:1], paths[1:]
    if paths and (before or after):
        raise click.UsageError("pass BEFORE and AFTER, or --before and --after, not both", context)
    if len(paths) > 2:
        raise click.UsageError(
            "pass several recordings per side as --before 'GLOB' --after 'GLOB'", context
        )
    raise click.UsageError(_missing(bool(before or after), paths, outputs), context)


def _missing(one_side: bool, paths: Sequence[Path], outputs: Sequence[str | None]) -> str:
    if one_side:
        return "--before and --after belong together."
    for option, value in zip(("--html", "--json", "--markdown"), outputs, strict=True):
        if value and value != STDOUT:
            return f"{option} took {value!r} as its output file. Put BEFORE and AFTER first."
    return f"Missing argument '{'AFTER' if paths else 'BEFORE'}'."


def _stem(side: Sequence[Path]) -> str:
    return Path(unpacked_name(side[0].absolute())).stem


def _compared(before: Sequence[Path], after: Sequence[Path], force: bool) -> RunComparison:
    import traceview
    from traceview.memory import import_numpy, keep_freed_memory

    import_numpy()
    keep_freed_memory()
    with progress("Reading the recordings"):
        return traceview.compare(before, after, force=force)


def _put(comparison: RunComparison, outputs: ReportOutputs, *, pager: bool) -> None:
    """Write and print a comparison."""
    if not outputs.stdout:
        _print(comparison, pager)
    if outputs.html:
        with progress("Rendering the page"):
            page = comparison.to_html()
        write_file(outputs.html, page)
    if outputs.json or outputs.stdout == "json":
        put_json(comparison.to_json(), outputs.json)
    if outputs.markdown or outputs.stdout == "markdown":
        put_json(comparison.to_markdown(), outputs.markdown)


def _print(comparison: RunComparison, pager: bool) -> None:
    from traceview.render.comparison.text import render_text

    print_text(lambda width, color: render_text(comparison, width=width, color=color), pager=pager)
