"""`traceview history`: the runs of a folder over time."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import color_option
from traceview.cli.options import Verb, named, option
from traceview.cli.output import Asked, documents, progress


@click.command(
    cls=Verb,
    examples=("traceview history recordings/", "traceview history recordings/ --html --open"),
)
@click.argument("folder", type=click.Path(path_type=Path))
@documents(" with a chart. Default path: <folder>-history.html")
@option("--mlflow URI", "Also log the runs to this MLflow server or store.", callback=named)
@option("--wandb PROJECT", "Also log the runs to Weights & Biases.", callback=named)
@color_option
def command(folder: Path, asked: Asked, mlflow: str | None, wandb: str | None) -> None:
    """Show step, GPU use, memory and findings of all recordings and baselines in FOLDER over time.

    Runs come in the order in which they were recorded, and each is compared with the one before
    it. To see whether a difference is noise, use traceview compare.
    """
    outputs = asked.outputs(f"{folder.resolve().name or 'runs'}-history", [folder])
    import traceview
    from traceview.base import memory

    memory.prepare()
    with progress("Reading the runs"):
        history = traceview.history(folder)
    outputs.put_answer(history)
    if mlflow:
        click.echo(f"Logged to MLflow: {history.to_mlflow(mlflow)} runs, new ones only", err=True)
    if wandb:
        click.echo(f"Logged to Weights & Biases: {history.to_wandb(wandb)} runs", err=True)
