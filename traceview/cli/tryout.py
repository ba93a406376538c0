"""`traceview try` and `accuracy`: remedies tried on a program, and what became of forecasts."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.base.version import __version__
from traceview.cli import color_option, output
from traceview.cli.options import Verb, option
from traceview.cli.output import Asked, print_text


@click.command(
    cls=Verb,
    context_settings={"allow_interspersed_args": False},
    sections={
        "What to try": ("-m", "--from", "--remedy", "--dry-run"),
        "Bounds": ("--steps", "--runs", "--seconds"),
        "Output": ("--patch", "--json", "--force", "--no-table"),
    },
    examples=(
        "traceview try train.py --epochs 1",
        "traceview try --from train.sqlite --patch faster.diff train.py",
        "traceview try --remedy fused --remedy num_workers train.py",
    ),
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS...]")
@option("-m, --module", "SCRIPT is a module, as in python -m.", "is_module")
@option(
    "--from TRACE",
    "Take the findings of this recording. Default: record SCRIPT first.",
    "trace",
    type=click.Path(path_type=Path),
)
@option(
    "--remedy NAME",
    "Try this remedy, whatever the findings are (repeatable).",
    "remedies",
    multiple=True,
)
@option("--dry-run", "Only list what would be tried. Runs nothing.")
@option(
    "--steps N",
    "Training steps to time per run.",
    type=click.IntRange(4),
    default=20,
    show_default=True,
)
@option(
    "--runs N",
    "Most runs with each remedy, and as many without. Fewer where that decides.",
    type=click.IntRange(4, 100),
    default=8,
    show_default=True,
)
@option(
    "--seconds S",
    "Most seconds for all runs together; the recording takes at most half of them.",
    type=click.FloatRange(1),
    default=1_800,
    show_default=True,
)
@option(
    "--patch OUT.diff",
    "Write what the kept remedies change in the source as a patch.",
    type=click.Path(path_type=Path),
)
@output.json_option
@option("--no-table", "Do not append the outcome to the local table.")
@color_option
@output.force_option
def try_(
    script: str,
    arguments: tuple[str, ...],
    is_module: bool,
    trace: Path | None,
    remedies: tuple[str, ...],
    dry_run: bool,
    steps: int,
    runs: int,
    seconds: float,
    patch: Path | None,
    json_: str | None,
    no_table: bool,
    force: bool,
) -> None:
    """Run SCRIPT with each mechanical remedy of its findings, and judge whether to keep it.

    Runs the script many times, with and without each remedy in turns, and ends each run after its
    training steps: what follows them, such as saving the model, does not run. Files are not
    edited: the script runs in a scratch copy of this folder. On Linux nothing can write to the
    folder itself, so a program that does so by absolute paths, or changes its files in C code,
    fails. Other folders, databases and services are not isolated. Standard input is empty.

    A remedy is kept if it is proven faster, and if losses and gradients stay the same but for the
    rounding that it is known to change.
    """
    import traceview
    from traceview.render.tryout import render_rows_json, render_try

    outputs = Asked(json_=json_).outputs("")
    files = [*([patch] if patch else []), *outputs.files]
    output.check_writable(files, source=Path(script), force=force, kind="script")
    with output.progress("Starting") as note:
        report = traceview.try_remedies(
            *(["-m"] if is_module else []),
            script,
            # A first `--` only separates the script's arguments from ours.
            *arguments[arguments[:1] == ("--",) :],
            trace=trace,
            remedies=remedies,
            steps=steps,
            runs=runs,
            seconds=seconds,
            dry_run=dry_run,
            remember=not no_table,
            note=note,
        )
    outputs.screen(lambda width, color: render_try(report, width=width, color=color))
    outputs.put("json", lambda: render_rows_json(report.rows(), traceview.__version__))
    if patch and report.trials:
        output.write_file(patch, report.patch().diff)
    if report.table:
        output.say_written(report.table, " (shown by traceview accuracy)")


@click.command(cls=Verb, examples=("traceview accuracy", "traceview accuracy --json"))
@option("--json", "Print only JSON to stdout.", "as_json")
@color_option
def accuracy(as_json: bool) -> None:
    """Show the forecasts of reports beside what `traceview try` measured on this machine."""
    from traceview.render.tryout import render_accuracy, render_rows_json
    from traceview.trials.tryout import ledger

    rows = ledger.read()
    if as_json:
        click.echo(render_rows_json(rows, __version__), nl=False)
        return
    print_text(lambda width, color: render_accuracy(rows, width=width, color=color))
