"""`traceview doctor`: check this machine's setup."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from traceview.base.version import __version__
from traceview.cli import color_option, debug_option
from traceview.cli.options import Verb, option
from traceview.cli.output import print_text, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.traces.recorders import MachineCheck

_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}


@click.command(cls=Verb, examples=("traceview doctor", "traceview doctor --json"))
@option("--json", "Print only JSON to stdout.", "as_json")
@color_option
@debug_option
def command(as_json: bool) -> None:
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
