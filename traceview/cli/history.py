"""`traceview history`: the runs of a folder over time."""

from __future__ import annotations

from pathlib import Path

import click

from traceview.cli import color_option, debug_option
from traceview.cli.options import Verb
from traceview.cli.output import (
    Outputs,
    check_writable,
    document_option,
    html_option,
    json_option,
    markdown_option,
    open_in_browser,
    open_option,
    print_text,
    progress,
    write_file,
)


@click.command(
    cls=Verb,
    examples=("traceview history recordings/", "traceview history recordings/ --html --open"),
)
@click.argument("folder", type=click.Path(path_type=Path))
@html_option(" with a chart. Default path: <folder>-history.html")
@document_option
@open_option
@json_option
@markdown_option
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@color_option
@debug_option
def command(
    folder: Path,
    html: str | None,
    output: Path | None,
    opens: bool,
    json_: str | None,
    markdown: str | None,
    force: bool,
) -> None:
    """Show step, GPU use, memory and findings of all recordings and baselines in FOLDER over time.

    Runs come in the order in which they were recorded. Each is beside the one before it; whether a
    difference is noise says traceview compare.
    """
    stem = f"{folder.resolve().name or 'runs'}-history"
    outputs = Outputs.of(stem, output, html, json_, markdown, opens=opens)
    check_writable(outputs.files, source=folder, force=force)
    import traceview
    from traceview import memory

    memory.prepare()
    with progress("Reading the runs"):
        history = traceview.history(folder)
    if not outputs.stdout:
        from traceview.render.history import render_text

        print_text(lambda width, color: render_text(history, width=width, color=color))
    if outputs.html:
        write_file(outputs.html, history.to_html())
    outputs.put("json", history.to_json)
    outputs.put("markdown", history.to_markdown)
    if opens and outputs.html:
        open_in_browser(outputs.html)
