"""The report on one target of `traceview ptx`: one kernel report per kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from traceview.headless.compile_function import compile_function
from traceview.headless.compile_options import CompileOptions
from traceview.headless.recompile import Recompiler
from traceview.inspect.expectations.verdicts import ExpectationResult
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.targets.python import DEFAULT_ARCH
from traceview.inspect.targets.target import is_python, kernels_of
from traceview.ptx.model import Compiled


@dataclass(frozen=True)
class PtxReport:
    """The kernels of a target, in their order, and whether they are as expected, if asked."""

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
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> PtxReport:
    """Compile the kernels of a target and report on each.

    `note` gets a line at a time for the user, `step` names what is done next. Raises as
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
            reports.append(_report(kernel, recompiler, sm_count))
        return PtxReport(target, tuple(reports))


def inspect_function(
    function: object, options: CompileOptions, *, sm_count: int | None = None
) -> PtxReport:
    """Compile a @triton.jit function in this process, as declared, and report on it.

    Causes are inferred, as nothing is recompiled. Raises as `compile_function` does.
    """
    compiled = compile_function(function, options, options.arch or DEFAULT_ARCH)
    return PtxReport(compiled.name, (inspect(compiled, sm_count=sm_count),))


def _report(compiled: Compiled, recompiler: Recompiler, sm_count: int | None) -> KernelReport:
    # An autotuner compiles dozens of variants that are never launched: recompiling them for causes
    # would take minutes.
    idle = compiled.how == "launched" and not compiled.launches
    recompile = None if idle else partial(recompiler.compile, compiled)
    compare = partial(recompiler.compare, compiled)
    report = inspect(compiled, recompile=recompile, compare=compare, sm_count=sm_count)
    if not recompiler.broken:
        return report
    return replace(report, notes=(*report.notes, f"causes are inferred: {recompiler.broken}"))
