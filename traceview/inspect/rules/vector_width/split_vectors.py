"""Vectors of 256 bits that an older Triton moves as two of 128, on GPUs that move them at once."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.errors import InputError
from traceview.findings import Evidence, Finding
from traceview.hardware import limits_of
from traceview.inspect.kernel_context import AccessContext, KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.source_lines import lines_in_message
from traceview.inspect.rules.vector_width.causes import WIDE_BITS
from traceview.inspect.rules.vector_width.side_effects import KINDS
from traceview.inspect.sass_vs_ptx import widths, widths_text
from traceview.ptx.model import Compiled
from traceview.ptx.ttgir.parser import parse_ttgir
from traceview.ptx.ttgir.vector_limit import VectorLimit, vector_limits

_REMEDY = (
    "Compile with Triton 3.9 or newer, which moves {wanted_bits:bit} at once where a thread has "
    "that many adjacent and aligned"
)


def split_vectors(kernel: KernelContext) -> Iterator[Finding]:
    """Lines that move 128 bits at a time although Triton knows adjacent, aligned runs of 256.

    The alignment has to be declared, as by tl.multiple_of(pointers, 32): a launch tells Triton
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
    split = [c for c in contexts if any(_is_split(c, limit) for limit in limits)]
    if split:
        yield _finding(split, full, kernel.compiled)


def full_width_bits(arch: str) -> int:
    """The most bits of global memory that a thread moves in one instruction; 128 if unknown."""
    try:
        return 8 * limits_of(arch).access_bytes
    except InputError:
        return WIDE_BITS


def _is_split(context: AccessContext, limit: VectorLimit) -> bool:
    source, kind, _ = context.place
    same_array = not context.array or not limit.arrays or bool(limit.arrays & context.array)
    return (
        (limit.line, limit.kind) == (source, kind)
        and context.access.width_bits == WIDE_BITS
        and same_array
    )


def _finding(split: list[AccessContext], full: int, compiled: Compiled) -> Finding:
    lines = dict.fromkeys((c.access.source, f"{KINDS[c.access.kind]} at ") for c in split)
    places, values = lines_in_message([line for line, _ in lines], [lead for _, lead in lines])
    accesses = [context.access for context in split]
    values |= {
        "width_bits": WIDE_BITS,
        "wanted_bits": full,
        "instructions": sum(access.count for access in accesses),
        "widths": widths_text(widths(accesses)),
        "cause": "this version of Triton has no wider instruction",
        "proven": True,
    }
    return Finding(
        "low",
        f"Global {places} move {{width_bits:bit}} per thread per instruction instead of "
        f"{full} ({{widths}}), because {{cause}}",
        _REMEDY,
        subject=subject_of(split[0].access.source, compiled),
        evidence=Evidence(
            values,
            basis=f"Triton's analysis: {full // 8} adjacent bytes per thread, aligned to as many",
        ),
    )
