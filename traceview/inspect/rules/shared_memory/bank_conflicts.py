"""Bank conflicts of shared memory, computed from the addresses in the PTX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from traceview.findings import Evidence, Finding, Severity
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import line_name, subject_of
from traceview.inspect.recompilations import Outcome
from traceview.inspect.rules.remedies import Tested, imperative, more_warps, tested_remedies
from traceview.ptx.addresses.request_costs import RequestCosts
from traceview.ptx.model import Access, RequestCost
from traceview.records import record
from traceview.units import Value

_POOR = 2.0
_BAD = 4.0
_MINOR_SHARE = 0.25


@record
class _Passes:
    """Wavefronts taken by shared accesses in one pass of the innermost loop, and those needed."""

    needed: float
    taken: float

    @property
    def factor(self) -> float:
        return self.taken / self.needed if self.needed else 1.0


def bank_conflicts(kernel: KernelContext) -> Iterator[Finding]:
    """Shared accesses that take at least twice the wavefronts because of bank conflicts.

    Reported for the innermost loop that uses shared memory, if conflicts cause a quarter of its
    wavefronts or more.
    """
    listed = _innermost(kernel.accesses_with_costs)
    conflicting = [access for access in listed if _passes([access]).factor >= _POOR]
    if not conflicting:
        return
    every, these = _passes(listed), _passes(conflicting)
    if these.taken - these.needed < _MINOR_SHARE * every.taken:
        return
    worst = max(conflicting, key=lambda access: _passes([access]).taken)
    tries = _remedies(kernel, every)
    yield _finding(kernel, worst, conflicting, every, tries)


def _finding(
    kernel: KernelContext,
    worst: Access,
    conflicting: Sequence[Access],
    every: _Passes,
    tries: Sequence[Tested[_Passes]],
) -> Finding:
    each, cost = _passes([worst]), worst.cost or RequestCost()
    values: dict[str, Value] = {
        "line": line_name(worst.source),
        "wavefronts_per_request": cost.wavefronts,
        "ideal_wavefronts_per_request": cost.ideal_wavefronts,
        "ways": each.factor,
        "instructions": sum(access.count for access in conflicting),
        "shared_wavefronts": every.taken,
        "ideal_shared_wavefronts": every.needed,
    }
    severity: Severity = "medium" if every.factor >= _POOR and each.factor >= _BAD else "low"
    basis = f"addresses in PTX of {worst.count} × {worst.opcode} at loop depth {worst.loop_depth}"
    best = tries[0] if tries else None
    if best:
        basis += f"; recompiled with {best.remedy.change.description}: {_text(best.after)}"
    return Finding(
        severity,
        "Bank conflicts: shared-memory accesses at {line} take {wavefronts_per_request} "
        "wavefronts per request instead of {ideal_wavefronts_per_request}",
        imperative([best]) if best else _likely(kernel, worst),
        subject=subject_of(worst.source, kernel.compiled),
        evidence=Evidence(values, basis=basis),
    )


def _remedies(kernel: KernelContext, before: _Passes) -> list[Tested[_Passes]]:
    """Larger num_warps, which change the layout of shared memory, that halve the excess."""

    def after(outcome: Outcome) -> _Passes | None:
        costs = RequestCosts.of(outcome.provenance, outcome.compiled)
        shared = [a for a in outcome.ptx_accesses if _is_shared(a)]
        now = _passes(_innermost([_with_cost(access, costs) for access in shared]))
        return now if now.factor - 1 <= (before.factor - 1) / 2 else None

    return tested_remedies(more_warps(kernel.compiled), kernel.trials, after)


def _with_cost(access: Access, costs: RequestCosts) -> Access:
    return replace(access, cost=costs.cost(access))


def _is_shared(access: Access) -> bool:
    return access.space == "shared" or access.kind == "async-copy"


def _innermost(accesses: Sequence[Access]) -> list[Access]:
    known = [a for a in accesses if a.cost and a.cost.wavefronts]
    deepest = max((access.loop_depth for access in known), default=0)
    return [access for access in known if access.loop_depth == deepest]


def _passes(accesses: Sequence[Access]) -> _Passes:
    costs = [(a.count, a.cost) for a in accesses if a.cost]
    return _Passes(
        sum(count * (cost.ideal_wavefronts or 0) for count, cost in costs),
        sum(count * (cost.wavefronts or 0) for count, cost in costs),
    )


def _text(passes: _Passes) -> str:
    return f"{passes.taken:.0f} wavefronts, {passes.needed:.0f} without conflicts"


def _likely(kernel: KernelContext, worst: Access) -> str:
    if kernel.is_cuda(worst.source):
        return (
            "Pad each row of the shared array by one element, or exchange the column for "
            "column ^ row on both sides"
        )
    return (
        "Load and store the tile along the same axis, or use another tile shape or num_warps, so "
        "that Triton lays shared memory out differently"
    )
