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
    chosen_copies,
    chosen_rows,
    copies_by_kind,
)
from traceview.analyses.memory_copies.findings import RULES
from traceview.facts.operations.operations import Kind
from traceview.facts.work.peaks import GIVEN, bytes_per_s, peaks
from traceview.rules.engine import findings
from traceview.tables import Column, Table
from traceview.trace import Trace

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
    copies = chosen_copies(trace).copies
    return Result(
        {"copies": copies_by_kind(trace, copies), "sets": _sets(trace)},
        tuple(findings(trace, RULES)),
        notes=_notes(trace, copies),
    )


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
    sets = sets.take(chosen_rows(trace, Kind.SET, len(sets)))
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
