"""`traceview ptx`: say how wide the memory accesses of kernels are, why, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.cli import debug_option
from traceview.cli.multi_value_options import one_or_list, parted, spread
from traceview.cli.output import (
    STDOUT,
    Outputs,
    check_writable,
    json_option,
    print_text,
    progress,
    put_json,
    write_file,
)
from traceview.outputs import unpacked_name

if TYPE_CHECKING:
    from traceview.inspect.compare.comparison import Diff
    from traceview.inspect.target_report import PtxReport

_VIEWS = ("source", "ptx", "sass")
_ENDINGS = (".py", ".ptx", ".cubin", ".cu", ".sqlite", ".nsys-rep", ".json")
_HERE = ""


class _Ptx(click.Command):
    """Takes options with several values, and gives the script what follows `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, behind = parted(args)
        left = super().parse_args(ctx, spread(ours))
        if behind and ctx.params["target"] is None and ctx.params["diff"] is None:
            ctx.params["target"] = behind.pop(0)
        ctx.params["arguments"] += tuple(behind)
        return left


def _one_or_list(_: click.Context, __: click.Parameter, values: tuple[Any, ...]) -> Any:
    return one_or_list(values)


def _pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """`N=V` options as a mapping; a name that is given several values has a list."""
    named: dict[str, list[str]] = {}
    for pair in values:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter("write NAME=VALUE, such as BLOCK_SIZE=1024", param=parameter)
        named.setdefault(name, []).append(value)
    return {name: one_or_list(each) for name, each in named.items()}


@click.command(cls=_Ptx)
@click.argument("target", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@click.option("--kernel", metavar="NAME", help="Only the kernel of this name.")
@click.option(
    "--diff",
    nargs=2,
    metavar="A B",
    help="Compare two targets, or two kernels of TARGET.",
)
@click.option(
    "--arch",
    multiple=True,
    callback=_one_or_list,
    metavar="sm_90...",
    help="The GPU to compile for; sm_90 if nothing says.",
)
@click.option(
    "--signature",
    multiple=True,
    callback=_one_or_list,
    metavar="S...",
    help='Compile for these argument types, in Triton\'s notation: "*fp32:16, i32:16, 1024".',
)
@click.option(
    "--constexpr",
    "constexprs",
    multiple=True,
    callback=_pairs,
    metavar="N=V...",
    help="Give a constexpr this value (repeatable).",
)
@click.option(
    "--num-warps",
    multiple=True,
    callback=_one_or_list,
    type=click.IntRange(1, 32),
    metavar="N...",
    help="Warps of a block.",
)
@click.option(
    "--num-stages",
    multiple=True,
    callback=_one_or_list,
    type=click.IntRange(0),
    metavar="N...",
    help="Pipeline stages.",
)
@click.option("--first-config", is_flag=True, help="Of autotuned kernels, the first config alone.")
@click.option(
    "--emulate", is_flag=True, help="Compute what kernels write, by Triton's interpreter."
)
@click.option(
    "--compile",
    "compile_torch",
    is_flag=True,
    help="Experimental: also the kernels that torch.compile generates.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="How many seconds the script may run.",
)
@click.option(
    "--sms", "sm_count", type=click.IntRange(1), metavar="N", help="SMs of the GPU, for the waves."
)
@click.option("--source", is_flag=True, help="Show the source with the accesses in the margin.")
@click.option("--ptx", is_flag=True, help="Show the PTX, annotated.")
@click.option("--sass", is_flag=True, help="Show the SASS, annotated.")
@click.option(
    "--html",
    is_flag=False,
    flag_value=_HERE,
    metavar="[PATH]",
    help="Write one HTML page; with no path, <target>.html in the current folder.",
)
@json_option
@click.option("--force", is_flag=True, help="Replace files that exist.")
@debug_option
def command(
    target: str | None,
    diff: tuple[str, str] | None,
    html: str | None,
    json_: str | None,
    force: bool,
    source: bool,
    ptx: bool,
    sass: bool,
    **options: Any,
) -> None:
    """Say how wide the memory accesses of TARGET's kernels are, why, and what to change.

    TARGET is a .ptx, .cubin or .cu file, FILE.py[:kernel] or package.module:kernel with Triton
    kernels, a Triton cache folder, or a trace: the kernels that ran in it. No GPU is needed: a
    script is run in a process of its own, its kernels are compiled and never launched. What
    follows -- goes to the script.

    Several values of --num-warps, --num-stages, --arch, --constexpr or --signature, such as
    --num-warps 4 8, are compared side by side, as --diff compares two targets or kernels.
    """
    if target is None and diff is None:
        raise click.UsageError(_no_target(html, json_), click.get_current_context())
    views = [view for view, wanted in zip(_VIEWS, (source, ptx, sass), strict=True) if wanted]
    targets = _compared(target, diff, options)
    if views and _is_diff(targets, options):
        raise click.UsageError(f"--{views[0]} shows one version of a kernel, not a comparison")
    wanted = Outputs.of(_stem(targets), html, json_)
    for each in targets:
        check_writable(wanted.files, source=_file(each), force=force, kind="target")
    _show(_made(targets, options), views, wanted)


def _compared(
    target: str | None, diff: tuple[str, str] | None, options: dict[str, Any]
) -> list[str]:
    """The targets: those of --diff, or the one whose kernels --diff names, which become options."""
    if diff is None or target is None:
        return [target] if target else list(diff or ())
    if options["kernel"]:
        raise click.UsageError("--diff names the kernels of TARGET: leave out --kernel")
    options["kernel"] = list(diff)
    return [target]


def _is_diff(targets: Sequence[str], options: dict[str, Any]) -> bool:
    values = [*options.values(), *options["constexprs"].values()]
    return len(targets) > 1 or any(isinstance(value, list) for value in values)


def _no_target(html: str | None, json_: str | None) -> str:
    for option, taken in (("--html", html), ("--json", json_)):
        if taken and taken != STDOUT:
            return (
                f"{option} took {taken!r} as the file to write, which leaves no TARGET. "
                f"Put TARGET first: traceview ptx {taken} {option}"
            )
    return "Missing argument 'TARGET'."


def _file(target: str) -> Path:
    """The file that a target is in: `gelu.py` of `gelu.py:kernel`."""
    file, colon, _ = target.rpartition(":")
    return Path(file if colon and not Path(target).exists() else target)


def _stem(targets: Sequence[str]) -> str:
    """What a page is called after: the files without their endings, modules by their names."""
    names = [unpacked_name(_file(target).resolve()) for target in targets]
    stems = (Path(name).stem if Path(name).suffix in _ENDINGS else name for name in names)
    return "-".join(dict.fromkeys(stems)) or "kernels"


def _made(targets: Sequence[str], options: dict[str, Any]) -> PtxReport | Diff:
    import traceview
    from traceview.render.base.safe_text import visible

    notes: list[str] = []
    make = traceview.diff_ptx if _is_diff(targets, options) else traceview.inspect_ptx
    with progress(f"Compiling the kernels of {targets[0][:60]}") as show:
        made: PtxReport | Diff = make(
            *targets, note=notes.append, step=lambda said: show(visible(said, 100)), **options
        )
    for note in dict.fromkeys(notes):
        click.echo(f"traceview: {visible(note, 600)}", err=True)
    return made


def _show(made: PtxReport | Diff, views: list[str], wanted: Outputs) -> None:
    from traceview import __version__
    from traceview.render.kernels import formats as ptx

    if not wanted.json_to_stdout:
        print_text(lambda width, color: ptx.text(made, views, width=width, color=color))
    if wanted.html:
        write_file(wanted.html, ptx.html(made, __version__))
    if wanted.json or wanted.json_to_stdout:
        put_json(ptx.json(made, __version__), wanted.json)
