"""How wide the kernels that ran load and store, and what narrow accesses can cost in this run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from traceview import units
from traceview.analyses.base import Analysis, Chart, Result, Skipped, TableSpec
from traceview.analyses.load_widths.bounds import (
    SET_UP_ALONE,
    WIDE_BITS,
    WidthBound,
    time_by_width,
    width_bounds,
)
from traceview.analyses.load_widths.wording import action, blamed, label, line, who
from traceview.analyses.warm_up_wording import OF_WARM_UP
from traceview.facts.code.gathered import GatheredCode, gathered_code
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.findings import Finding, Severity, severity_of, shortened
from traceview.ptx.model import Kind, Level, SourceLine
from traceview.tables import Cell, Column, Table
from traceview.trace import Trace

_NAMES = (
    Column("kernel", "text", "base name, without templates and arguments"),
    Column("name", "text", "demangled, whole"),
)
_TIMES = (
    Column("calls", "int64", "times it ran"),
    Column("total_ns", "int64", "time on the GPU, all calls"),
    Column("share_pct", "float64", "of the time of all kernels"),
)
COSTS = TableSpec(
    "costs",
    "one row a kernel (and variant) with code, most time first: its widths in global memory, and "
    "what 128 bits could win at most",
    (
        *_NAMES,
        *_TIMES,
        Column(
            "load_bits",
            "int64",
            "width by which most is loaded in the innermost loop; absent without loads of known "
            "width",
            nullable=True,
        ),
        Column("store_bits", "int64", "the same of stores", nullable=True),
        Column("level", "text", "where the widths are from: sass, which runs, or else ptx"),
        Column("source", "text", "line of the widest traffic: gelu.py:31", nullable=True),
        Column("verdict", "text", "wide, narrow, at the roof (of memory), or not told"),
        Column(
            "why_not", "text", "why no time is claimed for a narrow one", nullable=True, prose=True
        ),
        Column(
            "bytes",
            "int64",
            "asked of global memory by the calls after set-up that had the GPU to themselves, "
            "without masks taken into account; absent where the code does not tell",
            nullable=True,
        ),
        Column("bytes_per_s", "int64", "the rate of these calls", nullable=True),
        Column("peak_bytes_per_s", "int64", "of the GPU's memory", nullable=True),
        Column(
            "bound_ns",
            "int64",
            "least time of these calls by the memory's peak rate, the arithmetic, and a quarter "
            "of the instructions where 32 bits become 128",
            nullable=True,
        ),
        Column("at_stake_ns", "int64", "what these calls took beyond it, where narrow"),
    ),
    brief=(
        "kernel",
        "total_ns",
        "share_pct",
        "load_bits",
        "store_bits",
        "verdict",
        "at_stake_ns",
        "bytes_per_s",
    ),
)
KERNELS = TableSpec(
    "kernels",
    "one row a kernel (and variant), source line and kind of access, in PTX and in SASS",
    (
        Column("kernel", "text", "base name, without templates and arguments"),
        Column("space", "text", "global, shared, local, …"),
        Column("kind", "text", "load, store, async-copy, atomic, …"),
        Column(
            "width_bits",
            "int64",
            "bits a thread moves in one instruction; absent where a descriptor tells",
            nullable=True,
        ),
        Column("level", "text", "ptx, as written, or sass, as it runs"),
        Column("instructions", "int64", "how many the code has"),
        Column("share_pct", "float64", "the kernel's, of the time of all kernels"),
        Column("calls", "int64", "times the kernel ran"),
        Column("total_ns", "int64", "time of the kernel on the GPU, all calls"),
        Column("loop_depth", "int64", "loops around it"),
        Column("source", "text", "line of the program", nullable=True),
        Column("name", "text", "kernel, demangled, whole"),
    ),
    brief=("kernel", "space", "kind", "width_bits", "level", "instructions", "share_pct", "source"),
    detail=True,
)
_STEPS = (32, 64, 128)
_MOST_FINDINGS = 5
_SAID_FROM_PCT, _LOW_FROM_PCT = 5.0, 20.0
_MOST_NAMES = 3
_RECORD = "traceview record gathers that of Triton and of torch.cuda's own compiler"
_GIVE = "report --cubin FILE takes that of CUDA C++"


def compute(trace: Trace) -> Result | Skipped:
    code, bounds = gathered_code(trace), width_bounds(trace)
    all_ns = code.total_ns
    if all_ns and not bounds:
        return _without_code(code)
    return Result(
        {
            "costs": Table.from_rows(COSTS.columns, (_cost(each, all_ns) for each in bounds)),
            "kernels": Table.from_rows(KERNELS.columns, _accesses(bounds, all_ns)),
        },
        tuple(_findings(trace, bounds, all_ns)),
        _summary(code, bounds),
        tuple(_notes(trace, code, bounds)),
    )


def _without_code(code: GatheredCode) -> Skipped:
    """Shares of no code at all would read as if the widths were known."""
    unfit = "".join(f"; {said}" for said in _unfit(code))
    return Skipped(
        "none of the kernels that ran has code here: cuBLAS, cuDNN, ATen and other libraries keep "
        f"theirs{unfit}",
        f"{_RECORD}; {_GIVE}",
    )


def _unfit(code: GatheredCode) -> Iterator[str]:
    for name, number in code.unfit.items():
        launches = units.counted(number, "launch", "launches")
        yield f"{launches} of {shortened(name)} fit none of the code that is here"


def _share(part_ns: int, all_ns: int) -> float:
    return 100.0 * part_ns / all_ns if all_ns > 0 else 0.0


def _cost(bound: WidthBound, all_ns: int) -> Mapping[str, Cell]:
    code, widths, judged = bound.code, bound.widths, bound.judged
    main = blamed(bound) or widths.loads or widths.stores
    return {
        "kernel": label(bound),
        "name": code.runs[0].name,
        "calls": code.launches,
        "total_ns": code.total_ns,
        "share_pct": _share(code.total_ns, all_ns),
        "load_bits": widths.loads.bits if widths.loads else None,
        "store_bits": widths.stores.bits if widths.stores else None,
        "level": widths.level,
        "source": line(main.source if main else None),
        "verdict": bound.verdict,
        "why_not": bound.why or None,
        "bytes": judged.bytes_moved if judged else None,
        "bytes_per_s": bound.bytes_per_s,
        "peak_bytes_per_s": bound.peak_bytes_per_s,
        "bound_ns": bound.bound_ns,
        "at_stake_ns": bound.at_stake_ns if bound.counted else 0,
    }


def _accesses(bounds: Sequence[WidthBound], all_ns: int) -> Iterator[Mapping[str, Cell]]:
    for bound in bounds:
        counts: dict[tuple[Level, str, Kind, int | None, int, SourceLine | None], int]
        counts = defaultdict(int)
        for a in bound.widths.accesses:
            counts[a.level, a.space, a.kind, a.width_bits, a.loop_depth, a.source] += a.count
        for (level, space, kind, bits, depth, source), count in counts.items():
            yield {
                "kernel": label(bound),
                "space": space,
                "kind": kind,
                "width_bits": bits,
                "level": level,
                "instructions": count,
                "share_pct": _share(bound.code.total_ns, all_ns),
                "calls": bound.code.launches,
                "total_ns": bound.code.total_ns,
                "loop_depth": depth,
                "source": line(source),
                "name": bound.code.runs[0].name,
            }


def _summary(code: GatheredCode, bounds: Sequence[WidthBound]) -> Mapping[str, Cell]:
    """Shares of the time of all kernels; a launch of several variants counts by its widest."""
    if not code.total_ns:
        return {}
    loads, stores = time_by_width(bounds, "loads"), time_by_width(bounds, "stores")
    known = {id(run): run.total_ns for bound in bounds for run in bound.code.runs}
    at_most = {
        f"{what}_at_most_{bits}_bits_pct": _share(
            sum(ns for width, ns in spent.items() if width <= bits), code.total_ns
        )
        for what, spent in (("loads", loads), ("stores", stores))
        for bits in _STEPS
    }
    with_code = sum(known.values())
    return {
        **at_most,
        "without_code_pct": _share(code.total_ns - with_code, code.total_ns),
        "kernel_total_ns": code.total_ns,
        "at_stake_ns": sum(bound.at_stake_ns for bound in bounds if bound.counted),
    }


def _findings(trace: Trace, bounds: Sequence[WidthBound], all_ns: int) -> Iterator[Finding]:
    span = steady_span_ns(trace)
    claimed = [b for b in bounds if b.counted and severity_of(b.at_stake_ns, span)]
    claimed.sort(key=lambda bound: -bound.at_stake_ns)
    for bound in claimed[:_MOST_FINDINGS]:
        severity = severity_of(bound.at_stake_ns, span) or "low"
        yield _claim(bound, bounds, all_ns, severity)
    unpriced = [
        bound
        for bound in bounds
        if bound.counted and bound.bits and bound.widths.traffic.unknown
        if bound.why != SET_UP_ALONE
    ]
    for bound in unpriced[:_MOST_FINDINGS]:
        share = _share(bound.code.total_ns, all_ns)
        if share >= _SAID_FROM_PCT:
            yield _unpriced(bound, share)


def _claim(
    bound: WidthBound, bounds: Sequence[WidthBound], all_ns: int, severity: Severity
) -> Finding:
    judged, bound_ns = bound.judged, bound.bound_ns or 1
    if judged is None:
        raise AssertionError("time is claimed of judged launches alone")
    each, least = judged.total_ns / judged.calls, bound_ns / judged.calls
    rate = units.quantity("bytes_per_s", bound.bytes_per_s)
    peak = units.quantity("bytes_per_s", bound.peak_bytes_per_s)
    message = (
        f"{who(bound, _share(bound.code.total_ns, all_ns))}: it moves {rate} of the memory's "
        f"{peak}. A call takes {units.duration(each)}; at {WIDE_BITS} bits it is bound by "
        f"{units.duration(least)}, a factor of at most {judged.total_ns / bound_ns:.1f}"
        f"{_proof(bound, bounds)}"
    )
    return Finding(severity, message, action(bound), bound.at_stake_ns)


def _unpriced(bound: WidthBound, share: float) -> Finding:
    """Widths are known, bytes are not: the share of time is all that can be said."""
    severity: Severity = "low" if share >= _LOW_FROM_PCT else "info"
    message = f"{who(bound, share)}. How much that costs is not told: {bound.why}"
    return Finding(severity, message, action(bound), 0)


def _proof(bound: WidthBound, bounds: Sequence[WidthBound]) -> str:
    """The kernel of this run that comes nearest the peak with 128 bits: no theory but a fact."""
    wide = [
        other
        for other in bounds
        if other.code.device == bound.code.device
        and other.bits is None
        and other.widths.loads
        and other.widths.loads.bits >= WIDE_BITS
        and (bound.bytes_per_s or 0) < (other.bytes_per_s or 0) <= (other.peak_bytes_per_s or 0)
    ]
    if not wide:
        return ""
    best = max(wide, key=lambda other: other.bytes_per_s or 0)
    rate = units.quantity("bytes_per_s", best.bytes_per_s)
    return f"; {shortened(label(best))} reaches {rate} in this run with {WIDE_BITS} bits"


def _notes(trace: Trace, code: GatheredCode, bounds: Sequence[WidthBound]) -> Iterator[str]:
    without = code.total_ns - sum({id(r): r.total_ns for b in bounds for r in b.code.runs}.values())
    if without > 0:
        share = units.percent(_share(without, code.total_ns))
        yield (
            f"{share} of kernel time is in kernels without code here, of which nothing is said: "
            f"cuBLAS, cuDNN, ATen and other libraries keep theirs; {_RECORD}; {_GIVE}"
        )
    yield from _unfit(code)
    yield from _lacking(bounds)
    early = sum(
        int(kernels_in_warm_up(trace)[r.rows].sum())
        for b in bounds
        if b.counted
        for r in b.code.runs
    )
    if early:
        calls = units.counted(early, "call")
        yield f"{calls} {OF_WARM_UP} count neither in bytes and rates nor in what is at stake"
    if any(bound.code.alike for bound in bounds):
        yield (
            "where variants have name, block, registers and shared memory in common, each is "
            "given all their launches in the tables; sums count a launch once"
        )


def _lacking(bounds: Sequence[WidthBound]) -> Iterator[str]:
    """What could not be read, once for all the kernels that it is true of."""
    kernels: dict[str, list[str]] = defaultdict(list)
    for bound in bounds:
        for note in bound.widths.notes:
            kernels[note].append(label(bound))
    for note, names in kernels.items():
        more = len(names) - _MOST_NAMES
        listed = ", ".join(shortened(name) for name in names[:_MOST_NAMES])
        yield f"{listed}{f' and {more} more' if more > 0 else ''}: {note}"


ANALYSIS = Analysis(
    name="load-widths",
    title="Load widths",
    question="How many bits do the kernels move at a time, and what would wider accesses win?",
    needs=("kernels", "kernel_code"),
    tables=(COSTS, KERNELS),
    compute=compute,
    charts=(
        Chart(
            "bars",
            "costs",
            "Time on the GPU by kernel and verdict",
            "kernel",
            "total_ns",
            stack="verdict",
        ),
    ),
)
