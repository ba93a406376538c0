"""Memory copies, memsets and page migrations: how much, between which memories, how fast.

`bytes_per_s` is the bytes of all calls ÷ the sum of their times. `exposed_ns` is the union of the
copies on a GPU, less the time in which kernels run there: only that can be saved.
"""

from __future__ import annotations

import numpy as np

from traceview import groups, units
from traceview.analyses.base import Analysis, Chart, Result, TableSpec
from traceview.analyses.memory_copies.copies import (
    COPIES,
    OVER_THE_LINK,
    copies_by_kind,
)
from traceview.analyses.memory_copies.findings import copy_findings
from traceview.analyses.memory_copies.migrations import migration_findings, outer_finding
from traceview.facts.operations.copies import outer_migrations
from traceview.facts.operations.exposure import compute_time
from traceview.facts.operations.operations import Kind, migrations, operations
from traceview.facts.ranges.selection import selected, selected_operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.facts.steps.warm_up import in_warm_up_range, operations_in_warm_up_ranges
from traceview.facts.work.peaks import GIVEN, bytes_per_s, peaks
from traceview.tables import Column, Integers, Mask, Table
from traceview.trace import Trace

_START_UP_FRACTION = 0.05
SETS = TableSpec(
    "sets",
    "memsets on all GPUs",
    (
        Column("calls", "int64", "memsets"),
        Column("bytes", "int64", "bytes written, all calls"),
        Column("total_ns", "int64", "time of all calls"),
        Column("bytes_per_s", "int64", "bytes ÷ time"),
    ),
    brief=("calls", "bytes", "total_ns", "bytes_per_s"),
)


def compute(trace: Trace) -> Result:
    copies = trace.copies
    chosen, moved = _chosen(trace, Kind.COPY, len(copies)), np.flatnonzero(migrations(trace))
    chosen[moved] = selected(trace, copies["process"][moved], copies["start_ns"][moved])
    early, copies = _early(trace, copies, moved)[chosen], copies.take(chosen)
    used = ~outer_migrations(trace)[chosen]
    findings = (
        *copy_findings(trace, copies, early),
        *migration_findings(trace, copies.take(used), early[used]),
        *outer_finding(trace, copies, chosen),
    )
    return Result(
        {"copies": copies_by_kind(trace, copies), "sets": _sets(trace)},
        findings,
        notes=_notes(trace, copies),
    )


def _chosen(trace: Trace, kind: Kind, rows: int) -> Mask:
    """True for the selected operations among the rows of the table of that kind."""
    ops = operations(trace)
    of_kind = ops.kind == kind
    chosen = np.zeros(rows, bool)
    chosen[ops.row[of_kind]] = selected_operations(trace)[of_kind]
    return chosen


def _notes(trace: Trace, copies: Table) -> tuple[str, ...]:
    """The source of the link's rate: no recording says how a GPU is connected."""
    crosses = copies.texts("direction").isin(OVER_THE_LINK)
    devices = groups.different(copies["device"][crosses])
    links = [peaks(trace)[device].get("link") for device in devices]
    notes = {
        f"link_pct is relative to {units.quantity('bytes_per_s', link.value)} per direction "
        f"({link.source})."
        for link in links
        if link
    }
    by_data_sheet = any(link and link.source != GIVEN for link in links)
    unknown = None in links
    if unknown:
        notes.add("link_pct is absent where the data sheet of the GPU is unknown.")
    if not notes:
        return ()
    connection = (
        "The trace does not say how the GPU is connected: pass --peak link=BYTES_PER_S."
        if by_data_sheet or unknown
        else ""
    )
    return (" ".join(filter(None, (*sorted(notes), connection))),)


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
    rate = bytes_per_s(size, time)
    return Table(
        SETS.columns, {"calls": calls, "bytes": size, "total_ns": time, "bytes_per_s": rate}
    )


def _early(trace: Trace, copies: Table, moved: Integers) -> Mask:
    """True for the copies of warm-up and start-up; `moved` are the rows of page migrations."""
    early: Mask = copies["start_ns"] < warm_up_end_ns(trace)
    warm, ops = operations_in_warm_up_ranges(trace), operations(trace)
    copied = ops.kind == Kind.COPY
    if warm is not None:
        early[ops.row[copied]] |= warm[copied]
        early[moved] |= in_warm_up_range(trace, copies["process"][moved], copies["start_ns"][moved])
    rows = ops.row[copied]
    early[rows] |= copies["start_ns"][rows] < _compute_begins_ns(trace)[copies["device"][rows]]
    return early


def _compute_begins_ns(trace: Trace) -> Integers:
    """When each device has done a twentieth of its kernel time; its start-up is over by then.

    A program uploads its weights and data before it computes; without steps nothing else tells
    these copies from those of a loop. The least int64 for a device without kernels.
    """
    begins = np.full(len(trace.devices), np.iinfo(np.int64).min)
    for device, compute in compute_time(trace).items():
        so_far = np.cumsum(compute.length)
        if len(so_far):
            begins[device] = compute.start[np.searchsorted(so_far, _START_UP_FRACTION * so_far[-1])]
    return begins


ANALYSIS = Analysis(
    name="memory-copies",
    title="Memory copies",
    question="What was copied, how fast, and did it block the CPU?",
    needs=("copies",),
    tables=(COPIES, SETS),
    compute=compute,
    charts=(
        Chart(
            "bars",
            "copies",
            "Copy time by direction and host memory",
            "direction",
            "total_ns",
            stack="host_memory",
        ),
    ),
)
