"""Rules on what to change in a kernel, each a function of the kernel's context."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from traceview.findings import SEVERITIES, Finding
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.recompilations import Outcome
from traceview.inspect.rules.advice import Advice, Reconciliation
from traceview.inspect.rules.atomics import atomics
from traceview.inspect.rules.local_memory import local_memory
from traceview.inspect.rules.low_occupancy import low_occupancy
from traceview.inspect.rules.products.fp32_products import fp32_products
from traceview.inspect.rules.serialized_copies import serialized_copies
from traceview.inspect.rules.serialized_wgmma import serialized_wgmma
from traceview.inspect.rules.shared_memory.bank_conflicts import bank_conflicts
from traceview.inspect.rules.shared_memory.layout_conversions import layout_conversions_in_loops
from traceview.inspect.rules.shared_memory.reductions_in_loops import reductions_in_loops
from traceview.inspect.rules.shared_memory.shared_width import narrow_shared_accesses
from traceview.inspect.rules.spills import spills
from traceview.inspect.rules.tail_wave import tail_wave
from traceview.inspect.rules.uncoalesced import uncoalesced_accesses
from traceview.inspect.rules.unused_lanes import unused_lanes
from traceview.inspect.rules.vector_width.narrow_accesses import narrow_global_accesses
from traceview.inspect.rules.vector_width.narrow_sass import narrow_sass_accesses
from traceview.inspect.rules.vector_width.split_vectors import split_vectors

Rule = Callable[[KernelContext], Iterable[Finding | Advice]]

RULES: tuple[Rule, ...] = (
    serialized_wgmma,
    fp32_products,
    serialized_copies,
    spills,
    local_memory,
    narrow_sass_accesses,
    narrow_global_accesses,
    split_vectors,
    uncoalesced_accesses,
    atomics,
    unused_lanes,
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
    results = [_by(rule, each) for rule in RULES for each in rule(kernel)]
    if kernel.trials:
        inspected = partial(_inspected, kernel)
        findings = Reconciliation(kernel.compiled, kernel.trials, inspected).settle(results)
    else:
        findings = [_bare(each) for each in results]
    if kernel.compiled.how in ("called", "guessed"):
        findings = [_of_a_guess(finding) for finding in findings]
    return ranked(findings)


def _by(rule: Rule, found: Finding | Advice) -> Finding | Advice:
    return replace(found, rule=rule.__name__) if isinstance(found, Advice) else found


def _bare(found: Finding | Advice) -> Finding:
    return found.finding if isinstance(found, Advice) else found


def _inspected(kernel: KernelContext, outcome: Outcome) -> dict[str, list[Finding]]:
    """The findings on a recompiled kernel by rule, as its own report would have them."""
    compiled = replace(outcome.compiled, notes=outcome.code.remarks)
    sms = kernel.sms if compiled.grid else None
    after = KernelContext(compiled, outcome.code, outcome.ptx_accesses, outcome.occupancy, sms)
    return {rule.__name__: [_bare(each) for each in rule(after)] for rule in RULES}


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, the worst first; those of one severity stay in their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _of_a_guess(finding: Finding) -> Finding:
    evidence = finding.evidence
    return replace(
        finding, evidence=replace(evidence, basis=f"{evidence.basis}; for guessed arguments")
    )
