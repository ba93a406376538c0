"""Local memory: registers that spill to it, and what else uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceview import units
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.inspect.rules.remedies import one_of_each, relieving_remedies, results_clause

_MANY_SPILLED_BYTES = 128
_SPILLS = Diagnosis(
    "Each thread spills {spill_bytes:byte} of registers to local memory",
    "Try a smaller tile, more warps or fewer stages, which likely lower the registers per thread",
)
_ANGLES = Diagnosis(
    "Each thread uses {stack_bytes:byte} of local memory, though nothing spills: a sine, cosine or "
    "tangent[ at {places}] reduces large angles there",
    "If angles stay small and six digits suffice, use {fast}{in_fp32}, which need no local memory",
)
_PRINTS = Diagnosis(
    "Each thread uses {stack_bytes:byte} of local memory, though nothing spills: it holds the "
    "arguments of {printf}[ at {places}]",
    "Remove {printf} once the kernel is debugged",
)
_OF_LIBRARY = Diagnosis(
    "Each thread uses {stack_bytes:byte} of local memory, though nothing spills: likely an array "
    "of a library function[ at {places}], as Triton has no local arrays",
    "Use a less precise function if that suffices (libdevice.fast_…)",
)
_ARRAY = Diagnosis(
    "Each thread uses {stack_bytes:byte} of local memory, though nothing spills: likely an array "
    "indexed at run time[ at {places}]",
    "Unroll the loop that indexes the array, so that it can live in registers",
)
# Sine, cosine and tangent of libdevice and CUDA: the table of 2/π, and the functions that read it.
_USES = (
    (_ANGLES, re.compile(r"__cudart_i2opi_\w+|__internal_trig_reduction\w+")),
    (_PRINTS, re.compile(r"\bvprintf\b")),
)
_IN_FP64 = re.compile(r"__cudart_i2opi_d|__internal_trig_reduction_slowpathd")


def spills(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A finding on spilled registers, with the remedies that reduce the spills."""
    spilled = kernel.spill_bytes
    if not spilled:
        return
    tries = relieving_remedies(kernel.compiled, kernel.trials, lambda outcome: outcome.spill_bytes)
    less = sorted((each for each in tries if each.after < spilled), key=lambda each: each.after)
    helped = one_of_each([each for each in less if each.after == 0]) or less[:1]
    compared = results_clause(
        helped, tries, lambda after: f"{units.count(spilled)} → {units.count(after)} bytes spilled"
    )
    recompiled = {"recompiled_spill_bytes": helped[0].after} if helped else {}
    yield CodeClaim(
        _SPILLS,
        {"spill_bytes": spilled, "proven": bool(helped), **recompiled},
        f"the spill stores of the compiled kernel{compared}",
        severity="high" if spilled >= _MANY_SPILLED_BYTES else "medium",
        helped=helped,
    )


def local_memory(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A stack frame without spills, and what it is used for as far as the PTX shows."""
    resources, ptx = kernel.code.resources, kernel.code.ptx
    if kernel.spill_bytes or resources is None or not resources.stack_bytes:
        return
    code = ptx.instructions if ptx else ()
    triton = any(not kernel.is_cuda(i.source) for i in code if i.source)
    says, symbol = (_OF_LIBRARY if triton else _ARRAY), ""
    shown = [i for i in code if i.opcode.startswith(("ld.local", "st.local"))]
    for use, symbols in _USES:
        matches = [(i, match[0]) for i in code if (match := symbols.search(i.operands))]
        if matches:
            says, shown, symbol = use, [i for i, _ in matches], matches[0][1]
            break
    lines = list(dict.fromkeys(i.source for i in shown if i.source))
    yield CodeClaim(
        says,
        {"stack_bytes": resources.stack_bytes},
        f"the stack frame in the compiled kernel{symbol and f', and {symbol} in its PTX'}",
        lines[0] if lines else None,
        lines,
        words={
            "printf": "tl.device_print" if triton else "printf",
            "fast": "libdevice.fast_sinf, fast_cosf or fast_tanf"
            if triton
            else "__sinf, __cosf or __tanf",
            "in_fp32": " in fp32" if any(_IN_FP64.search(i.operands) for i in shown) else "",
        },
    )
