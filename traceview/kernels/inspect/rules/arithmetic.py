"""Division by values known only at run time, and tables in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.model import Instruction
from traceview.kernels.ptx.pipes import SCHEDULERS

# The GPU has no instruction for it; of a constant, the compiler makes a multiplication.
_DIVISION = re.compile(r"(?:div|rem)\.[su](?:16|32|64)$")
_CONSTANT_DIVISOR = re.compile(r",\s*-?(?:0x)?[0-9a-fA-F]+$")
# Less is not the first thing to change.
_LEAST_SHARE = 1 / 3
_DIVISIONS = Diagnosis(
    "Integer division by values that are known only at run time takes {instructions} of "
    "{all_instructions} instructions{where}, at {places}",
    "Pass the divisors as compile-time constants ({how}), or use a grid of as many axes, so that "
    "indices need no division. Of two results of one division, compute the remainder as "
    "a - a / b * b",
)
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
    if ptx is None or sass is None or mix is None:
        return
    divisions = [i for i in ptx.instructions if _DIVISION.match(i.opcode)]
    divisions = [i for i in divisions if not _CONSTANT_DIVISOR.search(i.operands)]
    # One before a loop may only count its iterations.
    deepest = max((i.loop_depth for i in ptx.instructions), default=0)
    divisions = [i for i in divisions if i.loop_depth == deepest]
    lines = list(dict.fromkeys(each.source for each in divisions if _is_per_thread(kernel, each)))
    loop = mix.hottest_loop
    listed = sass.instructions
    code = [listed[at] for at in loop.instructions] if loop else listed
    count = sum(each.source in lines for each in code if each.source)
    memory = kernel.pass_cycles.get("memory", 0.0)
    if not count or count < _LEAST_SHARE * len(code):
        return
    bound = 0 < memory <= len(code) / SCHEDULERS
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
        + f"; issuing a pass takes {len(code) / SCHEDULERS / memory:.1f} times as long as its "
        "memory traffic" * bound,
        lines[0],
        lines,
        words={
            "where": " of the loop at {loop}" if loop and loop.source else "",
            "how": "tl.constexpr" if kernel.ttgir else "template parameters",
        },
        severity="medium" if bound else "low",
    )


def _is_per_thread(kernel: KernelContext, division: Instruction) -> bool:
    """Whether threads divide different values: what is alike for a block is computed once."""
    slices = kernel.provenance.slices if kernel.provenance else None
    return slices is None or slices.compared(division).per_thread


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
