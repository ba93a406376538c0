"""How much was copied, from where to where, and how fast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.operations import Kind, migrations, operations
from traceview.facts.ranges.selection import selected, selected_operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.facts.steps.warm_up import in_warm_up_range, operations_in_warm_up_ranges
from traceview.facts.work.peaks import GIVEN, peaks
from traceview.findings import Finding, Severity, severity_of
from traceview.tables import Array, Cell, Column, Integers, Mask, Table, Texts
from traceview.trace import Trace
from traceview.trace.schema import UNIFIED

_OVER_THE_LINK = ("H2D", "D2H", f"{UNIFIED}H2D", f"{UNIFIED}D2H")
_MOST_RATE = float(1 << 62)
_ON_DEMAND = ("page fault", "speculative prefetch")
COPIES = TableSpec(
    "copies",
    "one row a direction, kind of host memory and cause of migration, most time first",
    (
        Column(
            "direction",
            "text",
            "H2D, D2H, D2D, P2P, …; UVM H2D and UVM D2H where unified memory moved its pages",
        ),
        Column(
            "host_memory",
            "text",
            "pageable, pinned, managed; absent where no host takes part",
            nullable=True,
        ),
        Column(
            "migration_cause",
            "text",
            "why unified memory moved them: page fault, user prefetch, eviction, …",
            nullable=True,
        ),
        Column("calls", "int64", "copies"),
        Column("bytes", "int64", "bytes copied, all calls"),
        Column("total_ns", "int64", "time of the copies, all calls"),
        Column("bytes_per_s", "int64", "bytes by time"),
        Column(
            "link_pct",
            "float64",
            "of what the link between host and GPU can do one way, see the note; absent where "
            "that is not known, and for copies that stay on GPUs",
            nullable=True,
        ),
        Column("median_bytes", "int64", "median size of a copy"),
    ),
    brief=(
        *("direction", "host_memory", "migration_cause", "calls", "bytes", "total_ns"),
        *("bytes_per_s", "link_pct", "median_bytes"),
    ),
)
SETS = TableSpec(
    "sets",
    "memory sets of all devices",
    (
        Column("calls", "int64", "sets"),
        Column("bytes", "int64", "bytes written, all calls"),
        Column("total_ns", "int64", "time of the sets, all calls"),
        Column("bytes_per_s", "int64", "bytes by time"),
    ),
    brief=("calls", "bytes", "total_ns", "bytes_per_s"),
)


def compute(trace: Trace) -> Result:
    copies = trace.copies
    chosen, moved = _chosen(trace, Kind.COPY, len(copies)), np.flatnonzero(migrations(trace))
    chosen[moved] = selected(trace, copies["process"][moved], copies["start_ns"][moved])
    early, copies = _early(trace, copies, moved)[chosen], copies.take(chosen)
    return Result(
        {"copies": _copies(trace, copies), "sets": _sets(trace)},
        _findings(trace, copies, early),
        notes=_notes(trace, copies),
    )


def _chosen(trace: Trace, kind: Kind, rows: int) -> Mask:
    """True for the selected operations among the rows of the table of that kind."""
    done = operations(trace)
    mine = done.kind == kind
    chosen = np.zeros(rows, bool)
    chosen[done.row[mine]] = selected_operations(trace)[mine]
    return chosen


def _copies(trace: Trace, copies: Table) -> Table:
    direction, host = copies.texts("direction"), _host_memory(copies)
    cause = copies.texts("migration_cause")
    found = groups.group(direction.codes, host.codes, cause.codes)
    total = groups.sums(found, copies.duration_ns)
    at_best = np.bincount(found.ids, _at_best_ns(trace, copies), found.size)
    size = groups.stats(found, copies["bytes"])
    table = Table(
        COPIES.columns,
        {
            "direction": direction.take(found.first),
            "host_memory": host.take(found.first),
            "migration_cause": cause.take(found.first),
            "calls": size.calls,
            "bytes": size.total,
            "total_ns": total,
            "bytes_per_s": _rate(size.total, total),
            "link_pct": _share(at_best, total),
            "median_bytes": size.median,
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


def _at_best_ns(trace: Trace, copies: Table) -> Array:
    """What each copy would take if the link did its best; NaN where there is none or no figure."""
    links = [known["link"].value if "link" in known else np.nan for known in peaks(trace)]
    rates = np.array([*links, np.nan])[copies["device"]]
    crosses = copies.texts("direction").isin(_OVER_THE_LINK)
    result: Array = np.where(crosses, copies["bytes"] / rates * 1e9, np.nan)
    return result


def _share(at_best: Array, total: Array) -> Array:
    """In %; NaN where copies were faster than the figure: it is not that of their link."""
    share = np.where(total > 0, 100 * at_best / np.maximum(total, 1), np.nan)
    result: Array = np.where(share <= 100, share, np.nan)
    return result


def _notes(trace: Trace, copies: Table) -> tuple[str, ...]:
    """Where the figure of the link comes from: no recording says how a GPU is plugged in."""
    crosses = copies.texts("direction").isin(_OVER_THE_LINK)
    found = [peaks(trace)[device].get("link") for device in np.unique(copies["device"][crosses])]
    said = {
        f"link_pct is of {units.quantity('bytes_per_s', link.value)} each way ({link.source})"
        for link in found
        if link
    }
    by_sheet = any(link and link.source != GIVEN for link in found)
    lacking = None in found
    if lacking:
        said.add("link_pct is absent where the GPU's data sheet is not known")
    if not said:
        return ()
    what = "the trace does not say how the GPU is connected"
    hint = f": {what}; --peak link=BYTES_PER_S does" if by_sheet or lacking else ""
    return (f"{', '.join(sorted(said))}{hint}",)


def _host_memory(copies: Table) -> Texts:
    """Kind of memory at the host's end of each copy, absent where both ends are on a device."""
    ends = [copies.texts(n) for n in ("direction", "source_memory", "destination_memory")]
    found = groups.group(*(end.codes for end in ends))
    labels = [
        source
        if str(direction).removeprefix(UNIFIED).startswith("H")
        else target
        if str(direction).endswith("H")
        else None
        for direction, source, target in (
            (end[row] for end in ends) for row in found.first.tolist()
        )
    ]
    return Texts.of(labels).take(found.ids)


def _rate(size: Array, time: Array) -> Array:
    """Bytes per second, 0 where no time passed."""
    rate = np.where(time > 0, size / np.maximum(time, 1) * 1e9, 0)
    # Damaged sizes and times make rates that no integer holds.
    return np.rint(np.minimum(rate, _MOST_RATE)).astype(np.int64)


def _sets(trace: Trace) -> Table:
    sets = trace.recorded("sets")
    sets = sets.take(_chosen(trace, Kind.SET, len(sets)))
    if not len(sets):
        return Table.empty(SETS.columns)
    size, time = (
        sets["bytes"].sum(keepdims=True),
        sets.duration_ns.sum(keepdims=True),
    )
    calls = np.array([len(sets)])
    rate = _rate(size, time)
    return Table(
        SETS.columns, {"calls": calls, "bytes": size, "total_ns": time, "bytes_per_s": rate}
    )


def _early(trace: Trace, copies: Table, moved: Integers) -> Mask:
    """True for the copies of set-up; `moved` are those that nobody launched."""
    early: Mask = copies["start_ns"] < warm_up_end_ns(trace)
    warm, done = operations_in_warm_up_ranges(trace), operations(trace)
    if warm is not None:
        mine = done.kind == Kind.COPY
        early[done.row[mine]] |= warm[mine]
        early[moved] |= in_warm_up_range(trace, copies["process"][moved], copies["start_ns"][moved])
    return early


def _findings(trace: Trace, copies: Table, early: Mask) -> tuple[Finding, ...]:
    """Copies of pageable memory, and pages moved on demand; those of set-up for information."""
    found = []
    for part, when in ((copies.take(~early), ""), (copies.take(early), " in set-up")):
        for row in _copies(trace, part).rows():
            total_ns = int(row["total_ns"] or 0)
            severity = severity_of(total_ns, steady_span_ns(trace))
            told = severity and ("info" if when else severity)
            if told and row["host_memory"] == "pageable":
                found.append(_finding(row, when, told))
            if told and row["migration_cause"] in _ON_DEMAND:
                found.append(_paged(row, when, told))
    return tuple(found)


def _finding(row: Mapping[str, Cell], when: str, severity: Severity) -> Finding:
    calls, one = int(row["calls"] or 0), f"{row['direction']} copy"
    copies = units.counted(calls, one, f"{row['direction']} copies")
    run, hold = ("runs", "holds") if calls == 1 else ("run", "hold")
    rate = units.quantity("bytes_per_s", row["bytes_per_s"])
    return Finding(
        severity,
        f"{copies} of pageable memory{when} {run} at {rate} and {hold} the CPU meanwhile",
        "Pin the host memory (pin_memory=True, Tensor.pin_memory) and copy with non_blocking=True.",
        int(row["total_ns"] or 0),
    )


def _paged(row: Mapping[str, Cell], when: str, severity: Severity) -> Finding:
    moves = units.counted(int(row["calls"] or 0), "migration", "migrations")
    size = units.quantity("bytes", row["median_bytes"])
    return Finding(
        severity,
        f"{moves} of unified memory by {row['migration_cause']} ({row['direction']}{when}) move "
        f"{units.quantity('bytes', row['bytes'])}, half of them {size} or less at a time",
        "Prefetch what is used next (cudaMemPrefetchAsync), or keep it on the GPU and copy it.",
        int(row["total_ns"] or 0),
    )


ANALYSIS = Analysis(
    name="memory-copies",
    title="Memory copies",
    question="What was copied, how fast, and did it hold the CPU?",
    needs=("copies",),
    tables=(COPIES, SETS),
    compute=compute,
    charts=(
        Chart(
            "bars",
            "copies",
            "Time of copies by direction and host memory",
            "direction",
            "total_ns",
            stack="host_memory",
        ),
    ),
)
