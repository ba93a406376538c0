"""The machine of each process and GPU, where a trace holds several machines.

Process ids and the numbers of GPUs, contexts and streams repeat between machines. Rows of the
tables `processes`, `threads` and `devices` do not: everything is joined by these, and results name
the machine where ids alone are ambiguous.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.tables import NULL, Cell, Column, Integers
from traceview.trace import Trace, fact_without_ranges

HOST = Column("host_id", "int64", "machine, where the trace holds several", nullable=True)


@fact_without_ranges
def process_hosts(trace: Trace) -> Integers:
    """Host of each row of processes, absent where the trace has just one."""
    return _hosts_of(trace, "processes")


@fact_without_ranges
def device_hosts(trace: Trace) -> Integers:
    """Host of each row of devices, absent where the trace has just one."""
    return _hosts_of(trace, "devices")


def _hosts_of(trace: Trace, table: str) -> Integers:
    hosts = trace.table(table)["host_id"]
    every = np.concatenate((trace.processes["host_id"], trace.devices["host_id"]))
    return hosts if len(groups.different(every)) > 1 else np.full(len(hosts), NULL)


def gpu_cells(trace: Trace, device: int) -> dict[str, Cell]:
    """`device_id` and `host_id` of a row of devices."""
    number, host = int(trace.devices["device_id"][device]), int(device_hosts(trace)[device])
    return {"device_id": number, "host_id": None if host == NULL else host}
