"""Rules on what to change in a kernel, each a function of the kernel's context."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from traceview.base.findings import SEVERITIES, Finding
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.recompilations import Outcome
from traceview.kernels.inspect.rules.atomics import atomics
from traceview.kernels.inspect.rules.engine import Rule, advice_by
from traceview.kernels.inspect.rules.global_memory import (
    local_memory,
    narrow_sass_accesses,
    spills,
    split_vectors,
    uncoalesced_accesses,
    unused_lanes,
)
from traceview.kernels.inspect.rules.loops import (
    few_loads_in_flight,
    older_tensor_cores,
    waiting_operands,
)
from traceview.kernels.inspect.rules.occupancy import (
    fp32_products,
    is_small_launch,
    low_occupancy,
    serialized_wgmma,
    small_launch,
    tail_wave,
)
from traceview.kernels.inspect.rules.remedies import Reconciliation
from traceview.kernels.inspect.rules.shared_memory import (
    bank_conflicts,
    layout_conversions_in_loops,
    narrow_shared_accesses,
    reductions_in_loops,
    serialized_copies,
)
from traceview.kernels.inspect.rules.vector_width.narrow_accesses import narrow_global_accesses

RULES: tuple[Rule, ...] = (
    small_launch,
    serialized_wgmma,
    fp32_products,
    waiting_operands,
    older_tensor_cores,
    serialized_copies,
    spills,
    local_memory,
    narrow_sass_accesses,
    narrow_global_accesses,
    split_vectors,
    uncoalesced_accesses,
    atomics,
    unused_lanes,
    few_loads_in_flight,
    low_occupancy,
    bank_conflicts,
    reductions_in_loops,
    layout_conversions_in_loops,
    narrow_shared_accesses,
    tail_wave,
)
"""All rules in reading order, in which they also spend the budget of recompilations."""


def findings_of(kernel: KernelContext) -> tuple[Finding, ...]:
    """The findings of all rules, the worst first."""
    advice = [each for rule in RULES for each in advice_by(rule, kernel)]
    if is_small_launch(kernel):
        advice = [replace(each, finding=_of_a_small_launch(each.finding)) for each in advice]
    findings = [each.finding for each in advice]
    if kernel.trials:
        inspected = partial(_inspected, kernel)
        findings = Reconciliation(kernel.compiled, kernel.trials, inspected).settle(advice)
    if kernel.compiled.how in ("called", "guessed"):
        findings = [_of_a_guess(finding) for finding in findings]
    return ranked(findings)


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
    fails = finding.evidence.values.get("blocks_per_sm") == 0
    return finding if fails else replace(finding, severity="info")


def _of_a_guess(finding: Finding) -> Finding:
    evidence = finding.evidence
    return replace(
        finding, evidence=replace(evidence, basis=f"{evidence.basis}; for guessed arguments")
    )
