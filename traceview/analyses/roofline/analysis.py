"""How near each kernel comes to what the memory or the arithmetic of its GPU could do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Result, Skipped, TableSpec
from traceview.analyses.roofline.points import MEMORY, NEAR_PCT, Place, places
from traceview.analyses.roofline.work_items import Worked, worked
from traceview.analyses.warm_up_wording import OF_WARM_UP
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.hosts import HOST, gpu_cells
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.work.estimate import KINDS
from traceview.facts.work.kernel_work import MEASURED, PTX, kernel_work
from traceview.facts.work.peaks import Peaks, peaks
from traceview.findings import Finding, severity_of, shortened
from traceview.tables import Cell, Column, Mask, Table
from traceview.trace import Trace

_MOSTLY_BESIDE_PCT = 50.0
_MOST = 1 << 62
_RECORD = (
    "record with shapes (traceview record --shapes) or sampled counters (traceview record "
    "--gpu-metrics), or count with ncu and pass traceview report --ncu FILE.csv"
)

KERNELS = TableSpec(
    "kernels",
    "one row a kernel, grid, block, registers, declaring range, work a call and basis, most time "
    "first; kernels without a basis are left out",
    (
        Column("short_name", "text", "base name; of several kernels in one range, the range's"),
        Column("label", "text", "base name, and what tells it from others: `in` that range"),
        Column("device_id", "int32", "GPU"),
        HOST,
        Column("grid", "text", "blocks along x, y and z; absent for a range", nullable=True),
        Column("block", "text", "threads of a block; absent for a range", nullable=True),
        Column("registers_per_thread", "int64", "absent for a range", nullable=True),
        Column("declared_in", "text", "range that declares its work", nullable=True),
        Column("calls", "int64", "times it ran, of which the basis tells"),
        Column("total_ns", "int64", "time on the GPU, these calls"),
        Column("bytes", "int64", "between device memory and the GPU, these calls", nullable=True),
        Column("flop", "int64", "floating-point operations, these calls", nullable=True),
        Column("achieved_bytes_per_s", "int64", "bytes by time", nullable=True),
        Column("achieved_flop_per_s", "int64", "FLOP by time", nullable=True),
        Column("flop_per_byte", "float64", "arithmetic intensity", nullable=True),
        Column("flop_kind", "text", "the unit that does most of the FLOP", nullable=True),
        Column(
            "memory_peak_pct",
            "float64",
            "bytes rate of the GPU's peak; absent where it is more, and a cache must have answered",
            nullable=True,
        ),
        Column("compute_peak_pct", "float64", "FLOP rate of that unit's peak", nullable=True),
        Column(
            "bound",
            "text",
            f"memory or compute: the greater of the two, if it is {NEAR_PCT:.0f} % or more; "
            "latency: both are known and less; unknown: one is not known and the other less",
        ),
        Column("peak_bytes_per_s", "int64", "of its GPU's memory", nullable=True),
        Column("peak_flop_per_s", "int64", "of that unit, dense", nullable=True),
        Column("least_ns", "int64", "time at the nearer roof, these bytes and FLOP", nullable=True),
        Column("at_stake_ns", "int64", "what lies above that: the most there is", nullable=True),
        Column("basis", "text", "where bytes and FLOP come from", prose=True),
        Column("beside_pct", "float64", "of the time, in calls beside which other work ran"),
        Column("name", "text", "kernel, demangled, whole; of several, the range's"),
    ),
    brief=(
        "label",
        "calls",
        "total_ns",
        "achieved_bytes_per_s",
        "memory_peak_pct",
        "achieved_flop_per_s",
        "compute_peak_pct",
        "bound",
        "at_stake_ns",
        "basis",
    ),
)
ROOFS = TableSpec(
    "roofs",
    "what the GPUs could do at most, as far as kernels above need it",
    (
        Column("device_id", "int32", "GPU"),
        HOST,
        Column("roof", "text", "memory, or a kind of FLOP"),
        Column("peak_bytes_per_s", "int64", "of the memory", nullable=True),
        Column("peak_flop_per_s", "int64", "of that kind, dense", nullable=True),
        Column("source", "text", "who says so", prose=True),
    ),
    brief=("device_id", "roof", "peak_bytes_per_s", "peak_flop_per_s", "source"),
    detail=True,
)


def compute(trace: Trace) -> Result | Skipped:
    chosen = selected_operations(trace)[kernel_operations(trace)]
    if chosen.any() and kernel_work(trace).is_silent:
        return _nothing_known()
    runs = worked(trace)
    known = runs.known
    if len(known) and not known.any():
        return _nothing_known()
    roofs, used = peaks(trace), groups.different(runs.device[known]).tolist()
    if used and not any(_told(roofs[device]) for device in used):
        return _unknowngpu_cells(trace, used[0])
    found = places(runs, roofs)
    labels = _labels(found)
    each = (_row(place, said, trace) for place, said in zip(found, labels, strict=True))
    table = Table.from_rows(KERNELS.columns, each)
    blamed = _blamed(trace, found, table)
    return Result(
        {"kernels": table, "roofs": _roofs(trace, found, roofs)},
        tuple(finding for _, finding in blamed),
        _summary(table, runs, known),
        (*_notes(runs, known), *_of_set_up([place for place, _ in blamed])),
    )


def _nothing_known() -> Skipped:
    return Skipped("nothing tells how many bytes or FLOP the kernels of this trace moved", _RECORD)


def _told(roofs: Peaks) -> bool:
    return MEMORY in roofs or any(kind in roofs for kind in KINDS)


def _unknowngpu_cells(trace: Trace, device: int) -> Skipped:
    name = trace.devices.texts("name")[device]
    told = f"the peak rates of {shortened(name)} are" if name else "the GPU and its peak rates are"
    return Skipped(
        f"{told} not known",
        "give them: traceview report TRACE --peak bandwidth=BYTES_PER_S --peak bf16=FLOP_PER_S",
    )


def _labels(found: Sequence[Place]) -> list[str]:
    """With the declaring range where a label stands for runs of several."""
    ranges = Counter(label for label, _ in {(place.label, place.inside) for place in found})
    return [
        f"{place.label} in {place.inside}"
        if place.inside and ranges[place.label] > 1
        else place.label or ""
        for place in found
    ]


def _row(place: Place, label: str, trace: Trace) -> dict[str, Cell]:
    least = place.least_ns
    return {
        "short_name": place.name,
        "label": label,
        **gpu_cells(trace, place.device),
        "grid": place.grid,
        "block": place.block,
        "registers_per_thread": place.registers,
        "declared_in": place.inside,
        "calls": place.calls,
        "total_ns": place.total_ns,
        "bytes": _whole(place.bytes),
        "flop": _whole(place.flop),
        "achieved_bytes_per_s": _whole(place.rate(place.bytes)),
        "achieved_flop_per_s": _whole(place.rate(place.flop)),
        "flop_per_byte": place.flop_per_byte,
        "flop_kind": place.kind,
        "memory_peak_pct": _capped(place.memory_pct),
        "compute_peak_pct": _capped(place.compute_pct),
        "bound": place.bound,
        "peak_bytes_per_s": _whole(place.peak(MEMORY)),
        "peak_flop_per_s": _whole(place.peak(place.kind)),
        "least_ns": least,
        "at_stake_ns": None if least is None else place.total_ns - least,
        "basis": place.basis,
        "beside_pct": 100 * place.beside_ns / place.total_ns if place.total_ns else 0.0,
        "name": place.whole,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else min(round(value), _MOST)


def _capped(share: float | None) -> float | None:
    return None if share is None else min(share, 100.0)


def _roofs(trace: Trace, found: Sequence[Place], roofs: tuple[Peaks, ...]) -> Table:
    """The memory of every GPU in use, and the kinds of FLOP that its kernels did."""
    wanted = sorted(
        {(place.device, roof) for place in found for roof in (MEMORY, place.kind) if roof},
        key=lambda each: (each[0], each[1] != MEMORY, each[1]),
    )
    rows = [
        {
            **gpu_cells(trace, device),
            "roof": "memory" if roof == MEMORY else roof,
            "peak_bytes_per_s": _whole(roofs[device][roof].value) if roof == MEMORY else None,
            "peak_flop_per_s": None if roof == MEMORY else _whole(roofs[device][roof].value),
            "source": roofs[device][roof].source,
        }
        for device, roof in wanted
        if roof in roofs[device]
    ]
    return Table.from_rows(ROOFS.columns, rows)


def _blamed(trace: Trace, found: Sequence[Place], table: Table) -> list[tuple[Place, Finding]]:
    """Kernels that are near no roof: what is near one can only be given less to do.

    Of those that share the GPU with others, the rates tell nothing.
    """
    made, span = [], steady_span_ns(trace)
    for place, row in zip(found, table.rows(), strict=True):
        later = place.steady_ns / place.total_ns if place.total_ns else 0.0
        at_stake = min(round(int(row["at_stake_ns"] or 0) * later), span)
        severity = severity_of(at_stake, span)
        own = float(row["beside_pct"] or 0) < _MOSTLY_BESIDE_PCT
        if severity and own and row["bound"] == "latency":
            made.append((place, Finding(severity, _message(row), _action(place), at_stake)))
    return made


_LOOK = (
    "at its occupancy and last wave (wave-quantization) and at how wide its loads are "
    "(load-widths, traceview ptx)"
)


def _action(place: Place) -> str:
    """Bytes that were counted are all that moved: of others, the memory may move more in vain."""
    if place.bytes_from <= MEASURED:
        return f"Look {_LOOK}: it keeps neither the memory nor the arithmetic busy."
    return (
        "Look whether neighbouring threads touch neighbouring addresses (coalescing; ncu counts "
        f"what really moves), {_LOOK}: it moves too few useful bytes."
    )


def _message(row: Mapping[str, Cell]) -> str:
    memory, compute_ = (
        units.percent(float(row[name] or 0)) for name in ("memory_peak_pct", "compute_peak_pct")
    )
    unit = f"the {row['flop_kind']} peak" if row["flop_kind"] else "the arithmetic"
    calls = units.counted(int(row["calls"] or 0), "call")
    return (
        f"{shortened(str(row['label']))} runs at {memory} of the memory's peak "
        f"({units.quantity('bytes_per_s', row['achieved_bytes_per_s'])}) and {compute_} of {unit}: "
        f"{calls} took {units.duration(int(row['total_ns'] or 0))}, at the roof "
        f"{units.duration(int(row['least_ns'] or 0))} ({row['basis']})"
    )


def _summary(table: Table, runs: Worked, known: Mask) -> dict[str, Cell]:
    if not len(known):
        return {}
    bound = table.texts("bound").decode()
    each = {
        f"{name}_bound_ns": int(table["total_ns"][bound == name].sum())
        for name in ("memory", "compute", "latency")
    }
    return {**each, "without_basis_ns": int(runs.took[~known].sum())}


def _notes(runs: Worked, known: Mask) -> tuple[str, ...]:
    notes = []
    without, total = int(runs.took[~known].sum()), int(runs.took.sum())
    if without:
        notes.append(
            f"{units.percent(100 * without / total)} of kernel time ({units.duration(without)}) is "
            f"in kernels of which nothing tells bytes or FLOP; to know them, {_RECORD}"
        )
    if (runs.bytes_from == PTX).any():
        notes.append(
            "bytes counted in PTX are those that threads ask for: where a cache answers, the "
            "memory moves fewer"
        )
    return tuple(notes)


def _of_set_up(blamed: Sequence[Place]) -> tuple[str, ...]:
    early = sum(place.total_ns - place.steady_ns for place in blamed)
    said = f"{OF_WARM_UP} count in the tables, not in what findings put at stake"
    return (f"{units.duration(early)} {said}",) if early else ()


ANALYSIS = Analysis(
    name="roofline",
    title="Roofline",
    question="Is each kernel held back by memory, by arithmetic, or by neither?",
    needs=("kernels",),
    tables=(KERNELS, ROOFS),
    compute=compute,
    charts=(
        Chart(
            "roofline",
            "kernels",
            "Work done over work for each byte, sized by time, under the roofs of the GPU",
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
