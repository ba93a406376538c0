"""`traceview gate`: fail a build on a regression, with a stated chance of error."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from traceview.base.errors import TraceviewError
from traceview.cli import Settings, color_option
from traceview.cli.options import Verb, one_option_per_value, option
from traceview.cli.output import Asked, check_writable, json_option, write_file

_UNDECIDED = 2


class _GateVerb(Verb):
    """Takes several values after `--candidate`: all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, one_option_per_value(args))


@click.command(
    cls=_GateVerb,
    examples=(
        "traceview gate base.json --candidate run1.sqlite run2.sqlite --config gate.toml",
        "traceview gate base.json --candidate run*.sqlite --config gate.toml --github",
    ),
)
@click.argument("baselines", type=click.Path(path_type=Path), metavar="BASELINE...", nargs=-1)
@option(
    "--candidate TRACE...",
    "Recordings or baselines to judge, each run on its own.",
    "candidates",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
)
@option(
    "--config gate.toml",
    "Read the rules from this file: a TOML table per figure (docs/gate.md).",
    required=True,
    type=click.Path(path_type=Path),
)
@option("--github", "Print annotations for GitHub Actions, and add to its job summary.")
@option("--junit PATH", "Write the outcome as JUnit XML.", type=click.Path(path_type=Path))
@json_option
@option(
    "--force",
    "Overwrite existing files, and judge runs that are otherwise refused, such as those of "
    "different GPUs.",
)
@color_option
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
    outputs = Asked(json_=json_).outputs("")
    files = [*([junit] if junit else []), *outputs.files]
    for source in (*baselines, *candidates, config):
        check_writable(files, source=source, force=force)
    report = traceview.gate(baselines, candidates, config, force=force)

    from traceview.render.gate import (
        job_summary,
        render_junit,
        render_text,
        workflow_commands,
    )

    outputs.screen(lambda width, color: render_text(report, width=width, color=color))
    if github:
        click.echo(workflow_commands(report), nl=False, err=bool(outputs.stdout))
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                with Path(summary).open("a", encoding="utf-8") as file:
                    file.write(job_summary(report))
            except OSError as error:
                raise TraceviewError(
                    f"cannot write the job summary {summary}: {error.strerror or error}",
                    "correct or unset $GITHUB_STEP_SUMMARY",
                ) from error
    if junit:
        write_file(junit, render_junit(report, datetime.now(UTC)))
    outputs.put_documents(report)
    return report.exit_status
