"""`traceview gate`: fail a build on a regression, with a stated chance of error."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli import Settings, color_option, debug_option
from traceview.cli.options import Verb
from traceview.cli.output import (
    STDOUT,
    check_writable,
    json_option,
    print_text,
    put_json,
    write_file,
)
from traceview.errors import TraceviewError

if TYPE_CHECKING:
    from traceview.comparison.gate import GateReport

_CANDIDATE = "--candidate"
_UNDECIDED = 2
_SUMMARY = "GITHUB_STEP_SUMMARY"


class _GateVerb(Verb):
    """Takes several values after `--candidate`: all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_one_option_per_candidate(args)))


def _one_option_per_candidate(arguments: Sequence[str]) -> Iterator[str]:
    values = -1
    for argument in arguments:
        if argument.startswith("-"):
            name, equals, _ = argument.partition("=")
            values = int(bool(equals)) if name == _CANDIDATE else -1
        elif values >= 0:
            values += 1
            if values > 1:
                yield _CANDIDATE
        yield argument


@click.command(
    cls=_GateVerb,
    examples=(
        "traceview gate base.json --candidate run1.sqlite run2.sqlite --config gate.toml",
        "traceview gate base.json --candidate run*.sqlite --config gate.toml --github",
    ),
)
@click.argument("baselines", type=click.Path(path_type=Path), metavar="BASELINE...", nargs=-1)
@click.option(
    _CANDIDATE,
    "candidates",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="TRACE...",
    help="Recordings or baselines to judge, each run on its own.",
)
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path),
    metavar="gate.toml",
    help="Read the rules from this file: a TOML table per figure (docs/gate.md).",
)
@click.option(
    "--github",
    is_flag=True,
    help="Print annotations for GitHub Actions, and add to its job summary.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write the outcome as JUnit XML.",
)
@json_option
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite existing files, and judge runs that are otherwise refused, such as those of "
    "different GPUs.",
)
@color_option
@debug_option
def command(
    baselines: tuple[Path, ...],
    candidates: tuple[Path, ...],
    config: Path,
    github: bool,
    junit: Path | None,
    json_: str | None,
    force: bool,
) -> int:
    """Judge recordings against a baseline, by the rules of a configuration.

    BASELINE... are files of `traceview baseline`, or recordings. Exit status: 0 passed, 1
    regressed, 2 undecided or misuse. Where undecided, the output says how many more runs would
    decide.
    """
    import traceview

    if not baselines:
        raise click.UsageError("name what to compare with: BASELINE...")
    if settings := click.get_current_context().find_object(Settings):
        # Whatever cannot be judged is undecided: 1 would be a regression.
        settings.failed = _UNDECIDED
    outputs = [path for path in (junit, _file(json_)) if path]
    for source in (*baselines, *candidates, config):
        check_writable(outputs, source=source, force=force)
    report = traceview.gate(baselines, candidates, config, force=force)
    _write(report, junit, json_, github)
    return report.exit_status


def _file(json_: str | None) -> Path | None:
    return Path(json_) if json_ and json_ != STDOUT else None


def _write(report: GateReport, junit: Path | None, json_: str | None, github: bool) -> None:
    from traceview import __version__
    from traceview.render.gate import (
        job_summary,
        render_json,
        render_junit,
        render_text,
        workflow_commands,
    )

    if json_ != STDOUT:
        print_text(lambda width, color: render_text(report, width=width, color=color))
    if github:
        click.echo(workflow_commands(report), nl=False, err=json_ == STDOUT)
        if os.environ.get(_SUMMARY):
            _append(Path(os.environ[_SUMMARY]), job_summary(report))
    if junit:
        write_file(junit, render_junit(report, datetime.now(UTC)))
    if json_:
        put_json(render_json(report, __version__), _file(json_))


def _append(summary: Path, text: str) -> None:
    try:
        with summary.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise TraceviewError(
            f"cannot write the job summary {summary}: {error.strerror or error}",
            f"correct or unset ${_SUMMARY}",
        ) from error
