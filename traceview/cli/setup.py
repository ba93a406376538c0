"""`traceview doctor`, `mcp`, `schema`, `completion` and `help`: setup, editors and agents."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from traceview.base.version import __version__
from traceview.cli import VERBS, color_option, group
from traceview.cli.options import Verb, option
from traceview.cli.output import output_file, print_text, progress, put_json
from traceview.render.forms import JSON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.traces.recorders import MachineCheck


_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}


@click.command(cls=Verb, examples=("traceview doctor", "traceview doctor --json"))
@option("--json", "Print only JSON to stdout.", "as_json")
@color_option
def doctor(as_json: bool) -> None:
    """Check this machine's setup and show how to fix what is missing."""
    from traceview.traces.recorders import check_machine

    with progress("Testing nsys"):
        checks = check_machine()
    if as_json:
        from traceview.render.base.json_text import SCHEMA_VERSION

        versions = {"schema_version": SCHEMA_VERSION, "traceview_version": __version__}
        document = {**versions, "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_text(lambda width, color: _table(checks, width, color))


def _table(checks: Sequence[MachineCheck], width: int, color: bool) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from traceview.render.base.safe_text import visible

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("component", "status", "details"):
        table.add_column(title, overflow="fold")
    for check in checks:
        lines = (check.detail, check.remedy and f"Fix: {check.remedy}")
        details = "\n".join(visible(line, 600) for line in lines if line)
        table.add_row(check.name, Text(check.status, _STYLES[check.status]), Text(details))
    console = Console(width=width, force_terminal=color, no_color=not color, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@click.command(cls=Verb, examples=("traceview mcp", "traceview mcp recordings/"))
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@option("--mcp", "As `traceview serve` was called.", hidden=True)
def mcp(folder: Path, mcp: bool) -> None:  # noqa: ARG001 (a verb of its own now)
    """Answer questions from agents and editors about the recordings in FOLDER.

    Speaks the Model Context Protocol on stdin and stdout. They can list recordings and questions,
    ask one, see the evidence of a finding, inspect a kernel, and compare. Nothing is written, no
    program of yours is run, and nothing outside FOLDER is read. Default: the current folder.
    """
    from traceview.serve.server import serve

    serve(folder)


@click.command(
    cls=Verb, examples=("traceview schema report", "traceview schema ptx -o ptx.schema.json")
)
@click.argument("name", type=click.Choice([*JSON]))
@output_file("PATH", "Write the schema to this file. Default: stdout.")
@option("--force", "Overwrite an existing file.")
def schema(name: str, output: Path | None, force: bool) -> None:
    """Print the JSON Schema of what a command writes with --json.

    ranks is `traceview report` of several ranks, ptx-diff, ptx-triton and ptx-configs are
    `traceview ptx` with --diff, --triton and --configs, bench-program is `traceview bench` of a
    whole program, try is also of `traceview accuracy`.
    """
    from traceview.base.outputs import check_output
    from traceview.render import json as documents

    if output is not None:
        check_output(output, force=force)
    put_json(json.dumps(documents.schema(name), indent=1) + "\n", output)


_VARIABLE = "_TRACEVIEW_COMPLETE"


@click.command(
    cls=Verb,
    examples=(
        "traceview completion bash >> ~/.bashrc",
        "traceview completion fish > ~/.config/fish/completions/traceview.fish",
    ),
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a shell, for verbs, options, analyses and ranges."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click has no completion for {shell}")
    script = click.shell_completion.ShellComplete.source
    click.echo(script(kind(group, {}, "traceview", _VARIABLE)))


@click.command(cls=Verb, examples=("traceview help report",))
@click.argument("verb", type=click.Choice(list(VERBS)), required=False)
@click.pass_context
def help_(ctx: click.Context, verb: str | None) -> None:
    """Show the help of a command; without one, all commands."""
    outer = ctx.parent
    assert outer is not None
    found = group.get_command(outer, verb) if verb else None
    shown = click.Context(found, outer, verb) if found else outer
    click.echo(shown.get_help())
