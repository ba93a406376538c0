"""Access widths of the kernels with code, what wider accesses can save, and findings on both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from traceview.base import units
from traceview.base.findings import Clause, Evidence, Severity, Subject, field_names, shortened
from traceview.base.records import record
from traceview.base.tables import Integers
from traceview.base.units import Value
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.traces.facts.code import LaunchedCode, gathered_code
from traceview.traces.facts.copies import shared_ns
from traceview.traces.facts.idle.gaps import steady_span_ns
from traceview.traces.facts.kernel_classes import KernelClass, KernelOwner, classify, owner_of
from traceview.traces.facts.savings import Gain, faster
from traceview.traces.facts.steps.steps import kernels_in_warm_up
from traceview.traces.facts.work.peaks import Peaks, peaks
from traceview.traces.rules import FindingRule, TimeClaim, of_kernels, severity_of_part
from traceview.traces.trace import Trace, fact

if TYPE_CHECKING:
    from traceview.kernels.inspect.launched_widths import MainWidth, RunningWidths
    from traceview.kernels.ptx.model import SourceLine


# Access widths of each kernel with code, and a bound on the time that wider accesses can save.
#
# Narrow accesses cost time only in memory-bound kernels. Time is claimed only for launches that
# ran alone on the GPU for long enough, of code that shows how many bytes a thread moves: the
# measured time beyond what memory, arithmetic and the wider accesses take at least.

WIDE_BITS = 128
# Copies and GELU with 128 bits reach 87 to 89 % of the peak on an H200; nothing comes near 100.
NEAR_PEAK = 0.85
# 32 bits per thread reach 43 to 48 % there. A kernel far below that, for its width, waits for more
# than memory.
_LEAST_OF_PEAK = 0.2
_MOST_OVERLAP = 0.1
# Launch and tail take some microseconds, whatever the width.
_SHORTEST_NS = 10_000
# Sub-partitions of an SM, each of which issues one warp instruction per clock.
_ISSUES_PER_CLOCK = 4
_MOST_BYTES = 1 << 60
_TIME_COVERED = 0.995
WARM_UP_ALONE = "it ran only during warm-up"
Verdict = Literal["wide", "narrow", "near-peak", "unknown"]


@record
class TimedLaunches:
    """The launches after warm-up that ran alone on the GPU: their number, time and traffic.

    `blocks_least` is the smallest grid among them.
    """

    calls: int
    total_ns: int
    bytes_moved: int
    warps: float
    blocks_least: int


@record
class WidthBound:
    """One variant of a kernel: its widths, and a bound on its time with 128-bit accesses.

    `bits` is the narrow width that costs time, None without one. `timed` are the launches that the
    bound applies to, None without any; `bound_ns` is their least time, None where unknown. `why` is
    the reason why no time is claimed. Of several variants that share their launches only the first
    is `counted`.
    """

    code: LaunchedCode
    widths: RunningWidths
    bits: int | None
    verdict: Verdict
    why: str = ""
    timed: TimedLaunches | None = None
    peak_bytes_per_s: int | None = None
    bound_ns: int | None = None
    counted: bool = True
    gain: Gain = Gain(0, 0)

    @property
    def saved_ns(self) -> int:
        """The part of `at_stake_ns` that the program gains."""
        return self.gain.saved_ns

    @property
    def at_stake_ns(self) -> int:
        """The time that 128 bits can save at most; 0 where none is claimed."""
        if self.verdict != "narrow" or self.timed is None or self.bound_ns is None:
            return 0
        return max(0, self.timed.total_ns - self.bound_ns)

    @property
    def bytes_per_s(self) -> int | None:
        """The rate at which the timed launches request bytes."""
        if self.timed is None or not self.timed.total_ns:
            return None
        return min(int(self.timed.bytes_moved / self.timed.total_ns * 1e9), _MOST_BYTES)


@fact
def width_bounds(trace: Trace) -> tuple[WidthBound, ...]:
    """The bound of each variant that ran, longest first. Raises MissingTableError without code."""
    # The link determines the time of a kernel that exchanges data between GPUs.
    launched = [
        each
        for each in gathered_code(trace).launched
        if not any(classify(run.name) is KernelClass.COMMUNICATION for run in each.runs)
    ]
    if not launched:
        return ()
    # Modules that read code take long to import, and most traces have none.
    from traceview.kernels.inspect.launched_widths import MOST_DISASSEMBLED, running_widths

    # The longest kernels that together take nearly all the time.
    spent = np.cumsum([float(each.total_ns) for each in launched])
    few = min(int(np.searchsorted(spent, _TIME_COVERED * spent[-1])) + 1, MOST_DISASSEMBLED)
    widths = running_widths([each.compiled for each in launched], few)
    pairs = list(zip(launched, widths, strict=True))
    seen: set[int] = set()
    bounds = []
    for code, known in pairs:
        runs = {id(run) for run in code.runs}
        twins = [w for other, w in pairs if code.alike and not runs.isdisjoint(map(id, other.runs))]
        first = seen.isdisjoint(runs)
        seen.update(map(id, code.runs))
        bounds.append(_bound(trace, code, known, twins, counted=first))
    return tuple(bounds)


def _bound(
    trace: Trace,
    code: LaunchedCode,
    widths: RunningWidths,
    twins: Sequence[RunningWidths],
    *,
    counted: bool,
) -> WidthBound:
    known = peaks(trace)[code.device]
    bits = _narrow_bits(widths)
    timed = _timed_launches(trace, code, widths)
    peak = int(known["bandwidth"].value) if "bandwidth" in known else None
    verdict: Verdict = "wide" if bits is None else "unknown"
    bound = WidthBound(code, widths, bits, verdict, "", timed, peak, None, counted)
    only_warm_up = bool(kernels_in_warm_up(trace)[_rows(code)].all())
    why = WARM_UP_ALONE if only_warm_up else why_unknown(bound, twins, known)
    if why or timed is None or peak is None:
        return replace(bound, why=why if bits else "")
    bound = with_bound(bound, timed, peak, known)
    return replace(bound, gain=_gain(trace, bound, timed))


def _gain(trace: Trace, bound: WidthBound, timed: TimedLaunches) -> Gain:
    """What the program gains of `at_stake_ns` if each launch saves the same fraction."""
    if not bound.at_stake_ns:
        return Gain(0, 0)
    rows, fraction = _rows(bound.code), bound.at_stake_ns / max(timed.total_ns, 1)
    each_ns = np.ceil(trace.recorded("kernels").duration_ns[rows] * fraction).astype(np.int64)
    return of_kernels(trace, rows, faster(each_ns)).at_most(bound.at_stake_ns)


def _narrow_bits(widths: RunningWidths) -> int | None:
    """The width below 128 bits that moves most bytes; None where the code has no such finding."""
    bits = [main.bits for main in (widths.loads, widths.stores) if main and main.bits < WIDE_BITS]
    has_ptx = any(access.level == "ptx" for access in widths.accesses)
    # PTX has no finding on values that a whole block shares, or on unused lanes.
    costs_time = any(finding.severity != "low" for finding in widths.narrow) if has_ptx else True
    return min(bits) if bits and costs_time else None


def _timed_launches(
    trace: Trace, code: LaunchedCode, widths: RunningWidths
) -> TimedLaunches | None:
    """The timed launches; None if bytes per thread are unknown, or none ran alone on its GPU."""
    thread_bytes = widths.traffic.bytes_moved
    if not thread_bytes:
        return None
    kernels, beside, early = trace.recorded("kernels"), shared_ns(trace), kernels_in_warm_up(trace)
    calls, total_ns, threads_in_all, warps, least = 0, 0, 0.0, 0.0, 1 << 62
    for run in code.runs:
        took = kernels["end_ns"][run.rows] - kernels["start_ns"][run.rows]
        alone = run.rows[(beside[run.rows] <= _MOST_OVERLAP * took) & ~early[run.rows]]
        if not len(alone):
            continue
        # As floats, since a damaged trace may have any numbers.
        blocks = np.ones(len(alone))
        for axis in "xyz":
            blocks *= np.maximum(kernels[f"grid_{axis}"][alone], 0)
        calls += len(alone)
        total_ns += int((kernels["end_ns"][alone] - kernels["start_ns"][alone]).sum())
        threads_in_all += float(blocks.sum()) * run.threads
        warps += float(blocks.sum()) * -(-run.threads // WARP_THREADS)
        least = min(least, int(min(blocks.min(), _MOST_BYTES)))
    if not calls or not total_ns:
        return None
    moved = int(min(threads_in_all * thread_bytes, _MOST_BYTES))
    return TimedLaunches(calls, total_ns, moved, warps, least)


def _rows(code: LaunchedCode) -> Integers:
    return np.concatenate([run.rows for run in code.runs])


def why_unknown(bound: WidthBound, twins: Sequence[RunningWidths], known: Peaks) -> str:
    """Why no bound on the time can be given; empty if one can.

    `twins` are the widths of the variants that share the launches.
    """
    traffic, timed = bound.widths.traffic, bound.timed
    sms = known["sms"].value if "sms" in known else 0
    reasons = {
        "variants of different widths share its launches": any(
            _compared(bound.widths) != _compared(twin) for twin in twins
        ),
        traffic.unknown: bool(traffic.unknown),
        "no thread moves data of its own": not traffic.bytes_moved,
        "its arithmetic is in loops of unknown trip counts": traffic.issue_slots is None,
        "it never ran alone on the GPU": timed is None,
        "the peak bandwidth of the GPU is not known": bound.peak_bytes_per_s is None,
        "it has fewer blocks than the GPU has SMs": timed and timed.blocks_least < sms,
        f"its calls take less than {units.duration(_SHORTEST_NS)}": timed
        and timed.total_ns < _SHORTEST_NS * timed.calls,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _compared(widths: RunningWidths) -> tuple[int | None, ...]:
    mains = (widths.loads, widths.stores)
    return (*(main.bits if main else None for main in mains), widths.traffic.bytes_moved)


def with_bound(bound: WidthBound, timed: TimedLaunches, peak: int, known: Peaks) -> WidthBound:
    """The bound and verdict of timed launches: what memory, arithmetic and wider accesses take.

    `peak` is the bandwidth in bytes per second.
    """
    by_memory = timed.bytes_moved / peak * 1e9
    if by_memory >= NEAR_PEAK * timed.total_ns:
        return replace(bound, verdict="near-peak", bound_ns=int(by_memory))
    if bound.bits is None:
        return replace(bound, bound_ns=int(by_memory))
    least = _LEAST_OF_PEAK * min(1.0, bound.bits / 32)
    if by_memory < least * timed.total_ns:
        return replace(bound, why=f"it reaches less than {100 * least:.0f} % of peak bandwidth")
    by_arithmetic = _arithmetic_ns(bound.widths, timed, known)
    # Time shrinks no more than the number of memory instructions.
    by_width = timed.total_ns * bound.bits / WIDE_BITS
    bound_ns = int(max(by_memory, by_arithmetic, by_width))
    if bound_ns >= NEAR_PEAK * timed.total_ns:
        return replace(bound, why="its arithmetic takes as long", bound_ns=bound_ns)
    return replace(bound, verdict="narrow", bound_ns=bound_ns)


def _arithmetic_ns(widths: RunningWidths, timed: TimedLaunches, known: Peaks) -> float:
    """The least time of the arithmetic; 0 where the clock of the GPU is unknown."""
    if "sms" not in known or "clock" not in known:
        return 0.0
    rate = _ISSUES_PER_CLOCK * known["sms"].value * known["clock"].value
    return (widths.traffic.issue_slots or 0) * timed.warps / rate * 1e9


def time_by_width(bounds: Sequence[WidthBound], what: Literal["loads", "stores"]) -> dict[int, int]:
    """Kernel time by the width of loads, or of stores; each launch counts once, by its widest."""
    widest: dict[int, tuple[int, int]] = {}
    for bound in bounds:
        main: MainWidth | None = getattr(bound.widths, what)
        for run in bound.code.runs if main else ():
            before, _ = widest.get(id(run), (0, 0))
            widest[id(run)] = (max(before, main.bits if main else 0), run.total_ns)
    spent: dict[int, int] = defaultdict(int)
    for bits, total_ns in widest.values():
        spent[bits] += total_ns
    return spent


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
            yield _of_sectors(trace, bound) or _claim(trace, bound, {"why_unknown": bound.why})


_WASTED = 2
"""Times as many sectors as hold the data, of a warp's request: fewer may be unaligned rows."""


def _of_sectors(trace: Trace, bound: WidthBound) -> TimeClaim | None:
    """A kernel whose requests touch more sectors than hold their data: that part of its time.

    A bound: what one request brings into the cache, the next ones may use.
    """
    rules = [finding for finding in bound.widths.narrow if finding.severity in ("high", "medium")]
    told = rules[0].evidence.values if rules else {}
    sectors, ideal = (told.get(f"{which}sectors_per_request") for which in ("", "ideal_"))
    if not sectors or not ideal or not bound.widths.request_bound:
        return None
    if float(sectors) < _WASTED * float(ideal):
        return None
    rows = _rows(bound.code)
    rows = rows[~kernels_in_warm_up(trace)[rows]]
    part = 1 - float(ideal) / float(sectors)
    less_ns = (trace.recorded("kernels").duration_ns[rows] * part).astype(np.int64)
    gain = of_kernels(trace, rows, faster(less_ns))
    claim = _claim(
        trace,
        replace(bound, gain=gain),
        {"sectors": sectors, "ideal_sectors": ideal, "saved_ns": gain.saved_ns},
        lost_ns=gain.own_ns,
    )
    return replace(claim, at_most="medium", saving="at-most")


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
    from traceview.kernels.inspect.kernel_report import line_name

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
    FindingRule(
        _unknown_cost,
        _NARROW,
        clauses=(
            Clause(" A warp's request touches {sectors} sectors instead of {ideal_sectors}."),
            Clause(" The cost is unknown: {why_unknown}."),
        ),
    ),
)
