"""`traceview completion`: print the script that makes a shell complete this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from traceview.cli import debug_option, group
from traceview.cli.options import Verb

_VARIABLE = "_TRACEVIEW_COMPLETE"


@click.command(
    cls=Verb,
    examples=(
        "traceview completion bash >> ~/.bashrc",
        "traceview completion fish > ~/.config/fish/completions/traceview.fish",
    ),
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@debug_option
def command(shell: str) -> None:
    """Print the completion script of a shell, for verbs, options, analyses and ranges."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click has no completion for {shell}")
    script = click.shell_completion.ShellComplete.source
    click.echo(script(kind(group, {}, "traceview", _VARIABLE)))
