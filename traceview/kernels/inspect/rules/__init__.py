"""Rules on what to change in a kernel, each a function of the kernel's context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from traceview.base.findings import SEVERITIES, Finding
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.recompilations import Outcome
from traceview.kernels.inspect.rules import (
    arithmetic,
    global_memory,
    launches,
    loops,
    occupancy,
    products,
    rows,
    shared_memory,
)
from traceview.kernels.inspect.rules.atomics import atomics
from traceview.kernels.inspect.rules.engine import Rule, advice_by
from traceview.kernels.inspect.rules.guessed_tiles import of_guessed_tiles
from traceview.kernels.inspect.rules.remedies import Advice, Reconciliation
from traceview.kernels.inspect.rules.vector_width.narrow_accesses import narrow_global_accesses

RULES: tuple[Rule, ...] = (
    launches.plain_globals,
    occupancy.small_launch,
    launches.partial_warps,
    launches.masked_blocks,
    launches.small_blocks,
    launches.repeated_reductions,
    launches.split_loops,
    occupancy.serialized_wgmma,
    occupancy.scalar_blocks,
    occupancy.upcast_operands,
    occupancy.fp32_products,
    occupancy.fp64_arithmetic,
    loops.waiting_operands,
    loops.repeated_operands,
    loops.older_tensor_cores,
    products.idle_tensor_cores,
    arithmetic.runtime_divisions,
    arithmetic.powers,
    arithmetic.divergent_constants,
    loops.shared_memory_bound,
    loops.unchanging_loads,
    loops.unshared_products,
    shared_memory.serialized_copies,
    global_memory.spills,
    global_memory.local_memory,
    global_memory.narrow_sass_accesses,
    atomics,
    rows.rows_by_warp,
    loops.few_loads_in_flight,
    narrow_global_accesses,
    global_memory.split_vectors,
    global_memory.uncoalesced_accesses,
    occupancy.low_occupancy,
    shared_memory.bank_conflicts,
    shared_memory.reductions_in_loops,
    shared_memory.layout_conversions_in_loops,
    occupancy.tail_wave,
)
"""All rules in reading order, in which they also spend the budget of recompilations."""


def findings_of(kernel: KernelContext) -> tuple[Finding, ...]:
    """The findings of all rules, the worst first."""
    advice = [each for rule in RULES for each in advice_by(rule, kernel)]
    # What never runs has no other fault.
    advice = [each for each in advice if _fails(each.finding)] or advice
    advice = of_causes(advice)
    if occupancy.is_small_launch(kernel):
        advice = [replace(each, finding=_of_a_small_launch(each.finding)) for each in advice]
    settling = None
    if kernel.trials:
        settling = Reconciliation(kernel.compiled, kernel.trials, partial(_inspected, kernel))
    advice = of_guessed_tiles(kernel, advice, settling)
    return ranked(settling.settle(advice) if settling else [each.finding for each in advice])


def of_causes(advice: Sequence[Advice]) -> list[Advice]:
    """The findings without those that another one explains, which it adds to its own message."""
    left = [each for each in advice if not any(other.explains(each) for other in advice)]
    for at, cause in enumerate(left):
        adds = [each.adds for each in advice if each.adds and cause.explains(each)]
        template = ". ".join((cause.finding.template, *adds))
        left[at] = replace(cause, finding=replace(cause.finding, template=template))
    return left


def _inspected(kernel: KernelContext, outcome: Outcome) -> dict[str, list[Finding]]:
    """The findings on a recompiled kernel by rule, as its own report would have them."""
    compiled = replace(outcome.compiled, notes=outcome.code.remarks)
    sms = kernel.sms if compiled.grid else None
    after = KernelContext(compiled, outcome.code, outcome.ptx_accesses, outcome.occupancy, sms)
    advice = {rule.__name__: advice_by(rule, after) for rule in RULES}
    return {name: [each.finding for each in listed] for name, listed in advice.items()}


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, the worst first; those of one severity stay in their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _of_a_small_launch(finding: Finding) -> Finding:
    """A finding as information, unless it says that the launch fails."""
    return finding if _fails(finding) else replace(finding, severity="info")


def _fails(finding: Finding) -> bool:
    """Whether a finding says that no block fits on an SM."""
    return finding.evidence.values.get("blocks_per_sm") == 0
