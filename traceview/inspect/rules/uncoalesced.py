"""Wide global accesses that use only a part of the sectors that they touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceview.findings import Evidence, Finding
from traceview.inspect.inlined_lines import helper_lines, inlined_text
from traceview.inspect.kernel_context import AccessContext, KernelContext
from traceview.inspect.kernel_report import subject_of
from traceview.inspect.rules.source_lines import lines_in_message
from traceview.inspect.rules.vector_width.causes import WIDE_BITS
from traceview.inspect.rules.vector_width.side_effects import KINDS
from traceview.ptx.addresses.request_costs import SECTOR_BYTES
from traceview.ptx.model import Instruction, RequestCost

_MOVES = ("load", "store", "async-copy")
_MOST_USED = 0.5
_MINOR_SHARE = 0.1
_WIDER_TILE = (
    f"Let the tile cover at least {SECTOR_BYTES} adjacent bytes along the axis that is contiguous "
    "in memory, or store the data so that what a block needs is adjacent"
)
_ADJACENT = "Let the threads of a warp access adjacent addresses"


def uncoalesced_accesses(kernel: KernelContext) -> Iterator[Finding]:
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
        if cost is not None and used is not None and used <= _MOST_USED:
            yield _finding(kernel, context, cost, used)


def _cost(kernel: KernelContext, context: AccessContext) -> tuple[RequestCost | None, float | None]:
    costs, access = kernel.request_costs, context.access
    cost = costs.cost_of(access, context.instructions) if costs else None
    if costs is None or cost is None or not cost.is_uncoalesced:
        return None, None
    return cost, costs.used_fraction(_at_array(kernel, context), (access.width_bits or 0) // 8)


def _at_array(kernel: KernelContext, context: AccessContext) -> Sequence[Instruction]:
    """All instructions of this kind and width on the array, whatever their line."""
    same = (each for listed in kernel.global_accesses.values() for each in listed)
    return [
        instruction
        for each in same
        if each.array == context.array
        and (each.access.kind, each.access.width_bits)
        == (context.access.kind, context.access.width_bits)
        for instruction in each.instructions
    ]


def _finding(
    kernel: KernelContext, context: AccessContext, cost: RequestCost, used: float
) -> Finding:
    access = context.access
    places, values = lines_in_message([access.source], [f"{KINDS[access.kind]} at "])
    values |= {
        "sectors_per_request": cost.sectors,
        "ideal_sectors_per_request": cost.ideal_sectors,
        "used_pct": 100 * used,
        "instructions": access.count,
    }
    inlined = inlined_text(helper_lines(context.instructions))
    counted = f"addresses in PTX of {access.count} × {access.opcode} in one block"
    return Finding(
        "medium",
        f"Global {places} use {{used_pct}} of the bytes that they move: a warp's request touches "
        "{sectors_per_request} sectors instead of {ideal_sectors_per_request}",
        _ADJACENT if kernel.is_cuda(access.source) else _WIDER_TILE,
        subject=subject_of(access.source, kernel.compiled),
        evidence=Evidence(values, basis="; ".join(filter(None, (inlined, counted)))),
    )
