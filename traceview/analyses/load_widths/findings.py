"""Findings of load-widths: kernels with narrow global accesses, and what wider ones can save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from traceview.analyses.load_widths.bounds import (
    WARM_UP_ALONE,
    WIDE_BITS,
    TimedLaunches,
    WidthBound,
)
from traceview.facts.operations.kernel_classes import KernelOwner, owner_of
from traceview.findings import (
    Evidence,
    Finding,
    Severity,
    Subject,
    field_names,
    share_pct,
    shortened,
)
from traceview.rules.engine import gain_sentence, severity_of_part
from traceview.units import Value

if TYPE_CHECKING:
    from traceview.inspect.launched_widths import MainWidth
    from traceview.ptx.model import SourceLine

_MOST_FINDINGS = 5
_REPORTED_FROM_PCT, _LOW_FROM_PCT = 5.0, 20.0
_LONGEST_REMEDY = 300
_UNKNOWN_CAUSE = (
    "Look at the kernel's source or PTX for the cause. If adjacent elements go to different "
    "threads, give each thread four of them as float4 (16 bytes)."
)


def width_findings(bounds: Sequence[WidthBound], kernel_ns: int, span_ns: int) -> Iterator[Finding]:
    """Kernels whose narrow accesses cost time, then kernels where the cost is unknown.

    `kernel_ns` is the time of all kernels, `span_ns` the steady time of the GPUs.
    """
    counted = [bound for bound in bounds if bound.counted and _is_own(bound)]
    costly = [
        bound for bound in counted if severity_of_part(bound.saved_ns, bound.at_stake_ns, span_ns)
    ]
    for bound in sorted(costly, key=lambda each: (-each.saved_ns, -each.at_stake_ns))[
        :_MOST_FINDINGS
    ]:
        if bound.timed and bound.bound_ns is not None:
            yield _costly(bound, bound.timed, bound.bound_ns, bounds, kernel_ns, span_ns)
    unknown = [
        bound
        for bound in counted
        if bound.bits and bound.widths.traffic.unknown and bound.why != WARM_UP_ALONE
    ]
    for bound in unknown[:_MOST_FINDINGS]:
        if _kernel_pct(bound, kernel_ns) >= _REPORTED_FROM_PCT:
            yield _of_unknown_cost(bound, kernel_ns)


def _is_own(bound: WidthBound) -> bool:
    """Whether the program's author can edit the kernel, as opposed to a compiler's."""
    return owner_of(bound.code.runs[0].name) is KernelOwner.PROGRAM


def _costly(
    bound: WidthBound,
    timed: TimedLaunches,
    bound_ns: int,
    bounds: Sequence[WidthBound],
    kernel_ns: int,
    span_ns: int,
) -> Finding:
    template, values = _narrow(bound, kernel_ns)
    template += (
        " It reaches {bytes_per_s} of the GPU's {peak_bytes_per_s}. A call takes {call_ns}; at "
        f"{WIDE_BITS} bits it could take {{call_bound_ns}} ({{speedup_factor}} faster) at best."
    )
    values |= {
        "bytes_per_s": bound.bytes_per_s,
        "peak_bytes_per_s": bound.peak_bytes_per_s,
        "call_ns": timed.total_ns / timed.calls,
        "call_bound_ns": bound_ns / timed.calls,
        "speedup_factor": timed.total_ns / max(bound_ns, 1),
    }
    example = _wide_example(bound, bounds)
    if example:
        template += (
            f" {{wide_kernel}} reaches {{wide_bytes_per_s}} in this run with {WIDE_BITS} bits."
        )
        values |= {"wide_kernel": label(example), "wide_bytes_per_s": example.bytes_per_s}
    severity = severity_of_part(bound.saved_ns, bound.at_stake_ns, span_ns) or "low"
    template += gain_sentence(bound.saved_ns, bound.at_stake_ns)
    values |= {"saved_ns": bound.saved_ns}
    share = share_pct(bound.saved_ns, span_ns) if bound.saved_ns else None
    return _finding(bound, severity, template, values, share)


def _of_unknown_cost(bound: WidthBound, kernel_ns: int) -> Finding:
    template, values = _narrow(bound, kernel_ns)
    severity: Severity = "low" if _kernel_pct(bound, kernel_ns) >= _LOW_FROM_PCT else "info"
    template += " The cost is unknown: {why_unknown}."
    return _finding(bound, severity, template, values | {"why_unknown": bound.why}, None)


def _finding(
    bound: WidthBound,
    severity: Severity,
    template: str,
    values: dict[str, Value],
    share: float | None,
) -> Finding:
    remedy, remedy_values = _remedy(bound)
    main = narrow_main(bound)
    source = main.source if main else None
    run = bound.code.runs[0]
    return Finding(
        severity,
        template,
        remedy,
        bound.saved_ns,
        Subject(
            "kernel", run.name, source.file if source else None, source.line if source else None
        ),
        Evidence(
            {**remedy_values, **values},
            "costs",
            {
                "name": run.name,
                "total_ns": bound.code.total_ns,
                "load_bits": bound.widths.loads.bits if bound.widths.loads else None,
                "store_bits": bound.widths.stores.bits if bound.widths.stores else None,
            },
        ),
        share,
    )


def _narrow(bound: WidthBound, kernel_ns: int) -> tuple[str, dict[str, Value]]:
    """The first sentence: which kernel moves how few bits at a time, where, and why."""
    narrow = narrow_widths(bound)
    values: dict[str, Value] = {
        "kernel": label(bound),
        "kernel_pct": _kernel_pct(bound, kernel_ns),
        **{f"{verb}_bits": main.bits for verb, main in narrow.items()},
    }
    verbs = {verb: f"{{{verb}_bits:bit}}" for verb in narrow}
    if len({main.bits for main in narrow.values()}) == 1:
        verbs = {" and ".join(narrow): next(iter(verbs.values()))}
    moves = " and ".join(f"{verb} {bits}" for verb, bits in verbs.items())
    template = f"{{kernel}} ({{kernel_pct}} of kernel time) {moves} per thread per instruction"
    lines = dict.fromkeys(line(main.source) for main in narrow.values() if main.source)
    places = {f"line_{number}": name for number, name in enumerate(lines, 1)}
    if places:
        template += f" at {' and '.join(f'{{{name}}}' for name in places)}"
    evidence = next((f.evidence for f in bound.widths.narrow if f.severity != "low"), Evidence())
    cause = evidence.values.get("cause")
    if cause:
        template += (
            ", because {cause}" if evidence.values.get("proven") else ", likely because {cause}"
        )
        values["cause"] = cause
    return f"{template}.", {**values, **places}


def _remedy(bound: WidthBound) -> tuple[str, dict[str, Value]]:
    """The remedy of the kernel rule with its values; for SASS alone, the likely remedy."""
    rules = [finding for finding in bound.widths.narrow if finding.severity != "low"]
    if not rules:
        return _UNKNOWN_CAUSE, {}
    remedy = shortened(rules[0].remedy.rstrip("."), _LONGEST_REMEDY)
    known = rules[0].evidence.values
    return f"{remedy}.", {name: known[name] for name in field_names(remedy) if name in known}


def _wide_example(bound: WidthBound, bounds: Sequence[WidthBound]) -> WidthBound | None:
    """The kernel of this run with the highest rate at 128 bits; None if it is not higher."""
    wide = [
        other
        for other in bounds
        if other.code.device == bound.code.device
        and other.bits is None
        and other.widths.loads
        and other.widths.loads.bits >= WIDE_BITS
        and (bound.bytes_per_s or 0) < (other.bytes_per_s or 0) <= (other.peak_bytes_per_s or 0)
    ]
    return max(wide, key=lambda other: other.bytes_per_s or 0, default=None)


def label(bound: WidthBound) -> str:
    """The base name of the kernel."""
    return bound.code.runs[0].short_name


def line(source: SourceLine | None) -> str | None:
    """A line of the program as `gelu.py:31`; None where unknown."""
    from traceview.inspect.kernel_report import line_name

    return line_name(source) if source else None


def narrow_widths(bound: WidthBound) -> dict[str, MainWidth]:
    """The main widths below 128 bits, by what they do: `loads`, `stores`."""
    both = {"loads": bound.widths.loads, "stores": bound.widths.stores}
    return {verb: main for verb, main in both.items() if main and main.bits < WIDE_BITS}


def narrow_main(bound: WidthBound) -> MainWidth | None:
    """The narrow loads, or else the narrow stores; None without either."""
    return next(iter(narrow_widths(bound).values()), None)


def _kernel_pct(bound: WidthBound, kernel_ns: int) -> float:
    return 100.0 * bound.code.total_ns / kernel_ns if kernel_ns > 0 else 0.0
