"""One rank of a recording that holds several, as a trace of its own."""

from __future__ import annotations

from dataclasses import replace

from traceview.ranks.extraction.owners import rank_owners
from traceview.tables import Table
from traceview.trace import Trace
from traceview.trace.model import Facts

_PROCESS = "process"
# Kept whole, because other tables refer to its rows.
_THREADS = "threads"


def rank_traces(trace: Trace) -> list[Trace]:
    """The trace of each rank's process, in the order of `rank_owners`.

    If the process uses several GPUs, the trace has the work on all of them.
    """
    owners = rank_owners(trace)
    if len({owner.process for owner in owners}) < 2:
        return [trace] * len(owners)
    by_process = {owner.process: process_trace(trace, owner.process) for owner in owners}
    return [by_process[owner.process] for owner in owners]


def process_trace(trace: Trace, process: int) -> Trace:
    """A trace of one process (a row of processes), with events of unknown processes too."""
    tables = {
        name: table if name == _THREADS else _of_process(table, process)
        for name, table in trace.tables.items()
    }
    return replace(trace, tables=tables, _facts=Facts())


def _of_process(table: Table, process: int) -> Table:
    if _PROCESS not in {column.name for column in table.columns}:
        return table
    return table.take((table[_PROCESS] == process) | table.is_null(_PROCESS))
