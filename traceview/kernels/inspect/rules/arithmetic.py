"""Division by values known only at run time, powers, and tables in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import helper_lines, inlined_text, line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.pipes import SCHEDULERS

# Less is not the first thing to change.
_LEAST_SHARE = 1 / 3
_DIVISIONS = Diagnosis(
    "Integer division by values that are known only at run time takes {instructions} of "
    "{all_instructions} instructions{where}, at {places}",
    "Pass the divisors as compile-time constants ({how}), or use a grid of as many axes, so that "
    "indices need no division. Of two results of one division, compute the remainder as "
    "a - a / b * b",
)
_LONG = Diagnosis(
    "{each} at {place} divides integers of 64 bits, several times the work of 32 bits",
    "Use indices of 32 bits (int instead of size_t or int64_t) where they suffice, or let rows and "
    "columns count along instead of dividing",
)
_POWERS = Diagnosis(
    "The general power function (pow) takes {instructions} of {all_instructions} instructions"
    "{where}, at {places}",
    "Multiply where the exponent is a small whole number (x * x * x), use rsqrt where it is a half "
    "of one (x ** -1.5 is r * r * r), and take powers of 2 from "
    "{exp2} or, as integers, from a shift (1 << i){before}",
)
# Coefficients in libdevice's powf: of CUDA 13 and, before, of the one that Triton comes with. Its
# pow in fp64 is a finding on fp64.
_OF_POWER = re.compile("0f391FCB8E|0f3B18F0FE")
_TABLE = Diagnosis(
    "Threads of a warp load different elements of a __constant__ array at {places}, and constant "
    "memory serves one address at a time",
    "Copy the table to shared memory once per block, or read it through a const __restrict__ "
    "pointer to global memory, whose cache serves all threads at once",
    "medium",
)


def runtime_divisions(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Integer divisions that make up much of the hottest loop, or of a kernel without a loop."""
    ptx, sass, mix = kernel.code.ptx, kernel.code.sass, kernel.mix
    if ptx is None or sass is None or mix is None or kernel.provenance is None:
        return
    slices = kernel.provenance.slices
    # The GPU has no instruction for it; of a constant, the compiler makes a multiplication. One
    # before a loop may only count its iterations, and what is alike for a block is computed once.
    deepest = max((i.loop_depth for i in ptx.instructions), default=0)
    inner = (i for i in ptx.instructions if i.loop_depth == deepest and slices.divides(i))
    divisions = [each for each in inner if slices.compared(each).per_thread]
    lines = list(dict.fromkeys(each.source for each in divisions))
    loop = mix.hottest_loop
    listed = sass.instructions
    code = [listed[at] for at in loop.instructions] if loop else listed
    count = sum(each.source in lines for each in code if each.source)
    memory = kernel.pass_cycles.get("memory", 0.0)
    if not count or count < _LEAST_SHARE * len(code):
        long = [each.source for each in divisions if each.opcode.endswith("64")]
        source = (loop.source if loop else long[0]) if long else None
        # What makes code of Python chooses the size of its indices.
        if source and not source.file.endswith(".py"):
            yield CodeClaim(
                _LONG,
                {"place": line_name(source), "proven": True},
                "div or rem of 64 bits in PTX, with a divisor that is known only at run time",
                source,
                words={"each": "Each iteration of the loop" if loop else "Each thread"},
            )
        return
    # Of unknown memory traffic nothing is said.
    times = len(code) / SCHEDULERS / memory if memory else 0.0
    bound = times >= 1
    lines = [line for line in lines if any(each.source == line for each in code)]
    yield CodeClaim(
        _DIVISIONS,
        {
            "instructions": count,
            "all_instructions": len(code),
            "loop": line_name(loop.source) if loop and loop.source else None,
            "proven": True,
        },
        "SASS: instructions at lines with div or rem in PTX, for which a GPU has no instruction"
        + f"; issuing a pass takes {times:.1f} times as long as its memory traffic" * bound,
        lines[0],
        lines,
        words={
            "where": " of the loop at {loop}" if loop and loop.source else "",
            "how": "tl.constexpr" if kernel.ttgir else "template parameters",
        },
        severity="medium" if bound else "low",
    )


def powers(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Powers that make up much of the hottest loop, or of a kernel without a loop."""
    ptx, sass, mix = kernel.code.ptx, kernel.code.sass, kernel.mix
    found = [i for i in ptx.instructions if _OF_POWER.search(i.operands)] if ptx else []
    if not found or sass is None or mix is None:
        return
    loop, listed = mix.hottest_loop, sass.instructions
    code = [listed[at] for at in loop.instructions] if loop else listed
    places = {(i.source, i.inlined) for i in found if i.source and (i.loop_depth or not loop)}
    of_powers = [i for i in code if (i.source, i.inlined) in places]
    if len(of_powers) < _LEAST_SHARE * len(code):
        return
    looped = [
        c for g in kernel.global_accesses.values() for c in g if c.access.loop_depth or not loop
    ]
    # What all threads load is one request for all of them.
    apart = any(c.address.per_thread or c.address.gathered or c.address.picked for c in looped)
    memory = kernel.pass_cycles.get("memory", 0.0) if apart else 0.0
    lines = list(dict.fromkeys(i.source for i in of_powers))
    yield CodeClaim(
        _POWERS,
        {
            "instructions": len(of_powers),
            "all_instructions": len(code),
            "loop": line_name(loop.source) if loop and loop.source else None,
            "proven": True,
        },
        "; ".join(filter(None, (inlined_text(helper_lines(found)), _OF_LIBDEVICE))),
        lines[0],
        lines,
        words={
            "where": " of the loop at {loop}" if loop and loop.source else "",
            "exp2": "exp2f" if kernel.compiled.is_cuda(lines[0]) else "tl.exp2",
            "before": ", and compute before the loop what does not change in it" if loop else "",
        },
        severity="medium" if memory <= len(code) / SCHEDULERS else "low",
    )


_OF_LIBDEVICE = "SASS: instructions at lines where the PTX has the polynomial of libdevice's pow"


def divergent_constants(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Loads of a table in constant memory at an index that differs between threads of a warp."""
    ptx, provenance = kernel.code.ptx, kernel.provenance
    if ptx is None or provenance is None:
        return
    # ptxas may keep in constant memory alone what it can prove to be uniform.
    loads = [each for each in ptx.instructions if each.opcode.startswith("ld.const")]
    apart = []
    for each in loads:
        origin = provenance.slices.address(each)
        if origin.gathered or (origin.per_thread and "x" in origin.axes):
            apart.append(each)
    if not apart:
        return
    by_data = all(provenance.slices.address(each).gathered for each in apart)
    lines = list(dict.fromkeys(each.source for each in apart))
    yield CodeClaim(
        _TABLE,
        {"accesses": len(apart), "proven": True},
        f"PTX: the address of {apart[0].opcode} depends on "
        + ("loaded data, so that neighbouring threads may agree" if by_data else "threadIdx.x"),
        lines[0],
        lines,
    )
