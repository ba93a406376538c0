"""Registers spilled to local memory, and what ends the spills."""

from __future__ import annotations

from collections.abc import Iterator

from traceview import units
from traceview.findings import Evidence, Finding, Subject
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.rules.advice import Advice
from traceview.inspect.rules.recompiled import MOST_REMEDIES, relieving_remedies, results_clause
from traceview.inspect.rules.remedies import imperative, one_of_each

_MANY_SPILLED_BYTES = 128
_RELIEF = (
    "Try a smaller tile, more warps or fewer stages, which likely lower the registers per thread"
)


def spills(kernel: KernelContext) -> Iterator[Advice]:
    """A finding on spilled registers, with the remedies that reduce the spills."""
    spilled = kernel.spill_bytes
    if not spilled:
        return
    tries = relieving_remedies(kernel.compiled, kernel.trials, lambda outcome: outcome.spill_bytes)
    less = sorted((each for each in tries if each.after < spilled), key=lambda each: each.after)
    helped = one_of_each([each for each in less if each.after == 0], MOST_REMEDIES) or less[:1]
    compared = results_clause(
        helped, tries, lambda after: f"{units.count(spilled)} → {units.count(after)} bytes spilled"
    )
    finding = Finding(
        "high" if spilled >= _MANY_SPILLED_BYTES else "medium",
        "Each thread spills {spill_bytes:byte} of registers to local memory",
        imperative(helped) if helped else _RELIEF,
        subject=Subject("kernel", kernel.compiled.name),
        evidence=Evidence(
            {"spill_bytes": spilled, "proven": bool(helped)}
            | ({"recompiled_spill_bytes": helped[0].after} if helped else {}),
            basis=f"the spill stores of the compiled kernel{compared}",
        ),
    )
    yield Advice(finding, tuple(each.remedy for each in helped), _RELIEF)
