"""`traceview help`: the help of a command, as its --help prints it."""

from __future__ import annotations

import click

from traceview.cli import VERBS, debug_option, group
from traceview.cli.options import Verb


@click.command(cls=Verb, examples=("traceview help report",))
@click.argument("verb", type=click.Choice(list(VERBS)), required=False)
@debug_option
@click.pass_context
def command(ctx: click.Context, verb: str | None) -> None:
    """Show the help of a command; without one, all commands."""
    outer = ctx.parent
    assert outer is not None
    found = group.get_command(outer, verb) if verb else None
    shown = click.Context(found, outer, verb) if found else outer
    click.echo(shown.get_help())
