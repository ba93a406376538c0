"""How close each kernel comes to the peak bandwidth and the peak FLOP rate of its GPU.

Achieved rates are bytes and FLOP ÷ GPU time, percentages 100 × these ÷ the peaks. A kernel is bound
by memory or by compute, whichever peak it is nearer to, if it reaches 60 % of that peak; else by
latency. `least_ns` is the time at the nearer peak, `at_stake_ns` the time beyond it. `basis`
names the source of bytes and FLOP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from traceview.base import groups, units
from traceview.base.findings import Subject, severity_of, shortened
from traceview.base.tables import Cell, Mask, Table, TableSpec, column_list
from traceview.traces.analyses import base, wording
from traceview.traces.analyses.roofline_points import (
    MEMORY,
    NEAR_PCT,
    RooflinePoint,
    WorkItems,
    points,
    work_items,
)
from traceview.traces.facts.idle.gaps import steady_span_ns
from traceview.traces.facts.kernel_classes import KernelOwner, framework, kernel_owners
from traceview.traces.facts.operations import HOST, gpu_cells
from traceview.traces.facts.ranges.selection import selected_kernels
from traceview.traces.facts.savings import faster
from traceview.traces.facts.work.from_ranges import shaped_gemms
from traceview.traces.facts.work.kernel_work import MEASURED, PTX, kernel_work
from traceview.traces.facts.work.peaks import KINDS, Peaks, peaks
from traceview.traces.rules import FindingRule, TimeClaim, finding_of, of_kernels
from traceview.traces.trace import Trace, fact, model

KERNELS = TableSpec(
    "kernels",
    "one row per kernel, grid, block, registers, declaring range, work per call and basis, longest "
    "time first; kernels of unknown work are left out",
    column_list(f"""
        short_name text: base name; for several kernels in one range, the range's
        label text: base name, with what distinguishes it from others of that name
        device_id int32: GPU
        {HOST}
        grid text?: blocks along x, y and z; absent for a range
        block text?: threads per block along x, y and z; absent for a range
        registers_per_thread int64?: absent for a range
        declared_in text?: range that declares its work
        calls int64: launches of known work
        total_ns int64: GPU time of these calls
        bytes int64?: moved between device memory and the GPU by these calls
        flop int64?: floating-point operations of these calls
        achieved_bytes_per_s int64?: bytes ÷ time
        achieved_flop_per_s int64?: FLOP ÷ time
        flop_per_byte float64?: arithmetic intensity
        flop_kind text?: type and unit of most of the FLOP
        memory_peak_pct float64?: percent of peak bandwidth; absent above 100 %, where caches must
            have served bytes
        compute_peak_pct float64?: percent of the peak rate of that kind
        bound text: memory or compute: the greater percentage, if {NEAR_PCT:.0f} % or more; latency:
            both are lower; unknown: one is unknown and the other lower
        peak_bytes_per_s int64?: peak bandwidth of its GPU
        peak_flop_per_s int64?: peak FLOP rate of that kind, dense
        least_ns int64?: time of this work at the nearer ceiling
        at_stake_ns int64?: time beyond that: the most that can be saved
        basis sentence: source of bytes and FLOP
        beside_pct float64: percentage of the time in calls that overlap other work
        name text: kernel, demangled, whole; for several, the range's
    """),
    brief=(
        "label calls total_ns achieved_bytes_per_s memory_peak_pct achieved_flop_per_s "
        "compute_peak_pct bound at_stake_ns basis"
    ),
)
ROOFS = TableSpec(
    "roofs",
    "peak rates of the GPUs that the kernels above are compared with",
    column_list(f"""
        device_id int32: GPU
        {HOST}
        roof text: memory, or a kind of FLOP
        peak_bytes_per_s int64?: peak bandwidth
        peak_flop_per_s int64?: peak FLOP rate of that kind, dense
        source sentence: where the rate comes from
    """),
    brief="device_id roof peak_bytes_per_s peak_flop_per_s source",
    detail=True,
)


_MOSTLY_BESIDE_PCT = 50.0
_MOST = 1 << 62


def compute(trace: Trace) -> base.Result | base.Skipped:
    chosen = selected_kernels(trace)
    if chosen.any() and kernel_work(trace).is_unknown:
        return _work_unknown(trace)
    items = work_items(trace)
    known = items.known
    if len(known) and not known.any():
        return _work_unknown(trace)
    all_peaks, devices = peaks(trace), groups.different(items.device[known]).tolist()
    if devices and not any({MEMORY, *KINDS} & all_peaks[device].keys() for device in devices):
        name = trace.devices.texts("name")[devices[0]]
        of_gpu = f"the peak rates of {shortened(name)}" if name else "the GPU and its peak rates"
        return base.Skipped(
            f"{of_gpu} are not known",
            "give them: traceview report TRACE --peak bandwidth=BYTES_PER_S --peak bf16=FLOP_PER_S",
        )
    _, kernel_points, table = _points(trace)
    claimed = ((point, finding_of(trace, RULE, claim)) for point, claim in _latency_bound(trace))
    reported = [(point, finding) for point, finding in claimed if finding]
    return base.Result(
        {"kernels": table, "roofs": _ceilings(trace, kernel_points, all_peaks)},
        tuple(finding for _, finding in reported),
        _summary(table, items, known),
        (*_notes(trace, items, known), *_warm_up_notes([point for point, _ in reported])),
    )


@fact
def _points(trace: Trace) -> tuple[WorkItems, list[RooflinePoint], Table]:
    """The work items, their points, and the table of these."""
    items = work_items(trace)
    kernel_points = points(items, peaks(trace))
    ranges = Counter(
        label for label, _ in {(point.label, point.declared_in) for point in kernel_points}
    )
    labels = [
        f"{point.label} in {point.declared_in}"
        if point.declared_in and ranges[point.label] > 1
        else point.label or ""
        for point in kernel_points
    ]
    rows = (_row(point, label, trace) for point, label in zip(kernel_points, labels, strict=True))
    return items, kernel_points, Table.from_rows(KERNELS.columns, rows)


def _work_unknown(trace: Trace) -> base.Skipped:
    return base.Skipped("bytes and FLOP of the kernels in this trace are unknown", _record(trace))


def _record(trace: Trace) -> str:
    """The remedy that gets bytes and FLOP recorded. Only torch knows shapes."""
    options, ways = model.recording_options(trace), []
    if framework(trace) in ("torch", "") and not options.shapes and shaped_gemms(trace) is None:
        ways.append(f"shapes ({wording.to_record_shapes(trace)})")
    if wording.on_amd(trace):
        return f"record with {ways[0]}" if ways else "count with rocprof-compute"
    if not options.gpu_metrics:
        ways.append("sampled counters (traceview record --gpu-metrics)")
    count = "count with ncu and pass traceview report --ncu FILE.csv"
    return f"record with {' or '.join(ways)}, or {count}" if ways else count


def _row(point: RooflinePoint, label: str, trace: Trace) -> dict[str, Cell]:
    least_ns = point.least_ns
    return {
        "short_name": point.name,
        "label": label,
        **gpu_cells(trace, point.device),
        "grid": point.grid,
        "block": point.block,
        "registers_per_thread": point.registers,
        "declared_in": point.declared_in,
        "calls": point.calls,
        "total_ns": point.total_ns,
        "bytes": _whole(point.bytes),
        "flop": _whole(point.flop),
        "achieved_bytes_per_s": _whole(point.rate(point.bytes)),
        "achieved_flop_per_s": _whole(point.rate(point.flop)),
        "flop_per_byte": point.flop_per_byte,
        "flop_kind": point.kind,
        "memory_peak_pct": _capped(point.memory_pct),
        "compute_peak_pct": _capped(point.compute_pct),
        "bound": point.bound,
        "peak_bytes_per_s": _whole(point.peak(MEMORY)),
        "peak_flop_per_s": _whole(point.peak(point.kind)),
        "least_ns": least_ns,
        "at_stake_ns": None if least_ns is None else point.total_ns - least_ns,
        "basis": point.basis,
        "beside_pct": 100 * point.beside_ns / point.total_ns if point.total_ns else 0.0,
        "name": point.full_name,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else min(round(value), _MOST)


def _capped(pct: float | None) -> float | None:
    return None if pct is None else min(pct, 100.0)


def _ceilings(trace: Trace, points: Sequence[RooflinePoint], all_peaks: tuple[Peaks, ...]) -> Table:
    """The ceilings of every GPU in use: its memory, and the kinds of FLOP that its kernels do."""
    needed = sorted(
        {(point.device, figure) for point in points for figure in (MEMORY, point.kind) if figure},
        key=lambda each: (each[0], each[1] != MEMORY, each[1]),
    )
    rows = []
    for device, figure in needed:
        peak = all_peaks[device].get(figure)
        if peak is not None:
            is_memory = figure == MEMORY
            rows.append(
                {
                    **gpu_cells(trace, device),
                    "roof": "memory" if is_memory else figure,
                    "peak_bytes_per_s": _whole(peak.value) if is_memory else None,
                    "peak_flop_per_s": None if is_memory else _whole(peak.value),
                    "source": peak.source,
                }
            )
    return Table.from_rows(ROOFS.columns, rows)


def _latency_bound(trace: Trace) -> Iterator[tuple[RooflinePoint, TimeClaim]]:
    """Kernels far below both ceilings: one near a ceiling needs less work instead.

    Kernels that mostly overlap others are left out, as their rates are shared, and so are those of
    libraries and compilers, of which nobody can look at the code.
    """
    span_ns, (items, kernel_points, table) = steady_span_ns(trace), _points(trace)
    for point, row in zip(kernel_points, table.rows(), strict=True):
        alone = float(row["beside_pct"] or 0) < _MOSTLY_BESIDE_PCT
        too_long_ns = int(row["at_stake_ns"] or 0)
        if not alone or row["bound"] != "latency" or not severity_of(too_long_ns, span_ns):
            continue
        rows = np.flatnonzero(np.isin(items.of, point.items))
        if not (kernel_owners(trace)[rows] == KernelOwner.PROGRAM).any():
            continue
        # The program gains the same fraction of each call, as far as the GPU is what limits it.
        duration_ns = trace.recorded("kernels").duration_ns[rows]
        fraction = too_long_ns / max(point.total_ns, 1)
        less_ns = np.ceil(duration_ns * fraction).astype(np.int64)
        gain = of_kernels(trace, rows, faster(less_ns)).at_most(too_long_ns)
        claim = TimeClaim(
            Subject("kernel" if point.grid else "range", point.full_name or ""),
            {name: row[name] for name in _FIGURES},
            "kernels",
            {name: row[name] for name in _KEYS},
            gain.saved_ns,
            span_ns=span_ns,
            edit=gain.edit,
            error_ns=gain.error_ns,
            # No kernel is faster than at the nearer peak, and most stay below it.
            saving="at-most",
            # Of bytes that were not measured, uncoalesced accesses may move more.
            remedy=_NOT_BUSY if point.bytes_from <= MEASURED else _FEW_USEFUL,
            words={"kind": point.kind or ""},
        )
        yield point, claim


_LOOK = (
    "at its occupancy and last wave (wave-quantization) and at the width of its loads "
    "(load-widths, traceview ptx)"
)
_NOT_BUSY = f"Look {_LOOK}: it keeps neither memory nor arithmetic busy."
_FEW_USEFUL = (
    "Look at whether neighbouring threads access neighbouring addresses (coalescing; ncu counts "
    f"the bytes that move), {_LOOK}: it moves too few useful bytes per second."
)
RULE = FindingRule(
    lambda trace: (claim for _, claim in _latency_bound(trace)),
    "{label} reaches {memory_peak_pct} of peak bandwidth ({achieved_bytes_per_s})[ and "
    "{compute_peak_pct} of the {kind} peak]. It takes {total_ns} in {calls:call}; at the nearer "
    "peak it would take {least_ns} (basis: {basis}).",
)
_FIGURES = (
    *("label", "memory_peak_pct", "achieved_bytes_per_s", "compute_peak_pct", "flop_kind"),
    *("achieved_flop_per_s", "calls", "total_ns", "least_ns", "basis"),
)
_KEYS = (
    *("name", "label", "device_id", "grid", "block", "registers_per_thread", "declared_in"),
    *("bytes", "flop", "total_ns"),
)


def _summary(table: Table, items: WorkItems, known: Mask) -> dict[str, Cell]:
    if not len(known):
        return {}
    bound = table.texts("bound").decode()
    by_bound = {
        f"{name}_bound_ns": int(table["total_ns"][bound == name].sum())
        for name in ("memory", "compute", "latency")
    }
    return {**by_bound, "without_basis_ns": int(items.duration_ns[~known].sum())}


def _notes(trace: Trace, items: WorkItems, known: Mask) -> Iterator[str]:
    unknown_ns, total_ns = int(items.duration_ns[~known].sum()), int(items.duration_ns.sum())
    if unknown_ns:
        part = units.percent(100 * unknown_ns / total_ns)
        yield (
            f"Bytes and FLOP are unknown for {part} of kernel time ({units.duration(unknown_ns)}). "
            f"To get them, {_record(trace)}."
        )
    if (items.bytes_from == PTX).any():
        yield "Bytes counted in PTX are those that threads request; caches may serve part of them."


def _warm_up_notes(reported: Sequence[RooflinePoint]) -> tuple[str, ...]:
    early_ns = sum(point.total_ns - point.steady_ns for point in reported)
    counted = f"{wording.OF_WARM_UP} count in the tables but not in the savings of findings."
    return (f"{units.duration(early_ns)} {counted}",) if early_ns else ()


ANALYSIS = base.Analysis(
    name="roofline",
    title="Roofline",
    question="Is each kernel bound by memory, by arithmetic, or by neither?",
    needs=("kernels",),
    tables=(KERNELS, ROOFS),
    compute=compute,
    charts=(
        base.Chart(
            "roofline",
            "kernels",
            "FLOP rate by arithmetic intensity under the ceilings of the GPU; area is time",
            "label",
            "achieved_flop_per_s",
            stack="flop_kind",
            x="flop_per_byte",
            size="total_ns",
            slope="peak_bytes_per_s",
            level="peak_flop_per_s",
        ),
    ),
)
