"""Findings of load-widths: kernels with narrow global accesses, and what wider ones can save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from traceview.analyses.load_widths.bounds import WARM_UP_ALONE, WIDE_BITS, WidthBound, width_bounds
from traceview.facts.code.gathered import gathered_code
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.kernel_classes import KernelOwner, owner_of
from traceview.findings import Evidence, Severity, Subject, field_names, shortened
from traceview.rules.engine import FindingRule, TimeClaim, severity_of_part
from traceview.trace import Trace
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


def _costly(trace: Trace) -> Iterator[TimeClaim]:
    """Kernels whose narrow accesses cost time, those that gain most first."""
    span_ns, bounds = steady_span_ns(trace), width_bounds(trace)
    costly = [
        bound
        for bound in _of_program(trace)
        if severity_of_part(bound.saved_ns, bound.at_stake_ns, span_ns)
    ]
    costly.sort(key=lambda bound: (-bound.saved_ns, -bound.at_stake_ns))
    for bound in costly[:_MOST_FINDINGS]:
        if not bound.timed or bound.bound_ns is None:
            continue
        calls, total_ns = bound.timed.calls, bound.timed.total_ns
        wide = _wide_example(bound, bounds)
        values = {
            "bytes_per_s": bound.bytes_per_s,
            "peak_bytes_per_s": bound.peak_bytes_per_s,
            "call_ns": total_ns / calls,
            "call_bound_ns": bound.bound_ns / calls,
            "speedup_factor": total_ns / max(bound.bound_ns, 1),
            **({"wide_kernel": label(wide), "wide_bytes_per_s": wide.bytes_per_s} if wide else {}),
            "saved_ns": bound.saved_ns,
        }
        yield _claim(trace, bound, values, lost_ns=bound.at_stake_ns)


def _unknown_cost(trace: Trace) -> Iterator[TimeClaim]:
    unknown = [
        bound
        for bound in _of_program(trace)
        if bound.bits and bound.widths.traffic.unknown and bound.why != WARM_UP_ALONE
    ]
    for bound in unknown[:_MOST_FINDINGS]:
        if _kernel_pct(trace, bound) >= _REPORTED_FROM_PCT:
            yield _claim(trace, bound, {"why_unknown": bound.why})


def _of_program(trace: Trace) -> Iterable[WidthBound]:
    """The variants of kernels that the program's author can edit, as opposed to a compiler's."""
    for bound in width_bounds(trace):
        if bound.counted and owner_of(bound.code.runs[0].name) is KernelOwner.PROGRAM:
            yield bound


def _claim(
    trace: Trace, bound: WidthBound, values: dict[str, Value], lost_ns: int | None = None
) -> TimeClaim:
    run, widths, narrow = bound.code.runs[0], bound.widths, narrow_widths(bound)
    main, pct = narrow_main(bound), _kernel_pct(trace, bound)
    source = main.source if main else None
    moves = {verb: f"{{{verb}_bits:bit}}" for verb in narrow}
    if len({main.bits for main in narrow.values()}) == 1:
        moves = {" and ".join(narrow): next(iter(moves.values()))}
    lines = dict.fromkeys(line(main.source) for main in narrow.values() if main.source)
    places = {f"line_{number}": name for number, name in enumerate(lines, 1)}
    rules = [finding for finding in widths.narrow if finding.severity != "low"]
    evidence = rules[0].evidence.values if rules else Evidence().values
    # The remedy of the kernel rule; of SASS alone, the likely one.
    remedy = _UNKNOWN_CAUSE
    if rules:
        remedy = shortened(rules[0].remedy.rstrip("."), _LONGEST_REMEDY) + "."
    cause = {"cause": evidence["cause"]} if evidence.get("cause") else {}
    severity: Severity = "low" if pct >= _LOW_FROM_PCT else "info"
    return TimeClaim(
        Subject(
            "kernel", run.name, source.file if source else None, source.line if source else None
        ),
        {
            **{name: evidence[name] for name in field_names(remedy) if name in evidence},
            "kernel": label(bound),
            "kernel_pct": pct,
            **{f"{verb}_bits": main.bits for verb, main in narrow.items()},
            **cause,
            **places,
            **values,
        },
        "costs",
        {
            "name": run.name,
            "total_ns": bound.code.total_ns,
            "load_bits": widths.loads.bits if widths.loads else None,
            "store_bits": widths.stores.bits if widths.stores else None,
        },
        bound.saved_ns,
        lost_ns,
        steady_span_ns(trace),
        words={
            "moves": " and ".join(f"{verb} {bits}" for verb, bits in moves.items()),
            "places": " and ".join(f"{{{name}}}" for name in places),
            "because": "because" if evidence.get("proven") else "likely because",
        },
        remedy=remedy,
        severity=severity if lost_ns is None else None,
        edit=bound.gain.edit,
        error_ns=bound.gain.error_ns,
    )


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


def _kernel_pct(trace: Trace, bound: WidthBound) -> float:
    return 100.0 * bound.code.total_ns / max(gathered_code(trace).total_ns, 1)


_NARROW = (
    "{kernel} ({kernel_pct} of kernel time) {moves} per thread per instruction[ at {places}]"
    "[, {because} {cause}]."
)
RULES = (
    FindingRule(
        _costly,
        f"{_NARROW} It reaches {{bytes_per_s}} of the GPU's {{peak_bytes_per_s}}. A call takes "
        f"{{call_ns}}; at {WIDE_BITS} bits it could take {{call_bound_ns}} ({{speedup_factor}} "
        f"faster) at best.[ {{wide_kernel}} reaches {{wide_bytes_per_s}} in this run with "
        f"{WIDE_BITS} bits.]",
    ),
    FindingRule(_unknown_cost, f"{_NARROW} The cost is unknown: {{why_unknown}}."),
)
