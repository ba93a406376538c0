"""What threads of the CPU did, in an nsys export: waits, OS calls, scheduling, native stacks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview.base import groups
from traceview.base.tables import NULL, Integers, Mask, Texts, object_array
from traceview.traces.trace.nsys.processes import ABSENT
from traceview.traces.trace.nsys.rows import JIT_OPERATIONS, SYNC_KINDS, ExportTable, Rows, first_of
from traceview.traces.trace.nsys.tables import Reader, matched
from traceview.traces.trace.sqlite.row_reader import Numbers
from traceview.traces.trace.staged import Staged, numbers_of

# C and C++ call chains of CUDA calls.

CALLCHAINS = ExportTable("CUDA_CALLCHAINS", ("id", "symbol", "stackDepth"), ("module",))


def callchains(reader: Reader, rows: Rows) -> Staged:
    """Call-chain frames by chain, innermost first."""
    chain, depth = rows.integer("id"), rows.amount("stackDepth")
    order = np.lexsort((depth, chain))
    return {
        "callchain_id": chain[order],
        "depth": depth[order],
        "symbol": reader.named(rows, "symbol").take(order),
        "module": reader.named(rows, "module", None).take(order),
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
    "CUPTI_ACTIVITY_KIND_JIT", ("start", "end", "jitOperationType"), ("globalTid", "correlationId")
)


def host_functions(reader: Reader) -> Staged | None:
    """Host functions as run by streams, or by CPU threads if the export has no stream table."""
    rows = reader.export.rows(ON_STREAM)
    if rows is not None:
        process = reader.owners.processes(rows)
        device = reader.owners.devices(rows, process)
        stream = rows.nullable("streamId")
    else:
        rows = reader.export.rows(ON_THREAD)
        if rows is None:
            return None
        _, process = reader.owners.threads(rows)
        device, stream = np.full(len(rows), ABSENT, np.int32), np.full(len(rows), NULL)
    place: Staged = {"process": process, "device": device, "stream_id": stream}
    return {**rows.span(), **place, "correlation_id": rows.nullable("correlationId")}


def jit_compilations(reader: Reader, rows: Rows) -> Staged:
    """JIT compilations by the driver; loads and stores of its cache have their own operation."""
    # CUPTI leaves both times 0 if it could not measure them.
    rows = rows.where(rows.integer("start") > 0)
    return {
        **reader.on_thread(rows),
        "correlation_id": rows.nullable("correlationId"),
        "operation": reader.meaning(rows, "jitOperationType", JIT_OPERATIONS),
    }


# Intervals of threads on a CPU, from scheduling events (--cpuctxsw).

SCHEDULING = ExportTable("SCHED_EVENTS", ("start", "isSchedIn", "globalTid"))


def thread_runs(reader: Reader, rows: Rows) -> Staged:
    """Runs of the threads that occur in other tables; nsys records the whole system.

    A thread is known to be off the CPU only between a switch-out and the next switch-in. Any other
    interval between two of its events counts as a run, so that a lost event adds no off-CPU time.
    """
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
    row = np.concatenate([runs, first, last])
    return {
        "start_ns": np.concatenate([time[runs], time[first] - 1, time[last]]),
        "end_ns": np.concatenate([time[runs + 1], time[first], time[last] + 1]),
        "thread": thread[row],
        "process": process[row],
    }


# Calls of the OS runtime libraries (--trace=osrt).

OS_CALLS = ExportTable("OSRT_API", ("start", "end", "nameId"), ("globalTid", "callchainId"))


def os_calls(reader: Reader, rows: Rows) -> Staged:
    """Calls of the threads that occur in other tables, in file order."""
    rows = rows.where(reader.owners.has_threads(rows))
    # Numbers below 0 are stacks of OS calls, see `native_frames`; most calls have none.
    chain = rows.integer("callchainId")
    stack = np.where(chain > 0, -chain, NULL)
    return {**reader.on_thread(rows), "name": reader.named(rows, "nameId"), "stack": stack}


# Synchronizations, and the kind of wait of each.
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


def synchronizations(reader: Reader, rows: Rows, calls: Staged | None) -> Staged:
    """Synchronizations in file order; `calls` are the staged API calls, if recorded."""
    process = reader.owners.processes(rows)
    correlation, stream = rows.nullable("correlationId"), rows.nullable("streamId")
    kind = reader.meaning(rows, "syncType", SYNC_KINDS)
    no_event = kind.isin(["stream-wait-event"]) & (rows.integer("eventId") == NOTHING)
    stream_wait = Texts(np.where(no_event, np.int32(0), np.int32(-1)), object_array(["stream"]))
    kind = first_of(stream_wait, kind)
    if calls:
        # The kind that the API call of each row implies, absent without such a call, comes first.
        name = calls["name"]
        assert isinstance(name, Texts)
        of_call = name.map([KIND_OF_CALL.get(text) for text in name.values])
        waits = np.flatnonzero(of_call.codes >= 0)
        keys = (numbers_of(calls, column)[waits] for column in ("process", "correlation_id"))
        codes = np.append(of_call.codes[waits], np.int32(-1))[matched(process, correlation, *keys)]
        kind = first_of(Texts(codes, of_call.values), kind)
    return {
        **rows.span(),
        "process": process,
        "context_id": rows.identity("contextId"),
        "stream_id": np.where(stream == NOTHING, NULL, stream),
        "correlation_id": correlation,
        "kind": kind,
    }


# Stacks of native code: of sampled threads, and of longer OS runtime calls.
#
# nsys samples a thread only while it runs, and unwinds only one in several samples.

NATIVE_SAMPLES = ExportTable("COMPOSITE_EVENTS", ("id", "start"), ("globalTid",))
_FRAMES = ("id", "symbol", "stackDepth")
SAMPLED_FRAMES = ExportTable("SAMPLING_CALLCHAINS", _FRAMES, ("module", "unresolved"))
OS_FRAMES = ExportTable("OSRT_CALLCHAINS", _FRAMES, ("module", "unresolved"))
# Modules of entries that mark where a stack could not be unwound further.
_NO_MODULES = ("[Broken backtraces]", "[Unknown]", "[Max depth]")


def native_samples(reader: Reader, rows: Rows) -> Staged:
    """Samples of the processes that occur in other tables, of all if none does, in order of time.

    A thread that calls no CUDA, and so is in no other table, may be what the others wait for.
    """
    rows = rows.where(reader.owners.has_processes(rows))
    thread, process = reader.owners.threads(rows)
    time = rows.nullable("start")
    order = np.argsort(time, kind="stable")
    return {
        "time_ns": time[order],
        "process": process[order],
        "thread": thread[order],
        "stack": rows.integer("id").clip(0)[order],
    }


def native_frames(reader: Reader, found: Mapping[str, Staged | None]) -> Staged | None:
    """The frames of the stacks of native_samples and os_calls, both in `found`, innermost first.

    A sample with only its innermost frame counts as one without a stack, unless all samples are
    so: the function that called a library would be missing.
    """
    sampled = reader.export.rows(SAMPLED_FRAMES) if found["native_samples"] else None
    called = reader.export.rows(OS_FRAMES) if found["os_calls"] else None
    parts = [(rows, sign) for rows, sign in ((called, -1), (sampled, 1)) if rows is not None]
    if not parts:
        return None
    used = [numbers_of(staged, "stack") for staged in found.values() if staged is not None]
    stack = np.concatenate([sign * rows.integer("id") for rows, sign in parts])
    # True for the frames of samples with several frames; for all frames, if no sample has.
    _, which, counts = np.unique(stack, return_inverse=True, return_counts=True)
    several: Mask = counts[which] > 1
    kept = groups.isin(stack, np.concatenate(used)) & (
        (stack < 0) | (several if several[stack >= 0].any() else np.ones(len(stack), bool))
    )
    return _frames(reader, [rows for rows, _ in parts], stack, kept)


def _frames(reader: Reader, parts: list[Rows], stack: Integers, kept: Mask) -> Staged:
    def numbers(name: str) -> Numbers:
        return Numbers(np.concatenate([rows.integer(name, NULL) for rows in parts])[kept], None)

    def texts(name: str) -> Texts:
        ids = numbers(name)
        return reader.names.texts(Numbers(ids.values, ids.values == NULL))

    module, symbol = texts("module"), texts("symbol")
    resolved = numbers("unresolved").values != 1
    real = ~module.isin(_NO_MODULES)
    stack, depth = stack[kept], numbers("stackDepth").values
    order = np.lexsort((depth, stack))
    order = order[real[order]]
    named = np.where(resolved, symbol.codes, np.int32(-1))
    return {
        "stack": stack[order],
        "depth": depth[order].clip(0, 1 << 30).astype(np.int32),
        "function": Texts(named, symbol.values).take(order),
        "module": module.take(order),
    }
