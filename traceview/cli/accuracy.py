"""`traceview accuracy`: what forecasts said and what trials measured on this machine."""

from __future__ import annotations

import click

from traceview.base.version import __version__
from traceview.cli import color_option, debug_option
from traceview.cli.options import Verb, option
from traceview.cli.output import print_text


@click.command(cls=Verb, examples=("traceview accuracy", "traceview accuracy --json"))
@option("--json", "Print only JSON to stdout.", "as_json")
@color_option
@debug_option
def command(as_json: bool) -> None:
    """Show the forecasts of reports beside what `traceview try` measured on this machine."""
    from traceview.render.tryout import render_accuracy, render_rows_json
    from traceview.trials.tryout import ledger

    rows = ledger.read()
    if as_json:
        click.echo(render_rows_json(rows, __version__), nl=False)
        return
    print_text(lambda width, color: render_accuracy(rows, width=width, color=color))
