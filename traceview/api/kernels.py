"""The code of kernels: accesses, registers and instructions, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.api.traces import load
from traceview.base.errors import TraceviewError

if TYPE_CHECKING:
    from traceview.kernels.headless.compile_options import CompileOptions
    from traceview.kernels.headless.signatures import Value
    from traceview.kernels.inspect.comparison import Diff
    from traceview.kernels.inspect.target_report import PtxReport


def inspect_ptx(
    target: str | Path,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    signature: str | None = None,
    constexprs: Mapping[str, Value] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    first_config: bool = False,
    all_configs: bool = False,
    guess: bool = False,
    emulate: bool = False,
    compile_torch: bool = False,
    timeout_s: float | None = None,
    budget_s: float | None = None,
    arguments: str | Sequence[str] = (),
    sm_count: int | None = None,
    what_if: bool = False,
    samples: str | Path | None = None,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> PtxReport:
    """Compile the kernels of a target without launching any, and report on their memory accesses.

    Arguments:
        target: what `traceview ptx` takes, such as a .ptx file or FILE.py:kernel.
        kernel: only the kernel of this name.
        arch: target architecture, such as "sm_90".
        signature: argument types in Triton's notation, "*fp32:16, i32".
        constexprs: values by name, or text as on the command line ("tl.float16"). These,
            `num_warps` and `num_stages` replace what a script passes.
        first_config: compile one configuration of an autotuned kernel instead of up to four.
        all_configs: compile all configurations.
        guess: go on with guessed arguments where a script fails before it launches a kernel.
        emulate: run kernels in Triton's interpreter, so that tensors get their values.
        compile_torch: compile what torch.compile generates, too (experimental).
        timeout_s: interrupt a script after this time; by default after half of `budget_s`, once it
            has compiled a kernel.
        budget_s: time (20) after which no guess of arguments, recompilation or comparison of
            results begins; a note says what was left out.
        arguments: command-line arguments of a script.
        sm_count: SMs of the GPU, to compute waves.
        what_if: compile the kernels of a Python target with other warps, stages and tiles as well,
            to compare occupancy.
        samples: warp samples of a run, to tell what each line waits for: a report (.ncu-rep) of
            `ncu --section SourceCounters`, its source page as CSV, or a profile of Proton. A target
            that is such a report has its own.
        note: gets a line at a time for the user.
        step: gets the name of each stage before it begins.

    For a trace, the kernels are those that ran, longest first, with the grids and SMs of the run.
    Raises InputError, PtxSyntaxError, TraceFormatError, MissingTableError, ToolNotFoundError, or
    TraceviewError if a compiler fails.
    """
    from traceview.kernels.headless.compile_options import CompileOptions
    from traceview.kernels.headless.signatures import as_written

    values = {name: as_written(name, value) for name, value in (constexprs or {}).items()}
    name = None if arch is None else str(arch)
    options = CompileOptions(**_options(locals()) | {"constexprs": values, "arch": name})
    if samples is None and Path(target).suffix in (".ncu-rep", ".ncu-repz"):
        samples = target
    if samples is None:
        return _inspect(target, options, sm_count, note, step, what_if=what_if)
    from traceview.kernels.inspect.warp_stalls import with_samples
    from traceview.traces.trace.warp_samples import read_samples

    read = read_samples(Path(samples))
    report = _inspect(target, options, sm_count, note, step, what_if=what_if)
    return replace(report, kernels=with_samples(report.kernels, read, Path(samples), note))


def diff_ptx(
    *targets: str | Path,
    kernel: str | Sequence[str] | None = None,
    arch: str | Sequence[str] | None = None,
    signature: str | Sequence[str] | None = None,
    constexprs: Mapping[str, Value | Sequence[Value]] | None = None,
    num_warps: int | Sequence[int] | None = None,
    num_stages: int | Sequence[int] | None = None,
    first_config: bool = False,
    all_configs: bool = False,
    guess: bool = False,
    emulate: bool = False,
    compile_torch: bool = False,
    timeout_s: float | None = None,
    budget_s: float | None = None,
    arguments: str | Sequence[str] = (),
    sm_count: int | None = None,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> Diff:
    """Compare kernels in two to four versions: their accesses, registers and instructions.

    Pass either two targets, or one target and a list of values for one option: `num_warps=[4, 8]`,
    `kernel=["a", "b"]`, `constexprs={"BLOCK": [256, 1024]}`. The options are those of
    `inspect_ptx`. Raises InputError unless that makes two to four versions with a kernel in
    common, and TraceviewError if one cannot be compiled.
    """
    from traceview.kernels.headless.compile_options import CompileOptions
    from traceview.kernels.headless.signatures import all_as_written
    from traceview.kernels.inspect.comparison import ComparedVersion, compare, plan

    options = _options(locals()) | {"constexprs": all_as_written(constexprs or {})}
    planned = plan([str(target) for target in targets], options)
    versions = []
    for version in planned.versions:
        try:
            report = _inspect(
                version.target, CompileOptions(**version.options), sm_count, note, step
            )
        except TraceviewError as error:
            raise TraceviewError(f"{planned.named(version)}: {error.what}", error.remedy) from error
        versions.append(ComparedVersion(version.label, report))
    return compare(versions, planned.option, planned.varied)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The compile options among the arguments of a function."""
    from traceview.kernels.headless.compile_options import CompileOptions

    return {each.name: given[each.name] for each in fields(CompileOptions)}


def _inspect(
    target: str | Path,
    options: CompileOptions,
    sm_count: int | None,
    note: Callable[[str], None],
    step: Callable[[str], None],
    *,
    what_if: bool = False,
) -> PtxReport:
    from traceview.kernels.inspect.target_report import inspect_target
    from traceview.kernels.inspect.targets import split_target, unused_options
    from traceview.traces.trace.load import is_trace

    target, options = split_target(str(target), options)
    unused = unused_options(target, options, what_if=what_if)
    if unused:
        note(f"{target} is not a Triton source, so it does not use {unused}")
    if is_trace(Path(target)):
        from traceview.kernels.inspect.target_report import inspect_trace

        return inspect_trace(load(target), options, sm_count=sm_count, note=note)
    return inspect_target(
        target, options, sm_count=sm_count, neighbours=what_if, note=note, step=step
    )
