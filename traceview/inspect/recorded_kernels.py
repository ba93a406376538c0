"""The gathered kernels of a trace, inspected as `traceview ptx` does it, with how they ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from traceview import units
from traceview.errors import InputError
from traceview.facts.code.gathered import GatheredCode, LaunchedCode, gathered_code
from traceview.headless.compile_options import CompileOptions
from traceview.inspect.kernel import inspect
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.target_report import PtxReport
from traceview.inspect.targets.target import is_named
from traceview.ptx.model import Compiled
from traceview.trace import Trace

_MOST_NAMES = 8
_NOT_OURS = "code of libraries (cuBLAS, cuDNN, ATen) and of CUDA C++ built by nvcc is not recorded"


def inspect_trace(
    trace: Trace,
    options: CompileOptions,
    *,
    sm_count: int | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> PtxReport:
    """A report on each kernel that ran and whose code is in the trace, the longest first.

    Grids, launches and the number of SMs are those of the run; `sm_count` replaces the latter.
    Nothing is compiled anew: causes are inferred. What was compiled and never launched comes only
    where it is named, or where nothing was launched. Raises InputError if there is no code, no
    such kernel, or none for that GPU, and what `inspect` raises.
    """
    if "kernel_code" not in trace.tables:
        what = f"{trace.path} holds no code of its kernels"
        raise InputError(what, "record again with kernel code: traceview record SCRIPT")
    code = gathered_code(trace)
    everything = [*(kernel.compiled for kernel in code.launched), *code.idle]
    if not everything:
        what = f"{trace.path} holds no code: its program compiled and loaded no Triton kernel"
        raise InputError(what, _NOT_OURS)
    launched = [kernel for kernel in code.launched if _wanted(kernel.compiled, options)]
    idle = [compiled for compiled in code.idle if _wanted(compiled, options)]
    if not launched and not idle:
        named = [k for k in everything if is_named(options.kernel, k.name, k.name)]
        if named:
            what = f"{trace.path} has no kernel for {options.arch}"
            archs = ", ".join(sorted({kernel.arch for kernel in named}))
            raise InputError(what, f"its kernels are for {archs}")
        names = list(dict.fromkeys(kernel.name for kernel in everything))
        listed = ", ".join(names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "")
        what = f"{trace.path} has no code of a kernel {str(options.kernel)[:60]!r}"
        raise InputError(what, f"it has {listed}")
    if not launched:
        note("no launch of these kernels is in the trace")
    elif idle and not options.kernel:
        count = units.counted(len(idle), "variant was", "variants were")
        note(f"{count} compiled but never launched, and not shown; --kernel NAME shows them")
    for line in _remarks(code, options):
        note(line)
    reports = [_report(kernel, trace, sm_count) for kernel in launched]
    if not reports or options.kernel:
        for compiled in idle:
            report = inspect(replace(compiled, how="given"))
            notes = (*report.notes, "compiled, but no launch of it is in the trace")
            reports.append(replace(report, notes=notes))
    return PtxReport(trace.path, tuple(reports))


def _remarks(code: GatheredCode, options: CompileOptions) -> Iterator[str]:
    for name, number in code.unfit.items():
        if is_named(options.kernel, name, name):
            launches = units.counted(number, "launch", "launches")
            yield f"{launches} of {name} match none of the recorded code"
    if code.other_ns and not options.kernel:
        share = units.percent(100 * code.other_ns / code.total_ns)
        yield f"{share} of kernel time is in kernels without code here: {_NOT_OURS}"


def _report(code: LaunchedCode, trace: Trace, sm_count: int | None) -> KernelReport:
    """The report on a kernel that ran, with notes on how it ran."""
    recorded = trace.devices.cells("sm_count")[code.device]
    sms = sm_count or (recorded if isinstance(recorded, int) else None)
    report = inspect(code.compiled, sm_count=sms)
    notes = list(report.notes)
    if code.grids > 1:
        notes.append(f"launched with {code.grids} grids; the most frequent is shown")
    if code.alike:
        others = units.counted(code.alike, "other variant")
        notes.append(
            f"block, registers and shared memory equal those of {others}; their launches "
            "cannot be told apart, so each is shown with all of them"
        )
    return replace(report, notes=tuple(notes))


def _wanted(compiled: Compiled, options: CompileOptions) -> bool:
    if options.arch and not compiled.arch.startswith(options.arch):
        return False
    return is_named(options.kernel, compiled.name, compiled.name)
