"""The report on one target of `traceview ptx`: one kernel report per kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from traceview import display
from traceview.headless.compile_function import compile_function
from traceview.headless.compile_options import CompileOptions
from traceview.headless.recompile import Recompiler
from traceview.inspect.expectations.verdicts import ExpectationResult
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.targets.python import DEFAULT_ARCH
from traceview.inspect.targets.target import is_python, kernels_of
from traceview.inspect.what_if import TIME_S, what_if
from traceview.ptx.model import Compiled


@dataclass(frozen=True, repr=False)
class PtxReport(display.Described):
    """The kernels of a target, in order, and verdicts on the expectations, if there are any."""

    target: str
    kernels: tuple[KernelReport, ...]
    verdicts: tuple[ExpectationResult, ...] = ()

    @property
    def arch(self) -> str | None:
        """The architecture that all kernels were compiled for; None if they differ."""
        each = {kernel.compiled.arch for kernel in self.kernels}
        return each.pop() if len(each) == 1 else None


def inspect_target(
    target: str,
    options: CompileOptions,
    *,
    sm_count: int | None = None,
    neighbours: bool = False,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> PtxReport:
    """Compile the kernels of a target and report on each.

    With `neighbours`, kernels are also compiled with other warps, stages and tiles, for their
    occupancy. `note` gets a line at a time for the user, `step` names what is done next. Raises as
    `kernels_of` and `inspect` do.
    """
    if not is_python(target):
        kernels = kernels_of(target, options, note=note)
        return PtxReport(target, tuple(inspect(kernel, sm_count=sm_count) for kernel in kernels))
    with Recompiler(step) as recompiler:
        kernels = kernels_of(target, options, recompiler=recompiler, note=note)
        reports = []
        for number, kernel in enumerate(kernels, 1):
            step(f"Inspecting {kernel.name}, {number} of {len(kernels)}")
            recompiler.share(sum(map(_is_tested, kernels[number - 1 :])))
            reports.append(_report(kernel, recompiler, sm_count))
        if recompiler.left_out:
            note(_out_of_time(recompiler.left_out, options.trials_s))
        if neighbours:
            reports = [_with_neighbours(report, recompiler) for report in reports]
        return PtxReport(target, tuple(reports))


def _out_of_time(left_out: Sequence[str], budget_s: float) -> str:
    what = "; ".join(left_out)
    return f"not done within {budget_s:g} s: {what}; --budget {3 * budget_s:g} allows more time"


def inspect_function(
    function: object, options: CompileOptions, *, sm_count: int | None = None
) -> PtxReport:
    """Compile a @triton.jit function in this process, as declared, and report on it.

    Causes are inferred, as nothing is recompiled. Raises as `compile_function` does.
    """
    compiled = compile_function(function, options, options.arch or DEFAULT_ARCH)
    return PtxReport(compiled.name, (inspect(compiled, sm_count=sm_count),))


def _report(compiled: Compiled, recompiler: Recompiler, sm_count: int | None) -> KernelReport:
    recompile = partial(recompiler.compile, compiled) if _is_tested(compiled) else None
    compare = partial(recompiler.compare, compiled)
    report = inspect(compiled, recompile=recompile, compare=compare, sm_count=sm_count)
    if not recompiler.broken:
        return report
    return replace(report, notes=(*report.notes, f"causes are inferred: {recompiler.broken}"))


def _is_tested(compiled: Compiled) -> bool:
    """Whether causes are tested by recompiling.

    They are not for the dozens of variants that an autotuner compiles and never launches.
    """
    return compiled.how != "launched" or bool(compiled.launches)


def _with_neighbours(report: KernelReport, recompiler: Recompiler) -> KernelReport:
    """The report with the occupancy of other configurations."""
    if recompiler.broken:
        return replace(report, notes=(*report.notes, f"no what-if: {recompiler.broken}"))
    recompiler.allow(TIME_S)
    rows, notes = what_if(report.compiled, partial(recompiler.compile, report.compiled), report.sms)
    return replace(report, what_if=rows, notes=(*report.notes, *notes))
