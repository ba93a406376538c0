"""`traceview ptx`: say how wide the memory accesses of kernels are, why, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.cli import debug_option
from traceview.cli.output import (
    STDOUT,
    check_free,
    json_option,
    print_text,
    progress,
    write_file,
)

if TYPE_CHECKING:
    from traceview.ptx.report import PtxReport

_VIEWS = ("source", "ptx", "sass")


def _pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`N=V` options as a mapping."""
    named = [value.partition("=") for value in values]
    for name, equals, _value in named:
        if not equals or not name.isidentifier():
            raise click.BadParameter("write NAME=VALUE, such as BLOCK_SIZE=1024", param=parameter)
    return {name: value for name, _equals, value in named}


@click.command()
@click.argument("target", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@click.option("--kernel", metavar="NAME", help="Only the kernel of this name.")
@click.option("--arch", metavar="sm_90", help="The GPU to compile for; sm_90 if nothing says.")
@click.option(
    "--signature",
    metavar="S",
    help='Compile for these argument types, in Triton\'s notation: "*fp32:16, i32:16, 1024".',
)
@click.option(
    "--constexpr",
    "constexprs",
    multiple=True,
    callback=_pairs,
    metavar="N=V",
    help="Give a constexpr this value (repeatable).",
)
@click.option("--num-warps", type=click.IntRange(1, 32), metavar="N", help="Warps of a block.")
@click.option("--num-stages", type=click.IntRange(0), metavar="N", help="Pipeline stages.")
@click.option("--first-config", is_flag=True, help="Of autotuned kernels, the first config alone.")
@click.option(
    "--emulate", is_flag=True, help="Compute what kernels write, by Triton's interpreter."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="How many seconds the script may run.",
)
@click.option("--sms", "sm_count", type=click.IntRange(1), metavar="N", help="SMs, for the waves.")
@click.option("--source", is_flag=True, help="Show the source with the accesses in the margin.")
@click.option("--ptx", is_flag=True, help="Show the PTX, annotated.")
@click.option("--sass", is_flag=True, help="Show the SASS, annotated.")
@json_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@debug_option
def command(
    target: str | None,
    json_: str | None,
    force: bool,
    source: bool,
    ptx: bool,
    sass: bool,
    **options: Any,
) -> None:
    """Say how wide the memory accesses of TARGET's kernels are, why, and what to change.

    TARGET is a .ptx, .cubin or .cu file, FILE.py[:kernel] or package.module:kernel with Triton
    kernels, or a Triton cache folder. No GPU is needed: a script is run in a process of its own,
    its kernels are compiled and never launched. What follows -- goes to the script.
    """
    if target is None:
        raise click.UsageError(_no_target(json_), click.get_current_context())
    written = Path(json_) if json_ and json_ != STDOUT else None
    if written:
        check_free(written, source=Path(target), force=force)
    report = _made(target, options)
    views = [view for view, wanted in zip(_VIEWS, (source, ptx, sass), strict=True) if wanted]
    if json_ != STDOUT:
        print_text(lambda width, color: _drawn(report, views, width, color))
    if json_:
        _put_json(report, written)


def _no_target(json_: str | None) -> str:
    if json_ and json_ != STDOUT:
        return (
            f"--json took {json_!r} as the file to write, which leaves no TARGET. "
            f"Put TARGET first: traceview ptx {json_} --json"
        )
    return "Missing argument 'TARGET'."


def _made(target: str, options: dict[str, Any]) -> PtxReport:
    import traceview
    from traceview.render.names import visible

    notes: list[str] = []
    with progress(f"Compiling the kernels of {target[:60]}"):
        report = traceview.inspect_ptx(target, note=notes.append, **options)
    for note in notes:
        click.echo(f"traceview: {visible(note, 600)}", err=True)
    return report


def _drawn(report: PtxReport, views: list[str], width: int, color: bool) -> str:
    from traceview.render.ptx_listing import render_views
    from traceview.render.ptx_text import render_ptx_text

    if views:
        return render_views(report, views, width=width, color=color)
    return render_ptx_text(report, width=width, color=color)


def _put_json(report: PtxReport, path: Path | None) -> None:
    from traceview import __version__
    from traceview.render.ptx_json import render_ptx_json

    document = render_ptx_json(report, __version__)
    if path:
        write_file(path, document)
    else:
        click.echo(document, nl=False)
