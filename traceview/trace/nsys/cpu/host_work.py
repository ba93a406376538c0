"""Work of the CPU that CUDA itself starts: host functions in streams, and JIT compilation."""

from __future__ import annotations

import numpy as np

from traceview.tables import NULL
from traceview.trace.nsys.names import filled, jit_operations, meanings
from traceview.trace.nsys.processes import ABSENT
from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader

# From schema 3.30 (nsys 2026.5) on. A host function is in both tables: when its stream ran it, and
# when a CPU thread did.
ON_STREAM = ExportTable(
    "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH",
    ("start", "end", "deviceId", "contextId", "streamId"),
    ("globalPid", "correlationId"),
)
ON_THREAD = ExportTable(
    "CUDA_HOST_CALLBACK", ("start", "end"), ("globalTid", "correlationId", "nameId")
)
JIT = ExportTable(
    "CUPTI_ACTIVITY_KIND_JIT",
    ("start", "end", "jitOperationType"),
    ("globalTid", "correlationId"),
)


def host_functions(reader: Reader) -> Staged | None:
    """Host functions as run by streams, or by CPU threads if the export has no stream table."""
    rows = reader.export.rows(ON_STREAM)
    if rows is None:
        return _callbacks(reader)
    process = reader.owners.processes(rows)
    return {
        **rows.span(),
        "process": process,
        "device": reader.owners.devices(rows, process),
        "stream_id": rows.nullable("streamId"),
        "correlation_id": rows.nullable("correlationId"),
    }


def _callbacks(reader: Reader) -> Staged | None:
    rows = reader.export.rows(ON_THREAD)
    if rows is None:
        return None
    _, process = reader.owners.threads(rows)
    return {
        **rows.span(),
        "process": process,
        "device": np.full(len(rows), ABSENT, np.int32),
        "stream_id": np.full(len(rows), NULL),
        "correlation_id": rows.nullable("correlationId"),
    }


def jit_compilations(reader: Reader) -> Staged | None:
    """JIT compilations by the driver; loads and stores of its cache have their own operation."""
    rows = reader.export.rows(JIT)
    if rows is None:
        return None
    # CUPTI leaves both times 0 if it could not measure them.
    rows = rows.where(rows.integer("start") > 0)
    thread, process = reader.owners.threads(rows)
    kinds = jit_operations(reader.export.database)
    return {
        **rows.span(),
        "thread": thread,
        "process": process,
        "correlation_id": rows.nullable("correlationId"),
        "operation": filled(meanings(rows.integer("jitOperationType"), kinds), "unknown"),
    }
