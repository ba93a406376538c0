"""What threads of the CPU did, in an nsys export: waits, OS calls, host functions, scheduling."""

from __future__ import annotations

import numpy as np

from traceview.tables import NULL, Array, Mask, Texts, object_array
from traceview.trace.nsys.names import (
    UNNAMED,
    filled,
    first_of,
    jit_operations,
    meanings,
    sync_kinds,
)
from traceview.trace.nsys.native_samples import os_stacks
from traceview.trace.nsys.processes import ABSENT
from traceview.trace.nsys.rows import ExportTable, Staged
from traceview.trace.nsys.tables import Reader, matched

# C and C++ call chains of CUDA calls in an nsys export.

CALLCHAINS = ExportTable("CUDA_CALLCHAINS", ("id", "symbol", "stackDepth"), ("module",))


def callchains(reader: Reader) -> Staged | None:
    """Call-chain frames by chain, innermost first."""
    rows = reader.export.rows(CALLCHAINS)
    if rows is None:
        return None
    chain, depth = rows.integer("id"), rows.amount("stackDepth")
    order = np.lexsort((depth, chain))
    symbol = filled(reader.names.texts(rows.numbers("symbol")), UNNAMED)
    return {
        "callchain_id": chain[order],
        "depth": depth[order],
        "symbol": symbol.take(order),
        "module": reader.names.texts(rows.numbers("module")).take(order),
    }


# Work of the CPU that CUDA itself starts: host functions in streams, and JIT compilation.

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


# Intervals of threads on a CPU, from the scheduling events of an nsys export (--cpuctxsw).

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


# Calls of the OS runtime libraries in an nsys export (--trace=osrt).

OS_CALLS = ExportTable("OSRT_API", ("start", "end", "nameId"), ("globalTid", "callchainId"))


def os_calls(reader: Reader) -> Staged | None:
    """Calls of the threads that occur in other tables, in file order."""
    rows = reader.export.rows(OS_CALLS)
    if rows is None:
        return None
    rows = rows.where(reader.owners.has_threads(rows))
    thread, process = reader.owners.threads(rows)
    return {
        **rows.span(),
        "thread": thread,
        "process": process,
        "name": filled(reader.names.texts(rows.numbers("nameId")), UNNAMED),
        "stack": os_stacks(rows),
    }


# Synchronizations of an nsys export, and the kind of wait of each.
#
# The column `syncType` is unreliable. CUPTI and the export's own table ENUM_CUPTI_SYNC_TYPE
# define 1 event, 2 stream-wait-event, 3 stream, 4 context. But in exports of nsys 2025.3 (schema
# 3.20, with column `deprecatedSyncType`) the rows of cudaStreamSynchronize carry 2, like those of
# cudaStreamWaitEvent, and cudaDeviceSynchronize has no row at all. A CPU wait would then count as
# a GPU wait. So the API call of a row decides; if it was not recorded, an event wait without an
# event is a stream wait.

SYNCHRONIZATIONS = ExportTable(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    ("start", "end", "syncType"),
    ("globalPid", "contextId", "streamId", "correlationId", "eventId"),
)
KIND_OF_CALL = {
    "cudaEventSynchronize": "event",
    "cuEventSynchronize": "event",
    "cudaStreamWaitEvent": "stream-wait-event",
    "cuStreamWaitEvent": "stream-wait-event",
    "cudaStreamSynchronize": "stream",
    "cuStreamSynchronize": "stream",
    "cudaDeviceSynchronize": "context",
    "cuCtxSynchronize": "context",
}
# CUPTI_SYNCHRONIZATION_INVALID_VALUE, unsigned.
NOTHING = 0xFFFFFFFF


def synchronizations(reader: Reader, calls: Staged | None) -> Staged | None:
    """Synchronizations in file order; `calls` are the staged API calls, if recorded."""
    rows = reader.export.rows(SYNCHRONIZATIONS)
    if rows is None:
        return None
    process = reader.owners.processes(rows)
    correlation = rows.nullable("correlationId")
    stream = rows.nullable("streamId")
    staged: Staged = {
        **rows.span(),
        "process": process,
        "context_id": rows.identity("contextId"),
        "stream_id": np.where(stream == NOTHING, NULL, stream),
        "correlation_id": correlation,
    }
    numbered = meanings(rows.integer("syncType"), sync_kinds(reader.export.database))
    no_event = rows.integer("eventId") == NOTHING
    kinds = _without_event(numbered, no_event)
    staged["kind"] = first_of(_kinds_by_call(staged, calls), kinds) if calls else kinds
    return staged


def _without_event(kinds: Texts, no_event: Mask) -> Texts:
    """Reclassify event waits without an event as stream waits."""
    wrong = kinds.isin(["stream-wait-event"]) & no_event
    stream = Texts(np.where(wrong, np.int32(0), np.int32(-1)), object_array(["stream"]))
    return first_of(stream, kinds)


def _kinds_by_call(staged: Staged, calls: Staged) -> Texts:
    """The kind implied by the API call of each row; absent without such a call."""
    names = calls["name"]
    assert isinstance(names, Texts)
    of_call = names.map([KIND_OF_CALL.get(name) for name in names.values])
    waits = np.flatnonzero(of_call.codes >= 0)
    owner, key = _array(calls["process"])[waits], _array(calls["correlation_id"])[waits]
    process, correlation = _array(staged["process"]), _array(staged["correlation_id"])
    rows = matched(process, correlation, owner, key)
    codes = np.append(of_call.codes[waits], np.int32(-1))[rows]
    return Texts(codes, of_call.values)


def _array(values: Array | Texts) -> Array:
    assert not isinstance(values, Texts)
    return values
