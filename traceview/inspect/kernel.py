"""The report on one compiled kernel: its accesses, its limits, its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from traceview.hardware.waves import waves_of
from traceview.inspect.inlined_lines import with_helper_lines
from traceview.inspect.kernel_context import KernelContext, tensor_ops_of
from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.occupancy import occupancy_of, sm_count_of, static_shared
from traceview.inspect.recompilations import Compare, Recompilations, Recompile
from traceview.inspect.rules import findings_of
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.elements_per_thread import elements_per_thread
from traceview.ptx.model import Compiled
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
    sms = sm_count_of(compiled, sm_count) if compiled.grid else None
    written = ptx_accesses.accesses(code.ptx) if code.ptx else ()
    running = sass_accesses.accesses(code.sass) if code.sass else ()
    trials = Recompilations(recompile, compare) if recompile else None
    kernel = KernelContext(compiled, code, (*written, *running), occupancy, sms, trials)
    findings = findings_of(kernel)
    producer = producer_of(compiled.name, compiled.ptx) if compiled.how == "given" else Producer()
    waves = None
    if compiled.grid and occupancy and sms:
        waves = waves_of(compiled.grid, occupancy, sms.count)
    if provenance := kernel.provenance:
        elements = elements_per_thread(
            written, provenance.element_bits, provenance.streams, provenance.bits_of
        )
    else:
        elements = elements_per_thread(running)
    spilled: tuple[SpilledValue, ...] = ()
    if code.sass and kernel.spill_bytes:
        loop = kernel.mix.hottest_loop if kernel.mix else None
        spilled = spilled_values(code.sass, loop.instructions if loop else ())
    notes = (*code.notes, *notes)
    if sms and sms.assumed:
        notes = (*notes, f"waves are counted on {sms.described}")
    function = code.ptx or code.sass
    if function and not any(i.source for i in function.instructions):
        remedy = f"; {producer.line_option}" if producer.line_option else ""
        notes = (*notes, f"no source lines: the code has no line table{remedy}")
    demangled_name = demangling.demangled([compiled.name])[compiled.name]
    resources = code.resources
    return KernelReport(
        compiled=compiled,
        ptx=code.ptx,
        sass=code.sass,
        accesses=tuple(with_helper_lines(kernel.accesses_with_costs, (code.ptx, code.sass))),
        differences=kernel.differences,
        elements_per_thread=elements,
        instruction_mix=_instruction_mix(code),
        tensor_ops=tensor_ops_of(code),
        barriers=_counted(code, ("bar", "barrier", "BAR")),
        shuffles=_counted(code, ("shfl", "SHFL")),
        registers=resources.registers if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        stack_bytes=resources.stack_bytes if resources else None,
        static_shared_bytes=static_shared(code),
        dynamic_shared_bytes=compiled.dynamic_shared_bytes,
        occupancy=occupancy,
        waves=waves.waves if waves else None,
        sms=sms,
        live_registers=live_registers(code.sass) if code.sass else None,
        mix=kernel.mix,
        layout_conversions=kernel.layout_conversions,
        async_waits=kernel.async_waits,
        variables=variables_by_line(kernel.ttgir) if kernel.ttgir else {},
        spilled_values=spilled,
        pipeline_buffers=pipeline_buffers(kernel.ttgir) if kernel.ttgir else (),
        findings=findings,
        demangled_name=demangled_name if demangled_name != compiled.name else None,
        notes=notes,
        producer=producer,
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
