"""How much was copied, from where to where, and how fast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import groups, units
from traceview.analyses.base import (
    Analysis,
    Chart,
    Finding,
    Result,
    Severity,
    TableSpec,
    severity_of,
)
from traceview.facts.idle import steady_span_ns
from traceview.facts.operations import Kind, operations
from traceview.facts.selection import selected_operations
from traceview.facts.steps import set_up_end_ns
from traceview.tables import Array, Cell, Column, Mask, Table, Texts
from traceview.trace import Trace

COPIES = TableSpec(
    "copies",
    "one row a direction and kind of host memory, most time first",
    (
        Column("direction", "text", "H2D, D2H, D2D, P2P, …"),
        Column(
            "host_memory",
            "text",
            "pageable, pinned, managed; absent where no host takes part",
            nullable=True,
        ),
        Column("calls", "int64", "copies"),
        Column("bytes", "int64", "bytes copied, all calls"),
        Column("total_ns", "int64", "time of the copies, all calls"),
        Column("bytes_per_s", "int64", "bytes by time"),
        Column("median_bytes", "int64", "median size of a copy"),
    ),
    brief=("direction", "host_memory", "calls", "bytes", "total_ns", "bytes_per_s", "median_bytes"),
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
    copies = trace.copies.take(_chosen(trace, Kind.COPY))
    return Result(
        {"copies": _copies(copies), "sets": _sets(trace)},
        _findings(trace, copies),
    )


def _chosen(trace: Trace, kind: Kind) -> Mask:
    """True for the selected rows of the table of that kind."""
    done = operations(trace)
    mine = done.kind == kind
    chosen = np.zeros(int(mine.sum()), bool)
    chosen[done.row[mine]] = selected_operations(trace)[mine]
    return chosen


def _copies(copies: Table) -> Table:
    direction, host = copies.texts("direction"), _host_memory(copies)
    found = groups.group(direction.codes, host.codes)
    total = groups.sums(found, copies["end_ns"] - copies["start_ns"])
    size = groups.stats(found, copies["bytes"])
    table = Table(
        COPIES.columns,
        {
            "direction": direction.take(found.first),
            "host_memory": host.take(found.first),
            "calls": size.calls,
            "bytes": size.total,
            "total_ns": total,
            "bytes_per_s": _rate(size.total, total),
            "median_bytes": size.median,
        },
    )
    return table.take(np.argsort(-total, kind="stable"))


def _host_memory(copies: Table) -> Texts:
    """Kind of memory at the host's end of each copy, absent where both ends are on a device."""
    ends = [copies.texts(n) for n in ("direction", "source_memory", "destination_memory")]
    found = groups.group(*(end.codes for end in ends))
    labels = [
        source
        if str(direction).startswith("H")
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
    return np.rint(np.where(time > 0, size / np.maximum(time, 1) * 1e9, 0)).astype(np.int64)


def _sets(trace: Trace) -> Table:
    sets = trace.recorded("sets")
    sets = sets.take(_chosen(trace, Kind.SET))
    if not len(sets):
        return Table.empty(SETS.columns)
    size, time = (
        sets["bytes"].sum(keepdims=True),
        (sets["end_ns"] - sets["start_ns"]).sum(keepdims=True),
    )
    calls = np.array([len(sets)])
    rate = _rate(size, time)
    return Table(
        SETS.columns, {"calls": calls, "bytes": size, "total_ns": time, "bytes_per_s": rate}
    )


def _findings(trace: Trace, copies: Table) -> tuple[Finding, ...]:
    """Copies of pageable memory; those of set-up are for information."""
    early = copies["start_ns"] < set_up_end_ns(trace)
    found = []
    for part, when in ((copies.take(~early), ""), (copies.take(early), " in set-up")):
        for row in _copies(part).rows():
            total_ns = int(row["total_ns"] or 0)
            severity = severity_of(total_ns, steady_span_ns(trace))
            if row["host_memory"] == "pageable" and severity:
                found.append(_finding(row, when, "info" if when else severity))
    return tuple(found)


def _finding(row: Mapping[str, Cell], when: str, severity: Severity) -> Finding:
    one = f"{row['direction']} copy"
    copies = units.counted(int(row["calls"] or 0), one, f"{row['direction']} copies")
    rate = units.quantity("bytes_per_s", row["bytes_per_s"])
    return Finding(
        severity,
        f"{copies} of pageable memory{when} run at {rate} and hold the CPU meanwhile",
        "Pin the host memory (pin_memory=True, Tensor.pin_memory) and copy with non_blocking=True.",
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
