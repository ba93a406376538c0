"""The gathered kernels of a trace, inspected as `traceview ptx` does it, with how they ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    code = _gathered(trace)
    launched = [each for each in code.launched if _wanted(each.compiled, options)]
    idle = [each for each in code.idle if _wanted(each, options)]
    if not launched and not idle:
        raise InputError(*_none(trace, code, options))
    for line in _remarks(code, options, launched, idle):
        note(line)
    reports = [_of_launched(each, trace, sm_count) for each in launched]
    if not reports or options.kernel:
        reports += [_of_idle(each) for each in idle]
    return PtxReport(trace.path, tuple(reports))


def _gathered(trace: Trace) -> GatheredCode:
    if "kernel_code" not in trace.tables:
        what = f"{trace.path} holds no code of its kernels"
        raise InputError(what, "record again with kernel code: traceview record SCRIPT")
    code = gathered_code(trace)
    if not (code.launched or code.idle):
        what = f"{trace.path} holds no code: its program compiled and loaded no Triton kernel"
        raise InputError(what, _NOT_OURS)
    return code


def _wanted(compiled: Compiled, options: CompileOptions) -> bool:
    if options.arch and not compiled.arch.startswith(options.arch):
        return False
    return is_named(options.kernel, compiled.name, compiled.name)


def _none(trace: Trace, code: GatheredCode, options: CompileOptions) -> tuple[str, str]:
    everything = [*(each.compiled for each in code.launched), *code.idle]
    names = list(dict.fromkeys(each.name for each in everything))
    listed = ", ".join(names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "")
    archs = {each.arch for each in everything if is_named(options.kernel, each.name, each.name)}
    if archs:
        what = f"{trace.path} has no kernel for {options.arch}"
        return what, f"its kernels are for {', '.join(sorted(archs))}"
    return f"{trace.path} has no code of a kernel {str(options.kernel)[:60]!r}", f"it has {listed}"


def _remarks(
    code: GatheredCode,
    options: CompileOptions,
    launched: Sequence[LaunchedCode],
    idle: Sequence[Compiled],
) -> Iterator[str]:
    if not launched:
        yield "no launch of these kernels is in the trace"
    elif idle and not options.kernel:
        count = units.counted(len(idle), "variant was", "variants were")
        yield f"{count} compiled but never launched, and not shown; --kernel NAME shows them"
    for name, number in code.unfit.items():
        if is_named(options.kernel, name, name):
            launches = units.counted(number, "launch", "launches")
            yield f"{launches} of {name} match none of the recorded code"
    if code.other_ns and not options.kernel:
        share = units.percent(100 * code.other_ns / code.total_ns)
        yield f"{share} of kernel time is in kernels without code here: {_NOT_OURS}"


def _of_launched(code: LaunchedCode, trace: Trace, sm_count: int | None) -> KernelReport:
    known = trace.devices.cells("sm_count")[code.device]
    report = inspect(
        code.compiled, sm_count=sm_count or (known if isinstance(known, int) else None)
    )
    return replace(report, notes=(*report.notes, *_how_it_ran(code)))


def _how_it_ran(code: LaunchedCode) -> Iterator[str]:
    if code.grids > 1:
        yield f"launched with {code.grids} grids; the most frequent is shown"
    if code.alike:
        others = units.counted(code.alike, "other variant")
        yield (
            f"block, registers and shared memory equal those of {others}; their launches "
            "cannot be told apart, so each is shown with all of them"
        )


def _of_idle(compiled: Compiled) -> KernelReport:
    report = inspect(replace(compiled, how="given"))
    return replace(report, notes=(*report.notes, "compiled, but no launch of it is in the trace"))
