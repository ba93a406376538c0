"""One compiled kernel, looked at from all sides: its accesses, its limits, what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from traceview.inspect.kernel_report import KernelReport
from traceview.inspect.occupancy import Sms, occupancy_of, sms_of, static_shared, waves_of
from traceview.inspect.rules.findings import findings_on
from traceview.inspect.sass_vs_ptx import differences, stores_of_tensor_maps
from traceview.inspect.trials import Recompile
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx.accesses import TensorOp
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.elements_per_thread import elements_per_thread
from traceview.ptx.model import Access, Compiled
from traceview.ptx.sass import accesses as sass_accesses
from traceview.toolchain.listings import Code, code_of

_SASS_TENSOR = {
    *("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA"),
    *("HGMMA", "IGMMA", "QGMMA", "BGMMA"),
    *("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA"),
}


def inspect(
    compiled: Compiled,
    *,
    sass: bool = True,
    recompile: Recompile | None = None,
    sm_count: int | None = None,
) -> KernelReport:
    """Report on one kernel. `sass` False leaves the SASS out, for speed.

    With `recompile` causes and remedies are tested instead of inferred. `sm_count` is the number
    of SMs of the GPU, for the waves; None takes that of a part of this architecture, and says so
    in a note. A tool that is missing leaves its part None, with a note on how to get it. Raises
    TraceFormatError if the PTX cannot be parsed.
    """
    code = code_of(compiled, sass=sass)
    compiled = replace(compiled, notes=code.remarks)
    provenance = Provenance.of(code.ptx, compiled.arguments) if code.ptx else None
    report = _measured(compiled, code, provenance, sm_count)
    return replace(report, findings=findings_on(report, code, provenance, recompile))


def _measured(
    compiled: Compiled, code: Code, provenance: Provenance | None, sm_count: int | None
) -> KernelReport:
    accesses, resources = _accesses(code), code.resources
    known, said = occupancy_of(compiled, code)
    sms = sms_of(compiled, sm_count) if compiled.grid else None
    return KernelReport(
        compiled=compiled,
        ptx=code.ptx,
        sass=code.sass,
        accesses=accesses,
        differences=differences(accesses, stores_of_tensor_maps(code.ptx) if code.ptx else ()),
        elements_per_thread=_elements(accesses, provenance),
        instruction_mix=_instruction_mix(code),
        tensor_ops=_tensor_ops(code),
        barriers=_counted(code, ("bar", "barrier", "BAR")),
        shuffles=_counted(code, ("shfl", "SHFL")),
        registers=resources.registers if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        stack_bytes=resources.stack_bytes if resources else None,
        static_shared_bytes=static_shared(code),
        dynamic_shared_bytes=compiled.dynamic_shared_bytes,
        occupancy=known,
        waves=waves_of(compiled, known, sms),
        sms=sms,
        findings=(),
        notes=(*code.notes, *said, *_assumed(sms)),
    )


def _assumed(sms: Sms | None) -> tuple[str, ...]:
    return (f"waves are those of {sms.said}",) if sms and sms.assumed else ()


def _accesses(code: Code) -> tuple[Access, ...]:
    written = ptx_accesses.accesses(code.ptx) if code.ptx else ()
    running = sass_accesses.accesses(code.sass) if code.sass else ()
    return (*written, *running)


def _elements(accesses: tuple[Access, ...], provenance: Provenance | None) -> int | None:
    level = "ptx" if provenance else "sass"
    listed = [access for access in accesses if access.level == level]
    if provenance is None:
        return elements_per_thread(listed)
    return elements_per_thread(listed, provenance.element_bits, provenance.streams)


def _instruction_mix(code: Code) -> Mapping[str, int]:
    """Families of the PTX, which say more of the program; of SASS alone, the opcodes' names."""
    if code.ptx:
        mix = ptx_accesses.instruction_mix(code.ptx)
        return {family: count for family, count in mix.items() if count}
    running = code.sass.instructions if code.sass else ()
    return Counter(instruction.opcode.partition(".")[0] for instruction in running)


def _tensor_ops(code: Code) -> tuple[TensorOp, ...]:
    if code.ptx:
        return ptx_accesses.tensor_ops(code.ptx)
    running = code.sass.instructions if code.sass else ()
    counts = Counter(
        (i.opcode, i.loop_depth) for i in running if i.opcode.partition(".")[0] in _SASS_TENSOR
    )
    return tuple(TensorOp(op, None, (), depth, count) for (op, depth), count in counts.items())


def _counted(code: Code, names: tuple[str, ...]) -> int | None:
    function = code.ptx or code.sass
    if function is None:
        return None
    return sum(i.opcode.partition(".")[0] in names for i in function.instructions)
