"""One compiled kernel, looked at from all sides: its accesses, its limits, what to change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from traceview.errors import InputError
from traceview.hardware import Occupancy, limits_of, occupancy
from traceview.ptx import accesses as ptx_accesses
from traceview.ptx import sass as sass_code
from traceview.ptx.accesses import TensorOp
from traceview.ptx.code import Code, code_of
from traceview.ptx.kernel_report import Finding, KernelReport
from traceview.ptx.levels import differences
from traceview.ptx.model import Access, Compiled
from traceview.ptx.provenance import Provenance
from traceview.ptx.reasons import access_findings, ranked, resource_findings
from traceview.ptx.trials import Recompile
from traceview.ptx.width import elements_per_thread

_WARP_THREADS = 32
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

    With `recompile` the causes of narrow accesses are tested instead of inferred. `sm_count` is
    the number of SMs of the GPU, for the waves. A tool that is missing leaves its part None, with
    a note on how to get it. Raises TraceFormatError if the PTX cannot be parsed.
    """
    code = code_of(compiled, sass=sass)
    compiled = replace(compiled, notes=code.remarks)
    provenance = Provenance.of(code.ptx, compiled.arguments) if code.ptx else None
    report = _measured(compiled, code, provenance, sm_count)
    return replace(report, findings=ranked(_findings(report, provenance, recompile)))


def _measured(
    compiled: Compiled, code: Code, provenance: Provenance | None, sm_count: int | None
) -> KernelReport:
    accesses, resources = _accesses(code), code.resources
    known, said = _occupancy(compiled, code)
    return KernelReport(
        compiled=compiled,
        ptx=code.ptx,
        sass=code.sass,
        accesses=accesses,
        differences=differences(accesses),
        elements_per_thread=_elements(accesses, provenance),
        instruction_mix=_instruction_mix(code),
        tensor_ops=_tensor_ops(code),
        barriers=_counted(code, ("bar", "barrier", "BAR")),
        shuffles=_counted(code, ("shfl", "SHFL")),
        registers=resources.registers if resources else None,
        spill_bytes=resources.spill_bytes if resources else None,
        stack_bytes=resources.stack_bytes if resources else None,
        static_shared_bytes=_static_shared(code),
        dynamic_shared_bytes=compiled.dynamic_shared_bytes,
        occupancy=known,
        waves=_waves(compiled, known, sm_count),
        findings=(),
        notes=(*code.notes, *said),
    )


def _findings(
    report: KernelReport, provenance: Provenance | None, recompile: Recompile | None
) -> Iterator[Finding]:
    yield from access_findings(
        report.compiled, report.accesses, report.differences, provenance, recompile
    )
    yield from resource_findings(
        report.compiled,
        spill_bytes=report.spill_bytes,
        stack_bytes=report.stack_bytes,
        occupancy=report.occupancy,
        uses_tensor_cores=bool(report.tensor_ops),
    )


def _accesses(code: Code) -> tuple[Access, ...]:
    written = ptx_accesses.accesses(code.ptx) if code.ptx else ()
    running = sass_code.accesses(code.sass) if code.sass else ()
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


def _static_shared(code: Code) -> int | None:
    if code.resources:
        return code.resources.static_shared_bytes
    return code.ptx.static_shared_bytes if code.ptx else None


def _occupancy(compiled: Compiled, code: Code) -> tuple[Occupancy | None, tuple[str, ...]]:
    """The occupancy at the launch's block size, or why there is none."""
    if code.resources is None:
        return None, ()
    threads, said = _block_threads(compiled, code)
    if threads is None:
        return None, ("no occupancy: the block size is not known; pass --num-warps",)
    try:
        limits = limits_of(compiled.arch)
    except InputError as error:
        return None, (f"no occupancy: {error}",)
    dynamic = compiled.dynamic_shared_bytes
    unknown = "dynamic shared memory is not known and counted as none in the occupancy"
    if dynamic is None and _uses_dynamic_shared(code):
        said = (*said, unknown)
    known = occupancy(
        limits,
        threads,
        code.resources.registers,
        code.resources.static_shared_bytes,
        dynamic or 0,
        code.resources.barriers,
    )
    return known, said


def _block_threads(compiled: Compiled, code: Code) -> tuple[int | None, tuple[str, ...]]:
    """Threads of a block: as launched, as required, or the most that the kernel allows."""
    directives = code.ptx.directives if code.ptx else {}
    if directives.get("reqntid"):
        # With warp specialisation, this is more than num_warps of them.
        return math.prod(directives["reqntid"]), ()
    if compiled.num_warps:
        return compiled.num_warps * _WARP_THREADS, ()
    most = math.prod(directives.get("maxntid", ())) if directives.get("maxntid") else None
    most = most or (code.resources.max_threads if code.resources else None)
    if most is None:
        return None, ()
    return most, (f"occupancy is that of {most} threads a block, the most the kernel allows",)


def _uses_dynamic_shared(code: Code) -> bool:
    if _static_shared(code) or not code.ptx:
        return False
    return any(".shared" in instruction.opcode for instruction in code.ptx.instructions)


def _waves(compiled: Compiled, known: Occupancy | None, sm_count: int | None) -> float | None:
    """The blocks of the grid ÷ those that all SMs hold at once."""
    if not (compiled.grid and known and known.blocks_per_sm and sm_count):
        return None
    return math.prod(compiled.grid) / (known.blocks_per_sm * sm_count)
