"""What one target of `traceview ptx` came to: a report for each of its kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from traceview.headless.recompile import Recompiler
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.targets.target import Options, is_python, kernels_of
from traceview.ptx.model import Compiled


@dataclass(frozen=True)
class PtxReport:
    """The kernels of a target, in the order in which they came. `arch` is None if they differ."""

    target: str
    kernels: tuple[KernelReport, ...]

    @property
    def arch(self) -> str | None:
        """The architecture that all kernels were compiled for."""
        each = {kernel.compiled.arch for kernel in self.kernels}
        return each.pop() if len(each) == 1 else None


def inspect_target(target: str, options: Options, *, sm_count: int | None = None) -> PtxReport:
    """Compile and report on all kernels of a target. Raises as `kernels_of` and `inspect` do."""
    if not is_python(target):
        kernels = kernels_of(target, options)
        return PtxReport(target, tuple(inspect(kernel, sm_count=sm_count) for kernel in kernels))
    with Recompiler(options.step) as recompiler:
        kernels = kernels_of(target, replace(options, recompiler=recompiler))
        reports = []
        for number, kernel in enumerate(kernels, 1):
            options.step(f"Looking at {kernel.name}, {number} of {len(kernels)}")
            reports.append(_tried(kernel, recompiler, sm_count))
        return PtxReport(target, tuple(reports))


def _tried(compiled: Compiled, recompiler: Recompiler, sm_count: int | None) -> KernelReport:
    # An autotuner compiles dozens of variants that nobody runs: their causes are inferred.
    idle = compiled.how == "launched" and not compiled.launches
    recompile = None if idle else partial(recompiler.compile, compiled)
    report = inspect(compiled, recompile=recompile, sm_count=sm_count)
    if not recompiler.broken:
        return report
    return replace(report, notes=(*report.notes, f"causes are inferred: {recompiler.broken}"))
