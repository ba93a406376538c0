"""What to change in a kernel, and what that stands on: findings, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.inspect.kernel_report import SEVERITIES, Difference, Finding, KernelReport, where
from traceview.inspect.occupancy import registers_for_more_blocks
from traceview.inspect.rules.atomics import atomic_findings
from traceview.inspect.rules.pressure import occupancy_findings, serialised_findings, spill_findings
from traceview.inspect.rules.shared_width import narrow_shared_findings
from traceview.inspect.rules.tail_wave import tail_findings
from traceview.inspect.rules.vector_width.causes import WIDE_BITS
from traceview.inspect.rules.vector_width.narrow_accesses import narrow_findings
from traceview.inspect.sass_vs_ptx import place_of, said, widths
from traceview.inspect.trials import Recompile, Trials
from traceview.ptx.addresses.provenance import Provenance
from traceview.ptx.model import Access
from traceview.toolchain.listings import Code

_MOVES = ("load", "store", "async-copy")


def findings_on(
    report: KernelReport, code: Code, provenance: Provenance | None, recompile: Recompile | None
) -> tuple[Finding, ...]:
    """All that can be said of a kernel, the worst first; equals stay in their order.

    `provenance` is None where there is no PTX. With `recompile` causes and remedies are tested,
    within one budget of trials: what is dearest comes first.
    """
    trials = Trials(recompile) if recompile else None
    found = [
        *serialised_findings(report.compiled, trials),
        *spill_findings(
            report.compiled, report.spill_bytes, report.stack_bytes, trials, report.ptx
        ),
        *_access_findings(report, provenance, trials),
        *_occupancy(report, code, trials),
        *narrow_shared_findings(report.compiled, report.accesses, trials),
        *tail_findings(report.compiled, report.occupancy, report.sms),
    ]
    return ranked(_of_a_guess(found) if report.compiled.how == "guessed" else found)


def _of_a_guess(findings: Iterable[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield replace(finding, evidence=f"{finding.evidence}; for arguments that are a guess")


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, the worst first; equals stay in their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _access_findings(
    report: KernelReport, provenance: Provenance | None, trials: Trials | None
) -> Iterator[Finding]:
    compiled, accesses = report.compiled, report.accesses
    if provenance is None:
        yield from _narrow_in_sass(accesses)
        return
    yield from narrow_findings(compiled, accesses, provenance, trials)
    yield from atomic_findings(compiled, accesses, provenance, report.sass)
    yield from dead_lanes(accesses, report.differences, provenance)


def _occupancy(report: KernelReport, code: Code, trials: Trials | None) -> Iterator[Finding]:
    return occupancy_findings(
        report.compiled,
        report.occupancy,
        report.spill_bytes,
        trials,
        tensor_cores=report.tensor_ops[0].operation if report.tensor_ops else None,
        registers_for_more=registers_for_more_blocks(report.compiled, code),
    )


def _narrow_in_sass(accesses: Sequence[Access]) -> Iterator[Finding]:
    """All that SASS alone tells: how many accesses are narrow, not why."""
    wide = [a for a in accesses if a.space == "global" and a.kind in _MOVES and a.width_bits]
    narrow = [access for access in wide if (access.width_bits or 0) < WIDE_BITS]
    if narrow:
        count, total = (sum(a.count for a in listed) for listed in (narrow, wide))
        yield Finding(
            "medium",
            f"{count} of {total} global accesses move less than {WIDE_BITS} bits a thread and "
            f"instruction ({said(widths(narrow))})",
            "Inspect the kernel's PTX or its source to learn why",
            "seen in SASS, which does not tell the cause",
            narrow[0].source,
        )


def dead_lanes(
    accesses: Sequence[Access], differences: Iterable[Difference], provenance: Provenance
) -> Iterator[Finding]:
    """Vectors of which ptxas moves a part alone, as the rest is never read."""
    for difference in differences:
        if difference.change != "narrowed":
            continue
        place = (difference.source, difference.kind, difference.space)
        unused = sum(
            provenance.unused_lanes(a)
            for a in accesses
            if a.level == "ptx" and place_of(a) == place
        )
        dead = f"{unused} loaded values are never read" if unused else "likely values unused"
        yield Finding(
            "low",
            f"The {difference.kind} at {where(difference.source)} is narrower in SASS: "
            f"{difference.ptx} become {difference.sass} ({dead})",
            "Load only what is used, so that the remaining lanes can be filled",
            "PTX and SASS of the same line, side by side",
            difference.source,
        )
