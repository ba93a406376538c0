"""One rank of a recording that holds several, as a trace of its own."""

from __future__ import annotations

from dataclasses import replace

from traceview.ranks.extraction.owners import rank_owners
from traceview.tables import Table
from traceview.trace import Trace
from traceview.trace.model import Facts

_PROCESS = "process"
# Other tables refer to its rows.
_THREADS = "threads"


def rank_traces(trace: Trace) -> list[Trace]:
    """The trace of each rank, in the order of `rank_owners`: that of its process.

    A rank of a process with several GPUs has the work on all of them.
    """
    owners = rank_owners(trace)
    if len({owner.process for owner in owners}) < 2:
        return [trace] * len(owners)
    by_process = {owner.process: process_trace(trace, owner.process) for owner in owners}
    return [by_process[owner.process] for owner in owners]


def process_trace(trace: Trace, process: int) -> Trace:
    """The events of one process, a row of its table, and those of unknown processes."""
    tables = {
        name: table if name == _THREADS else _of_process(table, process)
        for name, table in trace.tables.items()
    }
    return replace(trace, tables=tables, _facts=Facts())


def _of_process(table: Table, process: int) -> Table:
    if _PROCESS not in {column.name for column in table.columns}:
        return table
    return table.take((table[_PROCESS] == process) | table.is_null(_PROCESS))
