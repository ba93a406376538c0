"""Intervals of threads on a CPU, from the scheduling events of an nsys export (--cpuctxsw)."""

from __future__ import annotations

import numpy as np

from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader

SCHEDULING = ExportTable("SCHED_EVENTS", ("start", "isSchedIn", "globalTid"))


def thread_runs(reader: Reader) -> Staged | None:
    """Runs of the threads that occur in other tables; nsys records the whole system.

    A thread is known to be off the CPU only between a switch-out and the next switch-in. Any other
    interval between two of its events counts as a run, so that a lost event adds no off-CPU time.
    """
    rows = reader.export.rows(SCHEDULING)
    if rows is None:
        return None
    rows = rows.where(reader.owners.has_threads(rows))
    thread, process = reader.owners.threads(rows)
    time, enters = rows.nullable("start"), rows.integer("isSchedIn") != 0
    order = np.lexsort((time, thread))
    thread, process = thread[order], process[order]
    time, enters = time[order], enters[order]
    same = thread[1:] == thread[:-1]
    runs = np.flatnonzero(same & ~(~enters[:-1] & enters[1:]))
    # The first switch-out ends, and the last switch-in begins, a run of unknown length: use 1 ns.
    first = np.flatnonzero(np.append(True, ~same)[: len(time)] & ~enters)
    last = np.flatnonzero(np.append(~same, True)[: len(time)] & enters)
    each = np.concatenate([runs, first, last])
    return {
        "start_ns": np.concatenate([time[runs], time[first] - 1, time[last]]),
        "end_ns": np.concatenate([time[runs + 1], time[first], time[last] + 1]),
        "thread": thread[each],
        "process": process[each],
    }
