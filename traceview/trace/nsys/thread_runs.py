"""When threads ran on a CPU: the scheduling events of an nsys export (--cpuctxsw)."""

from __future__ import annotations

import numpy as np

from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader

SCHEDULING = ExportTable("SCHED_EVENTS", ("start", "isSchedIn", "globalTid"))


def thread_runs(reader: Reader) -> Staged | None:
    """Runs of the threads that other tables speak of: the recorder sees the whole system.

    Only between an event out and the next one in is a thread known to be off the CPU. What lies
    between any other two events of a thread counts as a run, so that a lost event invents no
    absence.
    """
    rows = reader.export.rows(SCHEDULING)
    if rows is None:
        return None
    rows = rows.where(reader.owners.has_threads(rows))
    thread, process = reader.owners.threads(rows)
    time, enters = rows.integer("start"), rows.integer("isSchedIn") != 0
    order = np.lexsort((time, thread))
    thread, process = thread[order], process[order]
    time, enters = time[order], enters[order]
    same = thread[1:] == thread[:-1]
    runs = np.flatnonzero(same & ~(~enters[:-1] & enters[1:]))
    # What leaves ran until then, and what enters runs from then on, though no more is known.
    first = np.flatnonzero(np.append(True, ~same)[: len(time)] & ~enters)
    last = np.flatnonzero(np.append(~same, True)[: len(time)] & enters)
    each = np.concatenate([runs, first, last])
    return {
        "start_ns": np.concatenate([time[runs], time[first] - 1, time[last]]),
        "end_ns": np.concatenate([time[runs + 1], time[first], time[last] + 1]),
        "thread": thread[each],
        "process": process[each],
    }
