"""`traceview ptx`: report how wide the memory accesses of kernels are, why, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceview.base.outputs import unpacked_name
from traceview.cli import color_option, ptx_answers
from traceview.cli.options import (
    Verb,
    check_archs,
    misuse,
    one_option_per_value,
    one_or_list,
    option,
    split_at_double_dash,
)
from traceview.cli.output import Asked, Outputs, check_writable, documents, progress

if TYPE_CHECKING:
    from traceview.kernels.inspect.comparison import Diff
    from traceview.kernels.inspect.expectations import Expectation
    from traceview.kernels.inspect.target_report import PtxReport

_VIEWS = ("source", "ttir", "ttgir", "llir", "ptx", "sass")
_ENDINGS = (".py", ".ptx", ".cubin", ".cu", ".cuh", ".sqlite", ".nsys-rep", ".ncu-rep", ".json")
_SECTIONS = {
    "What to compile": (
        *("--kernel", "--arch", "--signature", "--constexpr", "--num-warps", "--num-stages"),
        *("--first-config", "--all-configs", "--sms"),
    ),
    "How to run a script": ("--emulate", "--compile", "--guess", "--timeout", "--budget"),
    "What to show": (
        *("--samples", "--diff", "--all", "--what-if", "--configs", "--source"),
        *("--ttir", "--ttgir", "--llir", "--ptx", "--sass"),
    ),
    "What to check": ("--expect", "--triton"),
    "Output": ("-o", "--html", "--json", "--reproducer", "--force"),
}
_EXAMPLES = (
    "traceview ptx gelu.py",
    "traceview ptx gelu.py:gelu_kernel --num-warps 4 8",
    "traceview ptx train.py --source -- --batch-size 8",
    "traceview ptx --diff before.ptx after.ptx --html",
    'traceview ptx gelu.py --expect "gelu*: global load >= 128, spills = 0"',
    "traceview ptx train.sqlite --triton 3.6.0 3.7.1 --arch sm_90 sm_100",
)


class _PtxVerb(Verb):
    """The verb with multi-value options; arguments behind `--` go to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, for_script = split_at_double_dash(args)
        rest = super().parse_args(ctx, one_option_per_value(words))
        if for_script and ctx.params["target"] is None and ctx.params["diff"] is None:
            ctx.params["target"] = for_script.pop(0)
        ctx.params["arguments"] += tuple(for_script)
        return rest


def _one_or_list(_: click.Context, __: click.Parameter, values: tuple[Any, ...]) -> Any:
    return one_or_list(values)


def _pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """`N=V` options as a mapping; a name with several values maps to a list."""
    values_of: dict[str, list[str]] = {}
    for pair in values:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter("write NAME=VALUE, such as BLOCK_SIZE=1024", param=parameter)
        values_of.setdefault(name, []).append(value)
    return {name: one_or_list(texts) for name, texts in values_of.items()}


def _expectations(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> list[Expectation]:
    from traceview.kernels.inspect.expectations import parse_all

    with misuse(parameter):
        return parse_all(values)


def _archs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    check_archs(parameter, values)
    return one_or_list(values)


def _warps(_: click.Context, parameter: click.Parameter, values: tuple[int, ...]) -> Any:
    for value in values:
        if value & (value - 1):
            raise click.BadParameter(f"{value} is not a power of two", param=parameter)
    return one_or_list(values)


@click.command(cls=_PtxVerb, sections=_SECTIONS, examples=_EXAMPLES)
@click.argument("target", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS...]")
@option("--kernel NAME", "Show only this kernel; a glob or a C++ name for compiled files.")
@option("--diff A B", "Compare two targets, or two kernels of TARGET.", nargs=2)
@option("--arch sm_90...", "Target architecture. Default: sm_90.", multiple=True, callback=_archs)
@option(
    "--signature S...",
    'Argument types in Triton\'s notation: "*fp32:16, i32:16, 1024".',
    multiple=True,
    callback=_one_or_list,
)
@option(
    "--constexpr N=V...",
    "Value of a constexpr (repeatable).",
    "constexprs",
    multiple=True,
    callback=_pairs,
)
@option(
    "--num-warps N...",
    "Warps per block.",
    multiple=True,
    callback=_warps,
    type=click.IntRange(1, 32),
)
@option(
    "--num-stages N...",
    "Software pipeline stages.",
    multiple=True,
    callback=_one_or_list,
    type=click.IntRange(0),
)
@option("--first-config", "Compile only the first configuration of autotuned kernels.")
@option(
    "--all-configs", "Compile all configurations of autotuned kernels. Default: up to 4 of each."
)
@option(
    "--guess", "Where the script fails before a launch, compile its kernels with guessed arguments."
)
@option("--emulate", "Run kernels in Triton's interpreter, so that the script gets their results.")
@option(
    "--compile", "Include the kernels that torch.compile generates (experimental).", "compile_torch"
)
@option(
    "--timeout S",
    "Interrupt the script after S seconds. Default: half of --budget, once a kernel is compiled.",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
)
@option(
    "--budget S",
    "Seconds for all trials together: guessed arguments, recompilations, comparisons of "
    "results. Default: 20.",
    "budget_s",
    type=click.FloatRange(0, min_open=True),
)
@option(
    "--sms N", "Number of SMs of the GPU, to compute waves.", "sm_count", type=click.IntRange(1)
)
@option(
    "--all", "Show all tables, such as instructions by class per source line and loop.", "details"
)
@option(
    "--what-if",
    "Also compile the kernels with other warps, stages and tiles, and compare occupancy.",
)
@option(
    "--configs",
    "Compile all configurations of autotuned kernels instead, and show which are worth "
    "timing, and why the others are not.",
)
@option(
    "--samples FILE",
    "Also show what warps wait for, by samples of a run: a report of ncu --section "
    "SourceCounters, its source page as CSV, or a profile of Proton.",
)
@option("--source", "Show the source, with accesses in the margin.")
@option("--ttir", "Show Triton's TTIR, with source lines.")
@option("--ttgir", "Show Triton's TTGIR, with source lines.")
@option("--llir", "Show Triton's LLVM IR, with source lines.")
@option("--ptx", "Show the annotated PTX.")
@option("--sass", "Show the annotated SASS.")
@option(
    "--expect E",
    'Check kernels instead of showing them: "NAME: global load >= 128, spills = 0", or @FILE '
    "with one per line (repeatable). Exits with 1 if one is not met.",
    "expectations",
    multiple=True,
    callback=_expectations,
)
@option(
    "--triton V...",
    "Compile all kernels with these versions of Triton instead, and show what gets worse. "
    "Downloads those that are missing, 200 MB each. Exits with 1 if a kernel gets worse "
    "or is missing.",
    multiple=True,
    callback=ptx_answers.versions,
)
@option(
    "--reproducer OUT.py",
    "Also write a script that repeats the first launch on its own: source, shapes, strides, "
    "types, constexprs.",
    type=click.Path(path_type=Path, dir_okay=False),
)
@documents(". Default path: <target>.html", kinds=("html", "json"))
@color_option
def command(
    target: str | None,
    diff: tuple[str, str] | None,
    asked: Asked,
    details: bool,
    what_if: bool,
    samples: str | None,
    expectations: list[Expectation],
    triton: tuple[str, ...],
    configs: bool,
    reproducer: Path | None,
    **options: Any,
) -> None:
    """Show how wide the memory accesses of TARGET's kernels are, and how to widen them.

    TARGET is a .ptx, .cubin or .cu file, a .so, .o or .fatbin with GPU code, a .py or
    package.module:kernel with Triton kernels, a Triton cache folder, a trace (for the kernels that
    ran), or a .ncu-rep with warp samples; FILE:kernel is one kernel of it. No GPU is needed: a
    script runs in a separate process, which compiles its kernels and launches none. Arguments after
    -- go to the script.

    --num-warps, --num-stages, --arch, --constexpr and --signature take several values, such as
    --num-warps 4 8, to compare side by side. --diff compares two targets or two kernels, --triton
    the code that several versions of Triton make of all kernels.
    """
    if target is None and diff is None:
        raise asked.no_input("TARGET", "Put TARGET first: traceview ptx {path} {option}")
    views = [view for view in _VIEWS if options.pop(view)]
    targets = [target] if target else list(diff or ())
    if target and diff:
        # Two kernels of one target.
        if options["kernel"]:
            raise click.UsageError("--diff already names the kernels of TARGET; leave out --kernel")
        options["kernel"] = list(diff)
    if triton or configs:
        given: dict[str, object] = {
            "--diff": diff,
            "--all": details,
            "--what-if": what_if,
            "--samples": samples,
            "--html": asked.html is not None,
        }
        given |= {"--expect": expectations, "--reproducer": reproducer}
        given |= {"--configs": configs and triton, **{f"--{view}": True for view in views}}
        option, several = ("--triton", ["arch"]) if triton else ("--configs", [])
        ptx_answers.check_combination(option, targets, options, given, several)
    values = [*options.values(), *options["constexprs"].values()]
    compares = len(targets) > 1 or any(isinstance(value, list) for value in values)
    _check_combination(views, details, what_if, bool(samples), bool(expectations), compares)
    # The file that a target is in: `gelu.py` of `gelu.py:kernel`.
    parts = [(name, *name.rpartition(":")) for name in targets]
    files = [Path(f if colon and not Path(name).exists() else name) for name, f, colon, _ in parts]
    names = [Path(unpacked_name(file.resolve())) for file in files]
    stems = [name.stem if name.suffix in _ENDINGS else name.name for name in names]
    stem = "-".join(dict.fromkeys(stems)) or "kernels"
    outputs = asked.outputs(stem, files, kind="target")
    for file in files if reproducer else ():
        check_writable([Path(str(reproducer))], source=file, force=asked.force, kind="target")
    if triton:
        ptx_answers.compare_versions(targets[0], triton, options, outputs)
    elif configs:
        ptx_answers.preselect_configurations(targets[0], options, outputs)
    else:
        options |= {"what_if": True} if what_if else {}
        options |= {"samples": samples} if samples else {}
        report = _inspected(targets, compares, options)
        if reproducer:
            ptx_answers.write_reproducer(report, reproducer)
        _put(report, outputs, expectations, views, details)


def _check_combination(
    views: Sequence[str],
    details: bool,
    what_if: bool,
    samples: bool,
    expects: bool,
    compares: bool,
) -> None:
    """Raise UsageError for options that exclude each other."""
    if views and compares:
        raise click.UsageError(f"--{views[0]} cannot be combined with a comparison")
    if details and (views or expects or compares):
        raise click.UsageError("--all cannot be combined with a listing, --expect or a comparison")
    if compares and (what_if or samples):
        option = "--what-if" if what_if else "--samples"
        raise click.UsageError(f"{option} cannot be combined with a comparison")
    if expects and (views or compares):
        other = f"--{views[0]}" if views else "a comparison"
        raise click.UsageError(f"--expect cannot be combined with {other}")


def _inspected(targets: Sequence[str], compares: bool, options: dict[str, Any]) -> PtxReport | Diff:
    import traceview
    from traceview.render.base.safe_text import visible

    notes: list[str] = []
    inspect = traceview.diff_ptx if compares else traceview.inspect_ptx
    with progress(f"Compiling the kernels of {targets[0][:60]}") as show:
        report: PtxReport | Diff = inspect(
            *targets, note=notes.append, step=lambda text: show(visible(text, 100)), **options
        )
    for note in dict.fromkeys(notes):
        click.echo(f"traceview: {visible(note, 600)}", err=True)
    return report


def _put(
    report: PtxReport | Diff,
    outputs: Outputs,
    expectations: Sequence[Expectation],
    views: Sequence[str],
    details: bool,
) -> None:
    """Print listings and findings, or unmet expectations, a line each; exits with 1 if any."""
    from traceview.base import units
    from traceview.kernels.inspect.expectations import judge, unmet
    from traceview.kernels.inspect.target_report import PtxReport
    from traceview.render.base.safe_text import visible
    from traceview.render.kernels import text

    lines = []
    if expectations:
        if not isinstance(report, PtxReport):
            raise TypeError("a comparison has no expectations")
        report = replace(report, verdicts=judge(expectations, report.kernels))
        lines = unmet(report.verdicts)
    else:
        outputs.screen(
            lambda width, color: text.text(report, views, width=width, color=color, details=details)
        )
    outputs.put_documents(report)
    if isinstance(report, PtxReport) and expectations and not lines:
        met = {(verdict.expectation, verdict.condition) for verdict in report.verdicts}
        kernels = {verdict.kernel for verdict in report.verdicts}
        by = f"met by {units.counted(len(kernels), 'kernel')}"
        click.echo(f"{units.counted(len(met), 'condition')} {by}", err=bool(outputs.stdout))
    for line in lines:
        click.echo(visible(line, 600), err=bool(outputs.stdout))
    if lines:
        click.get_current_context().exit(1)
