"""The report on one target of `traceview ptx`: one kernel report per kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from traceview import display
from traceview.headless.compile_function import compile_function
from traceview.headless.compile_options import CompileOptions
from traceview.headless.recompile import Recompiler
from traceview.inspect.expectations.verdicts import ExpectationResult
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport, WhatIf
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
        archs = {kernel.compiled.arch for kernel in self.kernels}
        return archs.pop() if len(archs) == 1 else None


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
            recompile = partial(recompiler.compile, kernel) if _is_tested(kernel) else None
            compare = partial(recompiler.compare, kernel)
            report = inspect(kernel, recompile=recompile, compare=compare, sm_count=sm_count)
            if recompiler.broken:
                inferred = f"causes are inferred: {recompiler.broken}"
                report = replace(report, notes=(*report.notes, inferred))
            reports.append(report)
        if recompiler.left_out:
            what, budget_s = "; ".join(recompiler.left_out), options.trials_s
            more = f"--budget {3 * budget_s:g} allows more time"
            note(f"not done within {budget_s:g} s: {what}; {more}")
        for place, report in enumerate(reports if neighbours else ()):
            rows: tuple[WhatIf, ...] = ()
            notes: tuple[str, ...] = (f"no what-if: {recompiler.broken}",)
            if not recompiler.broken:
                recompiler.allow(TIME_S)
                compiled = report.compiled
                rows, notes = what_if(compiled, partial(recompiler.compile, compiled), report.sms)
            reports[place] = replace(report, what_if=rows, notes=(*report.notes, *notes))
        return PtxReport(target, tuple(reports))


def inspect_function(
    function: object, options: CompileOptions, *, sm_count: int | None = None
) -> PtxReport:
    """Compile a @triton.jit function in this process, as declared, and report on it.

    Causes are inferred, as nothing is recompiled. Raises as `compile_function` does.
    """
    compiled = compile_function(function, options, options.arch or DEFAULT_ARCH)
    return PtxReport(compiled.name, (inspect(compiled, sm_count=sm_count),))


def _is_tested(compiled: Compiled) -> bool:
    """Whether causes are tested by recompiling.

    They are not for the dozens of variants that an autotuner compiles and never launches.
    """
    return compiled.how != "launched" or bool(compiled.launches)
