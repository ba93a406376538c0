"""The report on one target of `traceview ptx`, or on the gathered kernels of a trace.

There is one kernel report per kernel; for those of a trace, with how they ran.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from traceview.base import display, units
from traceview.base.errors import InputError
from traceview.base.findings import SEVERITIES, Finding
from traceview.base.hardware import limits_of
from traceview.base.hardware.occupancy import waves_of
from traceview.kernels.headless.compile_function import compile_function
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.headless.recompile import Recompiler
from traceview.kernels.inspect import kernel_report
from traceview.kernels.inspect.expectations import ExpectationResult
from traceview.kernels.inspect.kernel_context import KernelContext, tensor_ops_of
from traceview.kernels.inspect.kernel_report import KernelReport, SmCount
from traceview.kernels.inspect.python_targets import DEFAULT_ARCH
from traceview.kernels.inspect.recompilations import Compare, Recompilations, Recompile
from traceview.kernels.inspect.rules import findings_of, ranked
from traceview.kernels.inspect.targets import is_named, is_python, kernels_of, split_target
from traceview.kernels.inspect.triton_builds import autotuned_identity
from traceview.kernels.inspect.what_if import TIME_S, what_if
from traceview.kernels.ptx.accesses import accesses, elements_per_thread, instruction_mix
from traceview.kernels.ptx.addresses.slicing import Provenance
from traceview.kernels.ptx.cubin import machine_code
from traceview.kernels.ptx.issue_cycles import LoopCycles, loop_cycles
from traceview.kernels.ptx.live_registers import live_registers
from traceview.kernels.ptx.model import Access, Compiled
from traceview.kernels.ptx.producers import Producer, producer_of
from traceview.kernels.ptx.scoreboards import CONTROLS_SINCE, controls
from traceview.kernels.ptx.ttgir.loop_loads import pipeline_buffers
from traceview.kernels.ptx.ttgir.parser import variables_by_line
from traceview.kernels.toolchain import listings, tools
from traceview.traces.facts.code import GatheredCode, LaunchedCode, gathered_code
from traceview.traces.trace import Trace


def inspect(
    compiled: Compiled,
    *,
    sass: bool = True,
    recompile: Recompile | None = None,
    compare: Compare | None = None,
    sm_count: int | None = None,
) -> KernelReport:
    """Report on one kernel. `sass` False leaves out the SASS, for speed.

    With `recompile` causes and remedies are tested instead of inferred, with `compare` also whether
    the kernel then computes the same. `sm_count` is the number
    of SMs that waves are counted on; None takes that of a GPU of this architecture, with a note.
    A missing tool leaves its part None, with a note on how to get it. Raises TraceFormatError if
    the PTX cannot be parsed.
    """
    code = listings.code_of(compiled, sass=sass)
    compiled = replace(compiled, notes=code.remarks, cubin=code.cubin)
    occupancy, notes = kernel_report.occupancy_of(compiled, code)
    kernel = KernelContext(
        compiled,
        code,
        tuple(a for function in (code.ptx, code.sass) if function for a in accesses(function)),
        occupancy,
        kernel_report.sm_count_of(compiled, sm_count) if compiled.grid else None,
        Recompilations(recompile, compare) if recompile else None,
    )
    return _kernel_report(kernel, findings_of(kernel), notes)


def _kernel_report(
    kernel: KernelContext, findings: tuple[Finding, ...], notes: tuple[str, ...]
) -> KernelReport:
    compiled, code, resources = kernel.compiled, kernel.code, kernel.code.resources
    producer = producer_of(compiled.name, compiled.ptx) if compiled.how == "given" else Producer()
    return KernelReport(
        compiled=compiled,
        ptx=code.ptx,
        sass=code.sass,
        accesses=tuple(
            kernel_report.with_helper_lines(kernel.accesses_with_costs, (code.ptx, code.sass))
        ),
        differences=kernel.differences,
        elements_per_thread=_elements(kernel.accesses, kernel.provenance),
        instruction_mix=_instruction_mix(code),
        tensor_ops=tensor_ops_of(code),
        barriers=_counted(code, ("bar", "barrier", "BAR")),
        shuffles=_counted(code, ("shfl", "SHFL")),
        registers=resources.registers if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        stack_bytes=resources.stack_bytes if resources else None,
        static_shared_bytes=kernel_report.static_shared(code),
        dynamic_shared_bytes=compiled.dynamic_shared_bytes,
        occupancy=kernel.occupancy,
        waves=_waves(kernel),
        sms=kernel.sms,
        live_registers=live_registers(code.sass) if code.sass else None,
        mix=kernel.mix,
        layout_conversions=kernel.layout_conversions,
        async_waits=kernel.async_waits,
        variables=variables_by_line(kernel.ttgir) if kernel.ttgir else {},
        spilled_values=kernel.spilled_values,
        pipeline_buffers=pipeline_buffers(kernel.ttgir) if kernel.ttgir else (),
        findings=findings,
        demangled_name=_demangled(compiled.name),
        notes=(*code.notes, *notes, *_assumed(kernel.sms), *_without_lines(code, producer)),
        producer=producer,
        loop_cycles=tuple(_loop_cycles(kernel)),
    )


def _loop_cycles(kernel: KernelContext) -> Iterator[LoopCycles]:
    sass, cubin, loops = kernel.code.sass, kernel.code.cubin, kernel.mix.loops if kernel.mix else ()
    try:
        capability = limits_of(kernel.compiled.arch).compute_capability
    except InputError:
        return
    if sass and cubin and loops and float(capability) >= CONTROLS_SINCE:
        decoded = controls(machine_code(cubin, sass.name))
        if len(decoded) >= len(sass.instructions):
            # The blocks that an SM holds, or that the launch has for it, and their warps.
            occupancy, blocks = kernel.occupancy, kernel.resident_blocks
            warps = occupancy.active_warps // occupancy.blocks_per_sm if occupancy and blocks else 0
            yield from loop_cycles(sass, loops, decoded, capability, blocks, warps)


def _demangled(name: str) -> str | None:
    whole = tools.demangled([name])[name]
    return whole if whole != name else None


def _waves(kernel: KernelContext) -> float | None:
    grid, occupancy, sms = kernel.compiled.grid, kernel.occupancy, kernel.sms
    waves = waves_of(grid, occupancy, sms.count) if grid and occupancy and sms else None
    return waves.waves if waves else None


def _assumed(sms: SmCount | None) -> tuple[str, ...]:
    return (f"waves are counted on {sms.described}",) if sms and sms.assumed else ()


def _without_lines(code: listings.Code, producer: Producer) -> tuple[str, ...]:
    """A note where no instruction has a source line, with the way to get them."""
    function = code.ptx or code.sass
    if function is None or any(i.source for i in function.instructions):
        return ()
    remedy = f"; {producer.line_option}" if producer.line_option else ""
    return (f"no source lines: the code has no line table{remedy}",)


def _elements(accesses: tuple[Access, ...], provenance: Provenance | None) -> int | None:
    level = "ptx" if provenance else "sass"
    listed = [access for access in accesses if access.level == level]
    if provenance is None:
        return elements_per_thread(listed)
    return elements_per_thread(
        listed, provenance.element_bits, provenance.streams, provenance.bits_of
    )


def _instruction_mix(code: listings.Code) -> Mapping[str, int]:
    """Instructions by family of the PTX; by opcode where there is only SASS."""
    if code.ptx:
        mix = instruction_mix(code.ptx)
        return {family: count for family, count in mix.items() if count}
    running = code.sass.instructions if code.sass else ()
    return Counter(instruction.opcode.partition(".")[0] for instruction in running)


def _counted(code: listings.Code, names: tuple[str, ...]) -> int | None:
    function = code.ptx or code.sass
    if function is None:
        return None
    return sum(i.opcode.partition(".")[0] in names for i in function.instructions)


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
    target, options = split_target(target, options)
    if not is_python(target):
        kernels = kernels_of(target, options, note=note)
        inspected = [inspect(kernel, sm_count=sm_count) for kernel in kernels]
        if options.kernel:
            # Overloads of one name, of which the file may have a slow one first.
            inspected.sort(key=lambda report: all(f.severity != "high" for f in report.findings))
        return PtxReport(target, tuple(inspected))
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
        return PtxReport(target, _of_autotuners(reports))


def _of_autotuners(reports: Sequence[KernelReport]) -> tuple[KernelReport, ...]:
    """The reports, with findings no worse than those on the best configuration, if that is fine.

    An autotuner times the configurations of a kernel, and leaves out what another one does better.
    Findings that were not tested alike do not compare.
    """
    kernels: dict[object, list[KernelReport]] = defaultdict(list)
    for report in reports:
        kernels[_autotuned(report.compiled)].append(report)
    shared = {key: _shared(kernel) for key, kernel in kernels.items()}
    best = {key: max(of, key=lambda r: _worst(r, shared[key])) for key, of in kernels.items()}
    keys = [_autotuned(report.compiled) for report in reports]
    return tuple(
        _beside(report, best[key], shared[key]) for report, key in zip(reports, keys, strict=True)
    )


def _shared(reports: Sequence[KernelReport]) -> set[object]:
    """The findings that each of some configurations has, so that none is better by them."""
    return set.intersection(*({_identity(f) for f in report.findings} for report in reports))


def _identity(finding: Finding) -> object:
    return finding.template, finding.subject, finding.severity


def _autotuned(compiled: Compiled) -> object:
    return autotuned_identity(compiled), _is_tested(compiled)


def _worst(report: KernelReport, shared: Container[object]) -> int:
    """The rank of the worst finding that not all share: a higher number is less severe."""
    own = (f for f in report.findings if _identity(f) not in shared)
    return min((SEVERITIES.index(f.severity) for f in own), default=len(SEVERITIES))


def _beside(report: KernelReport, best: KernelReport, shared: Container[object]) -> KernelReport:
    least = min(_worst(best, shared), len(SEVERITIES) - 1)
    values, others = (each.compiled.configuration or {} for each in (report, best))
    differing = [f"{name}={value}" for name, value in others.items() if value != values.get(name)]
    if not differing or least < SEVERITIES.index("low"):
        return report
    beside = f"; the autotuner also has {', '.join(differing)}, where nothing is as bad"

    def lowered(finding: Finding) -> Finding:
        if SEVERITIES.index(finding.severity) >= least or _identity(finding) in shared:
            return finding
        evidence = replace(finding.evidence, basis=finding.evidence.basis + beside)
        return replace(finding, severity=SEVERITIES[least], evidence=evidence)

    return replace(report, findings=ranked(map(lowered, report.findings)))


def _out_of_time(left_out: Sequence[str], budget_s: float) -> str:
    what = "; ".join(left_out)
    return f"not done within {budget_s:g} s: {what}; --budget {3 * budget_s:g} allows more time"


def inspect_function(function: object, options: CompileOptions) -> PtxReport:
    """Compile a @triton.jit function in this process, as declared, and report on it.

    Causes are inferred, as nothing is recompiled. Raises as `compile_function` does.
    """
    compiled = compile_function(function, options, options.arch or DEFAULT_ARCH)
    return PtxReport(compiled.name, (inspect(compiled),))


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
        raise InputError(*_without_code(trace))
    code = gathered_code(trace)
    if not (code.launched or code.idle):
        what = f"{trace.path} holds no code: its program compiled and loaded no Triton kernel"
        raise InputError(what, _NOT_OURS)
    return code


_HELD = (
    ("copies", "copy", "copies"),
    ("sets", "memset", "memsets"),
    ("api_calls", "CUDA call", "CUDA calls"),
    ("ranges", "range", "ranges"),
    ("os_calls", "call of the OS", "calls of the OS"),
)


def _without_code(trace: Trace) -> tuple[str, str]:
    """What a recording without code holds instead, and what to do."""
    if len(trace.recorded("kernels")) or len(trace.recorded("graph_launches")):
        what = f"{trace.path} holds no code of its kernels"
        return what, "record again with kernel code: traceview record SCRIPT"
    counts = {row: len(trace.recorded(row[0])) for row in _HELD}
    held = [units.counted(n, one, many) for (_, one, many), n in counts.items() if n] or ["nothing"]
    return f"{trace.path} holds no kernels, only {', '.join(held)}", (
        f"traceview report {trace.path} says why. Code without a run: name a .ptx, .cubin, .cu or "
        ".py file"
    )


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
