"""Global and local memory: scattered requests, split vectors, spilled registers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from traceview.base import units
from traceview.base.errors import InputError
from traceview.base.hardware import limits_of
from traceview.kernels.inspect.kernel_context import AccessContext, KernelContext
from traceview.kernels.inspect.kernel_report import helper_lines, inlined_text
from traceview.kernels.inspect.recompilations import widths, widths_text
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.inspect.rules.remedies import one_of_each, relieving_remedies, results_clause
from traceview.kernels.inspect.rules.vector_width.causes import WIDE_BITS
from traceview.kernels.inspect.rules.vector_width.proven import KINDS
from traceview.kernels.ptx.addresses.request_costs import SECTOR_BYTES
from traceview.kernels.ptx.model import Instruction, RequestCost
from traceview.kernels.ptx.ttgir.loop_loads import upcast_products
from traceview.kernels.ptx.ttgir.operations import cuda_core_products
from traceview.kernels.ptx.ttgir.parser import parse_ttgir
from traceview.kernels.ptx.ttgir.vector_limit import VectorLimit, vector_limits

_MOVES = ("load", "store", "async-copy")
_MOST_USED, _MINOR_SHARE = 0.5, 0.1
_UNCOALESCED = Diagnosis(
    "Global {places} use {used_pct} of the bytes that they move: a warp's request touches "
    "{sectors_per_request} sectors instead of {ideal_sectors_per_request}",
    f"Let the tile cover at least {SECTOR_BYTES} adjacent bytes along the axis that is contiguous "
    "in memory, or store the data so that what a block needs is adjacent",
    "medium",
)
_ADJACENT = "Let the threads of a warp access adjacent addresses"
_NARROW_SASS = Diagnosis(
    f"{{instructions}} of {{all_instructions}} global accesses move less than {WIDE_BITS} bits per "
    "thread per instruction ({widths})",
    "Inspect the kernel's PTX or its source to find the cause",
    "medium",
)
_SPLIT = Diagnosis(
    "Global {places} move {width_bits:bit} per thread per instruction instead of {full} "
    "({widths}), because {cause}",
    "Compile with Triton 3.9 or newer, which moves {wanted_bits:bit} at once where a thread has "
    "that many adjacent and aligned",
)


def uncoalesced_accesses(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Accesses at full width whose warps touch at least twice the sectors that hold their data.

    Bytes of these sectors that any thread of the block uses in one pass count as used. Narrow
    accesses are left out, as the rule on narrow accesses covers them.
    """
    contexts = [context for each in kernel.global_accesses.values() for context in each]
    total = sum(kernel.bits_per_pass([context]) for context in contexts)
    for context in contexts:
        access = context.access
        is_wide = (access.width_bits or 0) >= WIDE_BITS and access.kind in _MOVES
        share = kernel.bits_per_pass([context]) / total if total else 0.0
        cost, used = _cost(kernel, context) if is_wide and share >= _MINOR_SHARE else (None, None)
        if cost is None or used is None or used > _MOST_USED:
            continue
        inlined = inlined_text(helper_lines(context.instructions))
        counted = f"addresses in PTX of {access.count} × {access.opcode} in one block"
        yield CodeClaim(
            _UNCOALESCED,
            {
                "sectors_per_request": cost.sectors,
                "ideal_sectors_per_request": cost.ideal_sectors,
                "used_pct": 100 * used,
                "instructions": access.count,
            },
            "; ".join(filter(None, (inlined, counted))),
            access.source,
            [access.source],
            [f"{KINDS[access.kind]} at "],
            remedy=_ADJACENT if kernel.compiled.is_cuda(access.source) else "",
        )


def _cost(kernel: KernelContext, context: AccessContext) -> tuple[RequestCost | None, float | None]:
    costs, access = kernel.request_costs, context.access
    cost = costs.cost_of(access, context.instructions) if costs else None
    if costs is None or cost is None or not cost.is_uncoalesced:
        return None, None
    return cost, costs.used_fraction(_at_array(kernel, context), (access.width_bits or 0) // 8)


def _at_array(kernel: KernelContext, context: AccessContext) -> Sequence[Instruction]:
    """All instructions of this kind and width on the array, whatever their line."""
    of = context.array, context.access.kind, context.access.width_bits
    every = (each for listed in kernel.global_accesses.values() for each in listed)
    same = (c for c in every if (c.array, c.access.kind, c.access.width_bits) == of)
    return [instruction for each in same for instruction in each.instructions]


def narrow_sass_accesses(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Narrow accesses of a kernel of which only the SASS is known, which does not show why."""
    if kernel.provenance is not None:
        return
    moves = [
        a for a in kernel.accesses if a.space == "global" and a.kind in _MOVES and a.width_bits
    ]
    narrow = [access for access in moves if (access.width_bits or 0) < WIDE_BITS]
    if narrow:
        yield CodeClaim(
            _NARROW_SASS,
            {
                "instructions": sum(access.count for access in narrow),
                "all_instructions": sum(access.count for access in moves),
                "width_bits": max(widths(narrow)),
                "wanted_bits": WIDE_BITS,
                "widths": widths_text(widths(narrow)),
                "cause": None,
                "proven": False,
            },
            "SASS, which does not show the cause",
            narrow[0].source,
        )


def split_vectors(kernel: KernelContext) -> Iterator[CodeClaim]:
    """Vectors of 256 bits that an older Triton moves as two of 128.

    Their alignment has to be declared, as by tl.multiple_of(pointers, 32): a launch tells Triton
    only multiples of 16.
    """
    full = full_width_bits(kernel.compiled.arch)
    ttgir = kernel.compiled.stages.get("ttgir")
    moved = max((access.width_bits or 0 for access in kernel.accesses), default=0)
    if ttgir is None or full == WIDE_BITS or moved >= full:
        return
    limits = [
        limit for limit in vector_limits(parse_ttgir(ttgir), full // 8) if limit.width_bits >= full
    ]
    contexts = [c for listed in kernel.global_accesses.values() for c in listed]
    accesses = [c.access for c in contexts if any(_is_split(c, limit) for limit in limits)]
    if accesses:
        at = dict.fromkeys((access.source, f"{KINDS[access.kind]} at ") for access in accesses)
        yield CodeClaim(
            _SPLIT,
            {
                "width_bits": WIDE_BITS,
                "wanted_bits": full,
                "instructions": sum(access.count for access in accesses),
                "widths": widths_text(widths(accesses)),
                "cause": "this version of Triton has no wider instruction",
                "proven": True,
            },
            f"Triton's analysis: {full // 8} adjacent bytes per thread, aligned to as many",
            accesses[0].source,
            [line for line, _ in at],
            [lead for _, lead in at],
            words={"full": str(full)},
        )


def full_width_bits(arch: str) -> int:
    """The most bits of global memory that a thread moves in one instruction; 128 if unknown."""
    try:
        return 8 * limits_of(arch).access_bytes
    except InputError:
        return WIDE_BITS


def _is_split(context: AccessContext, limit: VectorLimit) -> bool:
    source, kind, _ = context.place
    same_array = not context.array or not limit.arrays or bool(limit.arrays & context.array)
    same_place = (limit.line, limit.kind) == (source, kind)
    return same_place and context.access.width_bits == WIDE_BITS and same_array


MANY_SPILLED_BYTES = 128
"""Spilled bytes per thread that cost time, as a few need not.

A backward pass of attention that spills 56 bytes took 1.28 times as long on an H200 with twice the
warps, which spill none.
"""
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
    "Unroll the loop that indexes the array, with a fixed number of iterations, so that it can "
    "live in registers",
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
    # A product on CUDA cores holds its operands in registers: the finding on it has the cause.
    ttgir = kernel.ttgir
    on_cores = {p.source for p in cuda_core_products(ttgir)} if ttgir else set()
    of_product = ttgir and any(p.source in on_cores for p in upcast_products(ttgir))
    yield CodeClaim(
        _SPILLS,
        {"spill_bytes": spilled, "proven": bool(helped), **recompiled},
        f"the spill stores of the compiled kernel{compared}",
        severity="low" if spilled < MANY_SPILLED_BYTES else "medium" if of_product else "high",
        helped=helped,
    )


def local_memory(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A stack frame without spills, and what it is used for as far as the PTX shows."""
    resources, ptx = kernel.code.resources, kernel.code.ptx
    if kernel.spill_bytes or resources is None or not resources.stack_bytes:
        return
    code = ptx.instructions if ptx else ()
    triton = any(not kernel.compiled.is_cuda(i.source) for i in code if i.source)
    says, symbol = (_OF_LIBRARY if triton else _ARRAY), ""
    shown = [i for i in code if i.opcode.startswith(("ld.local", "st.local"))]
    for use, symbols in _USES:
        matches = [(i, match[0]) for i in code if (match := symbols.search(i.operands))]
        if matches:
            says, shown, symbol = use, [i for i, _ in matches], matches[0][1]
            break
    lines = list(dict.fromkeys(i.source for i in shown if i.source))
    loop = kernel.mix.hottest_loop if kernel.mix else None
    hot = says is _ARRAY and any(
        "local load" in each.counts.by_class and loop and each.depth >= loop.depth
        for each in (kernel.mix.loops if kernel.mix else ())
    )
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
        severity="medium" if hot else None,
    )
