"""wgmma instructions that ptxas makes wait for one another."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.findings import Evidence, Finding, Subject
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.recompilations import serialization_remarks
from traceview.inspect.rules.advice import Advice
from traceview.inspect.rules.recompiled import MOST_REMEDIES, relieving_remedies, results_clause
from traceview.inspect.rules.remedies import imperative, one_of_each

# ptxas's reasons other than a lack of registers, and what removes each.
_OTHER_REASONS = {
    "non wgmma instructions": "Leave the accumulator and the operands alone between the wgmma "
    "instructions of a loop: likely something reads or changes them before the wait",
    "xtern call": "Remove the call to another function from the loop, which likely causes it",
    "function boundary": "Inline the function that the loop calls, which likely causes it",
}


def serialized_wgmma(kernel: KernelContext) -> Iterator[Advice]:
    """Remarks of ptxas that it serializes wgmma."""
    remarks = serialization_remarks(kernel.compiled.notes)
    if not remarks:
        return
    tries = relieving_remedies(kernel.compiled, kernel.trials, lambda outcome: outcome.serialized)
    helped = one_of_each([each for each in tries if each.after == 0], MOST_REMEDIES)
    finding = Finding(
        "high",
        "ptxas serializes the wgmma instructions ({remarks:remark}): each waits for the previous "
        "one",
        imperative(helped) if helped else _remedy(remarks[0]),
        subject=Subject("kernel", kernel.compiled.name),
        evidence=Evidence(
            {"remarks": len(remarks), "proven": bool(helped)},
            basis=f"{remarks[0]}{results_clause(helped, tries, lambda _: 'no such remark')}",
        ),
    )
    yield Advice(finding, tuple(each.remedy for each in helped), _remedy(remarks[0]))


def _remedy(remark: str) -> str:
    for reason, remedy in _OTHER_REASONS.items():
        if reason in remark:
            return remedy
    return "Try a smaller tile or 8 warps instead of 4, which likely leave enough registers"
