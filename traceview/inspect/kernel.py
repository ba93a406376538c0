"""The report on one compiled kernel: its accesses, its limits, its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from traceview.findings import Finding
from traceview.hardware.waves import waves_of
from traceview.inspect.kernel_context import KernelContext, tensor_ops_of
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.occupancy import SmCount, occupancy_of, sm_count_of, static_shared
from traceview.inspect.recompilations import Compare, Recompilations, Recompile
from traceview.inspect.rules import findings_of
from traceview.inspect.source_text import with_helper_lines
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.elements_per_thread import elements_per_thread
from traceview.ptx.model import Access, Compiled
from traceview.ptx.producers import Producer, producer_of
from traceview.ptx.sass import accesses as sass_accesses
from traceview.ptx.sass.live_registers import SpilledValue, live_registers, spilled_values
from traceview.ptx.ttgir.parser import variables_by_line
from traceview.ptx.ttgir.pipeline_buffers import pipeline_buffers
from traceview.toolchain import demangling, listings


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
    compiled = replace(compiled, notes=code.remarks)
    occupancy, notes = occupancy_of(compiled, code)
    kernel = KernelContext(
        compiled,
        code,
        _accesses(code),
        occupancy,
        sm_count_of(compiled, sm_count) if compiled.grid else None,
        Recompilations(recompile, compare) if recompile else None,
    )
    return _report(kernel, findings_of(kernel), notes)


def _report(
    kernel: KernelContext, findings: tuple[Finding, ...], notes: tuple[str, ...]
) -> KernelReport:
    compiled, code, resources = kernel.compiled, kernel.code, kernel.code.resources
    producer = producer_of(compiled.name, compiled.ptx) if compiled.how == "given" else Producer()
    return KernelReport(
        compiled=compiled,
        ptx=code.ptx,
        sass=code.sass,
        accesses=tuple(with_helper_lines(kernel.accesses_with_costs, (code.ptx, code.sass))),
        differences=kernel.differences,
        elements_per_thread=_elements(kernel.accesses, kernel.provenance),
        instruction_mix=_instruction_mix(code),
        tensor_ops=tensor_ops_of(code),
        barriers=_counted(code, ("bar", "barrier", "BAR")),
        shuffles=_counted(code, ("shfl", "SHFL")),
        registers=resources.registers if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        stack_bytes=resources.stack_bytes if resources else None,
        static_shared_bytes=static_shared(code),
        dynamic_shared_bytes=compiled.dynamic_shared_bytes,
        occupancy=kernel.occupancy,
        waves=_waves(kernel),
        sms=kernel.sms,
        live_registers=live_registers(code.sass) if code.sass else None,
        mix=kernel.mix,
        layout_conversions=kernel.layout_conversions,
        async_waits=kernel.async_waits,
        variables=variables_by_line(kernel.ttgir) if kernel.ttgir else {},
        spilled_values=_spilled(kernel),
        pipeline_buffers=pipeline_buffers(kernel.ttgir) if kernel.ttgir else (),
        findings=findings,
        demangled_name=_demangled(compiled.name),
        notes=(*code.notes, *notes, *_assumed(kernel.sms), *_without_lines(code, producer)),
        producer=producer,
    )


def _demangled(name: str) -> str | None:
    whole = demangling.demangled([name])[name]
    return whole if whole != name else None


def _spilled(kernel: KernelContext) -> tuple[SpilledValue, ...]:
    sass, mix = kernel.code.sass, kernel.mix
    if not sass or not kernel.spill_bytes:
        return ()
    loop = mix.hottest_loop if mix else None
    return spilled_values(sass, loop.instructions if loop else ())


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


def _accesses(code: listings.Code) -> tuple[Access, ...]:
    written = ptx_accesses.accesses(code.ptx) if code.ptx else ()
    running = sass_accesses.accesses(code.sass) if code.sass else ()
    return (*written, *running)


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
        mix = ptx_accesses.instruction_mix(code.ptx)
        return {family: count for family, count in mix.items() if count}
    running = code.sass.instructions if code.sass else ()
    return Counter(instruction.opcode.partition(".")[0] for instruction in running)


def _counted(code: listings.Code, names: tuple[str, ...]) -> int | None:
    function = code.ptx or code.sass
    if function is None:
        return None
    return sum(i.opcode.partition(".")[0] in names for i in function.instructions)
