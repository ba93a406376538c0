"""Access widths of the kernels that ran, and the time that wider accesses can save.

A width is the bits that one thread moves with one instruction, from PTX or, where it can be had,
SASS. `bound_ns` is the greatest of bytes ÷ peak bandwidth, instructions ÷ issue rate, and time ×
width ÷ 128; `at_stake_ns` is the time beyond it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from traceview.base import units
from traceview.base.findings import shortened
from traceview.base.tables import Cell, Table, TableSpec, column_list
from traceview.kernels.ptx.model import Kind, Level, SourceLine
from traceview.traces import rules
from traceview.traces.analyses import base, wording
from traceview.traces.analyses.load_widths_findings import (
    RULES,
    WidthBound,
    label,
    line,
    narrow_main,
    time_by_width,
    width_bounds,
)
from traceview.traces.facts.code import GatheredCode, gathered_code
from traceview.traces.facts.steps.steps import kernels_in_warm_up
from traceview.traces.trace import Trace

_NAMES = """
    kernel text: base name, without templates and arguments
    name text: demangled, whole
"""
_TIMES = """
    calls int64: launches
    total_ns int64: GPU time of all calls
    share_pct float64: percentage of the time of all kernels
"""
COSTS = TableSpec(
    "costs",
    "one row per kernel (and variant) with code, longest time first: its widths in global memory, "
    "and the time that 128 bits can save at most",
    column_list(f"""
        {_NAMES}
        {_TIMES}
        load_bits int64?: bits per thread per instruction of the loads that move most in the
            innermost loop; absent without loads of known width
        store_bits int64?: the same for stores
        level text: source of the widths: sass where available, else ptx
        source text?: line of the narrow accesses, else of the main ones: gelu.py:31
        verdict text: wide, narrow, near-peak (of bandwidth) or unknown
        why_not sentence?: why no saving is claimed for narrow accesses
        bytes int64?: bytes that calls after warm-up requested from global memory while alone on the
            GPU, ignoring masks; absent where the code does not show them
        bytes_per_s int64?: rate of these calls
        peak_bytes_per_s int64?: peak bandwidth of the GPU
        bound_ns int64?: lower bound of the time of these calls, from peak bandwidth, arithmetic,
            and memory instructions at 128 bits
        at_stake_ns int64: time of these calls beyond that, where narrow
    """),
    brief="kernel total_ns share_pct load_bits store_bits verdict at_stake_ns bytes_per_s",
)
KERNELS = TableSpec(
    "kernels",
    "one row per kernel (and variant), source line and kind of access, in PTX and in SASS",
    column_list("""
        kernel text: base name, without templates and arguments
        space text: global, shared, local, …
        kind text: load, store, async-copy, atomic, …
        width_bits int64?: bits per thread per instruction; absent for accesses by descriptor
        level text: ptx (as compiled) or sass (as it runs)
        instructions int64: instructions in the code
        share_pct float64: percentage of kernel time that the kernel takes
        calls int64: launches of the kernel
        total_ns int64: GPU time of the kernel, all calls
        loop_depth int64: loops around the access
        source text?: line of the program
        name text: kernel, demangled, whole
    """),
    brief="kernel space kind width_bits level instructions share_pct source",
    detail=True,
)
_STEPS = (32, 64, 128)
_MOST_NAMES = 3
_RECORD = (
    "traceview record stores the code of Triton kernels, of CUDA C++ that torch compiles at run "
    "time, and of what nvcc built into the program"
)
_GIVE = "traceview report --cubin FILE adds the code of other CUDA C++ kernels"


def compute(trace: Trace) -> base.Result | base.Skipped:
    code, bounds = gathered_code(trace), width_bounds(trace)
    all_ns = code.total_ns
    if all_ns and not bounds:
        # The reason to skip: percentages without any code would read as if the widths were known.
        unfit = "".join(f"; {text}" for text in _unfit(code))
        return base.Skipped(
            "the trace has no code of the kernels that ran (that of cuBLAS, cuDNN, ATen and other "
            f"libraries is not available){unfit}",
            f"{_RECORD}; {_GIVE}",
        )
    return base.Result(
        {
            "costs": Table.from_rows(COSTS.columns, (_cost(each, all_ns) for each in bounds)),
            "kernels": Table.from_rows(KERNELS.columns, _accesses(bounds, all_ns)),
        },
        tuple(rules.findings(trace, RULES)),
        _summary(code, bounds),
        tuple(_notes(trace, code, bounds)),
    )


def _unfit(code: GatheredCode) -> Iterator[str]:
    for name, number in code.unfit.items():
        launches = units.counted(number, "launch", "launches")
        match = "matches" if number == 1 else "match"
        yield f"{launches} of {shortened(name)} {match} none of the recorded code"


def _pct_of(part_ns: int, all_ns: int) -> float:
    return 100.0 * part_ns / all_ns if all_ns > 0 else 0.0


def _cost(bound: WidthBound, all_ns: int) -> Mapping[str, Cell]:
    code, widths, timed = bound.code, bound.widths, bound.timed
    main = narrow_main(bound) or widths.loads or widths.stores
    return {
        "kernel": label(bound),
        "name": code.runs[0].name,
        "calls": code.launches,
        "total_ns": code.total_ns,
        "share_pct": _pct_of(code.total_ns, all_ns),
        "load_bits": widths.loads.bits if widths.loads else None,
        "store_bits": widths.stores.bits if widths.stores else None,
        "level": widths.level,
        "source": line(main.source if main else None),
        "verdict": bound.verdict,
        "why_not": bound.why or None,
        "bytes": timed.bytes_moved if timed else None,
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
                "share_pct": _pct_of(bound.code.total_ns, all_ns),
                "calls": bound.code.launches,
                "total_ns": bound.code.total_ns,
                "loop_depth": depth,
                "source": line(source),
                "name": bound.code.runs[0].name,
            }


def _summary(code: GatheredCode, bounds: Sequence[WidthBound]) -> Mapping[str, Cell]:
    """Percentages of kernel time; a launch that fits several variants counts by its widest."""
    if not code.total_ns:
        return {}
    loads, stores = time_by_width(bounds, "loads"), time_by_width(bounds, "stores")
    known = {id(run): run.total_ns for bound in bounds for run in bound.code.runs}
    at_most = {
        f"{what}_at_most_{bits}_bits_pct": _pct_of(
            sum(ns for width, ns in spent.items() if width <= bits), code.total_ns
        )
        for what, spent in (("loads", loads), ("stores", stores))
        for bits in _STEPS
    }
    with_code = sum(known.values())
    return {
        **at_most,
        "without_code_pct": _pct_of(code.total_ns - with_code, code.total_ns),
        "kernel_total_ns": code.total_ns,
        "at_stake_ns": sum(bound.at_stake_ns for bound in bounds if bound.counted),
    }


def _notes(trace: Trace, code: GatheredCode, bounds: Sequence[WidthBound]) -> Iterator[str]:
    without = code.total_ns - sum({id(r): r.total_ns for b in bounds for r in b.code.runs}.values())
    if without > 0:
        part = units.percent(_pct_of(without, code.total_ns))
        yield (
            f"{part} of kernel time is in kernels without recorded code, such as those of "
            f"cuBLAS, cuDNN and ATen, which these tables leave out. {_RECORD}; {_GIVE}."
        )
    yield from _unfit(code)
    kernels: dict[str, list[str]] = defaultdict(list)
    for bound in bounds:
        for note in bound.widths.notes:
            kernels[note].append(label(bound))
    for note, names in kernels.items():
        more = len(names) - _MOST_NAMES
        listed = ", ".join(shortened(name) for name in names[:_MOST_NAMES])
        yield f"{listed}{f' and {more} more' if more > 0 else ''}: {note}"
    early = sum(
        int(kernels_in_warm_up(trace)[r.rows].sum())
        for b in bounds
        if b.counted
        for r in b.code.runs
    )
    if early:
        calls = units.counted(early, "call")
        yield f"{calls} {wording.OF_WARM_UP} are left out of bytes, rates and savings."
    if any(bound.code.alike for bound in bounds):
        yield (
            "Variants with equal name, block, registers and shared memory cannot be told "
            "apart. Each is listed with the launches of all; sums count a launch once."
        )


ANALYSIS = base.Analysis(
    name="load-widths",
    title="Load widths",
    question="How many bits do kernels move per instruction, and what would wider accesses save?",
    needs=("kernels", "kernel_code"),
    tables=(COSTS, KERNELS),
    compute=compute,
    charts=(
        base.Chart(
            "bars", "costs", "GPU time by kernel and verdict", "kernel", "total_ns", stack="verdict"
        ),
    ),
)
