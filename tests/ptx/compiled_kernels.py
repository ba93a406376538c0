"""Kernels and reports made by hand, for what says something of them."""

from traceview.base.findings import Evidence, Finding, Severity
from traceview.base.hardware import limits_of, occupancy
from traceview.kernels.inspect.kernel_report import Difference, KernelReport, subject_of
from traceview.kernels.ptx.model import Access, Compiled, SourceLine

FILE = "/home/user/gelu.py"
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


def a_line(number: int = 31, file: str = FILE) -> SourceLine:
    return SourceLine(file, number)


def an_access(width_bits: int | None = 128, count: int = 1, **changes) -> Access:
    """A global load of PTX unless told otherwise."""
    fields = {
        "level": "ptx",
        "kind": "load",
        "space": "global",
        "opcode": f"ld.global.b{width_bits}",
        "width_bits": width_bits,
        "count": count,
        "predicated": False,
        "loop_depth": 0,
        "source": a_line(),
    }
    return Access(**(fields | changes))


def a_compiled(ptx: str | None = None, **changes) -> Compiled:
    fields = {"name": "k", "arch": "sm_90", "how": "given", "ptx": ptx, "num_warps": 4}
    return Compiled(**(fields | changes))


def a_finding(
    severity: Severity, message: str, action: str, basis: str = "", source: SourceLine | None = None
) -> Finding:
    evidence = Evidence(basis=basis)
    return Finding(
        severity, message, action, subject=subject_of(source, a_compiled()), evidence=evidence
    )


def a_report(**changes) -> KernelReport:
    """A kernel with a load that is narrower in SASS than in PTX, and a finding on it."""
    line = a_line()
    fields = {
        "compiled": a_compiled(name="gelu_kernel", how="launched", launches=3, grid=(64, 1, 1)),
        "ptx": None,
        "sass": None,
        "accesses": (
            an_access(128, 2, opcode="ld.global.v4.b32"),
            an_access(64, 2, level="sass", opcode="LDG.E.64"),
        ),
        "differences": (
            Difference(line, "load", "global", "narrowed", "2 × 128 bits", "2 × 64 bits"),
        ),
        "elements_per_thread": 8,
        "instruction_mix": {"load": 2, "float": 9},
        "tensor_ops": (),
        "barriers": 0,
        "shuffles": 0,
        "registers": 32,
        "spill_bytes": 0,
        "stack_bytes": 0,
        "static_shared_bytes": 0,
        "dynamic_shared_bytes": 1024,
        "occupancy": occupancy(limits_of("sm_90"), 128, 32),
        "waves": 0.25,
        "findings": (
            a_finding("low", "the load loses 2 lanes", "Load less", "seen in both", line),
        ),
        "notes": ("no such tool",),
    }
    return KernelReport(**(fields | changes))


def ptx_kernel(body: str, parameters: str = ".param .u64 k_x, .param .u64 k_y, .param .u32 k_n"):
    """PTX of a kernel `k` with the thread's number in %r1, x in %rd1, y in %rd2 and n in %r2."""
    return f"""{HEADER}
.visible .entry k({parameters})
{{
    .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
    .loc 1 30 0
    ld.param.u64 %rd1, [k_x]; ld.param.u64 %rd2, [k_y]; ld.param.u32 %r2, [k_n];
    mov.u32 %r1, %tid.x;
    mad.wide.s32 %rd3, %r1, 4, %rd1; mad.wide.s32 %rd4, %r1, 4, %rd2;
{body}
    ret;
}}
.file 1 "{FILE}"
"""
