"""`traceview compare`: what changed between two recordings, or between several per side."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import click

from traceview.base.outputs import unpacked_name
from traceview.cli import color_option
from traceview.cli.options import Verb, option
from traceview.cli.output import Asked, documents, progress

_MAGIC = frozenset("*?[")


def _matching(
    _: click.Context, parameter: click.Parameter, patterns: tuple[str, ...]
) -> tuple[Path, ...]:
    """The files and folders that globs match; a name without wildcards is itself."""
    paths: list[Path] = []
    for pattern in patterns:
        # A Path has no glob for absolute patterns.
        matches = sorted(glob.glob(pattern)) if _MAGIC & set(pattern) else [pattern]  # noqa: PTH207
        if not matches:
            raise click.BadParameter(f"no file matches {pattern!r}", param=parameter)
        paths += map(Path, matches)
    return tuple(dict.fromkeys(paths))


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
@option(
    "--before GLOB",
    "Recordings from before the change, or folders of them (repeatable).",
    multiple=True,
    callback=_matching,
)
@option(
    "--after GLOB",
    "Recordings from after the change, or folders of them (repeatable).",
    multiple=True,
    callback=_matching,
)
@documents(
    " with both timelines. Default path: <before>-vs-<after>.html",
    option(
        "--force",
        "Overwrite existing files, and compare recordings that are otherwise refused, such as "
        "those of different GPUs.",
    ),
)
@option("--no-pager", "Print without a pager.")
@color_option
def command(
    paths: tuple[Path, ...],
    before: tuple[Path, ...],
    after: tuple[Path, ...],
    no_pager: bool,
    asked: Asked,
) -> None:
    """Show what changed between BEFORE and AFTER, and how much of the step each change takes.

    Each is a recording or a folder of recordings. With one recording per side it is not known
    whether a difference is noise: record each version four times or more, and pass --before and
    --after. Exit status: 0 compared, 1 a file cannot be read, 2 refused or misuse.
    """
    sides = _sides(paths, before, after, asked)
    stem = "-vs-".join(Path(unpacked_name(side[0].absolute())).stem for side in sides)
    outputs = asked.outputs(stem, (*sides[0], *sides[1]))
    import traceview
    from traceview.base import memory

    memory.prepare()
    with progress("Reading the recordings"):
        comparison = traceview.compare(*sides, force=asked.force)
    outputs.put_answer(comparison, pager=not no_pager)


def _sides(
    paths: Sequence[Path], before: Sequence[Path], after: Sequence[Path], asked: Asked
) -> tuple[Sequence[Path], Sequence[Path]]:
    """The inputs of both sides. Misuse is a UsageError."""
    if not paths and before and after:
        return before, after
    if len(paths) == 2 and not (before or after):
        return paths[:1], paths[1:]
    if not paths and (before or after):
        what = "--before and --after belong together."
    elif before or after:
        what = "pass BEFORE and AFTER, or --before and --after, not both"
    elif len(paths) > 2:
        what = "pass several recordings per side as --before 'GLOB' --after 'GLOB'"
    else:
        name = "AFTER" if paths else "BEFORE"
        raise asked.no_input(name, "Put BEFORE and AFTER first.", "or pass --before and --after")
    raise click.UsageError(what, click.get_current_context())
