"""From the tables of an nsys export to the tables of a Trace, one function per table.

Each function returns staged columns, final except for the numbers of processes, threads and GPUs,
which `Owners` settles when all tables have been read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview import groups
from traceview.tables import NULL, Array, Integers, Texts, constant, thrifty
from traceview.trace.nsys.names import (
    MIGRATION_CAUSES,
    UNNAMED,
    Names,
    copy_directions,
    filled,
    first_of,
    meanings,
    memory_kinds,
    memory_operations,
    severities,
    without_version,
)
from traceview.trace.nsys.processes import ABSENT, PROCESS_BITS, Codes, Owners
from traceview.trace.nsys.rows import INT32, Export, ExportTable, Rows, Staged
from traceview.trace.sqlite.file import Database

_WHERE = ("globalPid", "correlationId", "graphNodeId")
_ON_STREAM = ("start", "end", "deviceId", "contextId", "streamId")
_GRID = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory", "sharedMemoryExecuted")
# From schema 3.24 (nsys 2025.5) on.
_CLUSTER = ("clusterX", "clusterY", "clusterZ")
KERNELS = ExportTable(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    (*_ON_STREAM, "demangledName"),
    (
        *(*_WHERE, "shortName", "mangledName", *_GRID, "registersPerThread", *_SHARED, *_CLUSTER),
        *("maxActiveClusters", "greenContextId"),
    ),
)
COPIES = ExportTable(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    (*_ON_STREAM, "bytes", "copyKind"),
    (*_WHERE, "srcKind", "dstKind", "migrationCause"),
)
SETS = ExportTable("CUPTI_ACTIVITY_KIND_MEMSET", (*_ON_STREAM, "bytes"), _WHERE)
GRAPH_LAUNCHES = ExportTable(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    _ON_STREAM,
    ("globalPid", "correlationId", "graphId", "graphExecId"),
)
API_CALLS = ExportTable(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    ("start", "end", "nameId"),
    ("globalTid", "correlationId", "callchainId", "eventClass"),
)
MEMORY_EVENTS = ExportTable(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    ("start", "bytes", "memoryOperationType"),
    ("globalPid", "deviceId", "memKind", "correlationId"),
)
PROFILER_OVERHEADS = ExportTable("PROFILER_OVERHEAD", ("start", "end"), ("globalTid", "nameId"))
CUPTI_OVERHEADS = ExportTable(
    "CUPTI_ACTIVITY_KIND_OVERHEAD", ("start", "end"), ("globalTid", "nameId", "overheadType")
)
DIAGNOSTICS = ExportTable("DIAGNOSTIC_EVENT", ("timestamp",), ("severity", "globalPid"), ("text",))

# CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL: the launch queue was full, which blocked the CPU.
QUEUE_FULL = 8
# Rows of this eventClass repeat a call to carry its call chain (--cudabacktrace).
BACKTRACE_CLASS = 67


class Reader:
    """Shared state of this module's functions: the open export, its names, processes and GPUs."""

    def __init__(self, export: Export) -> None:
        self.export = export
        self.names = Names(export.database)
        self.owners = Owners()


def kernels(reader: Reader) -> Staged | None:
    rows = reader.export.rows(KERNELS)
    if rows is None:
        return None
    staged = _on_stream(reader, rows)
    name = filled(reader.names.texts(rows.numbers("demangledName")), UNNAMED)
    staged["name"] = name
    short = reader.names.texts(rows.numbers("shortName"))
    staged["short_name"] = first_of(short, name)
    staged["mangled_name"] = reader.names.texts(rows.numbers("mangledName"))
    for axis in _GRID:
        staged[f"{axis[:-1]}_{axis[-1].lower()}"] = rows.amount(axis)
    staged["registers_per_thread"] = rows.amount("registersPerThread")
    staged["static_shared_memory_bytes"] = rows.amount("staticSharedMemory")
    staged["dynamic_shared_memory_bytes"] = rows.amount("dynamicSharedMemory")
    staged["shared_memory_config_bytes"] = _positive(rows, "sharedMemoryExecuted")
    staged["cluster_blocks"] = _cluster_blocks(rows)
    staged["max_active_clusters"] = _positive(rows, "maxActiveClusters")
    staged["sm_count"] = _green_sms(reader, rows)
    staged["graph_node_id"] = _graph_node(rows)
    return staged


def _green_sms(reader: Reader, rows: Rows) -> Codes:
    """SMs of the green context of each kernel; absent outside of one, and where unknown."""
    context = thrifty(rows.integer("greenContextId", 0))
    if context.strides == (0,) and not context[:1].any():
        return constant(ABSENT, len(rows), np.int32)
    result = np.full(len(rows), ABSENT, np.int32)
    of_green = green_contexts(reader.export.database)
    inside = np.flatnonzero(context > 0)
    owner = rows.integer("globalPid", 0)[inside] >> 24 & PROCESS_BITS
    each = groups.group(owner, context[inside])
    keys = zip(owner[each.first].tolist(), context[inside][each.first].tolist(), strict=True)
    result[inside] = np.array([of_green.get(key, ABSENT) for key in keys], np.int32)[each.ids]
    return result


def green_contexts(database: Database) -> dict[tuple[int, int], int]:
    """SMs of each green context, by process id and context id. From schema 3.30 on."""
    names = ("processId", "contextId", "isGreenContext", "numMultiprocessors")
    return {
        (int(process) & PROCESS_BITS, int(context)): int(sms)
        for process, context, green, sms in database.lines("TARGET_INFO_CUDA_CONTEXT_INFO", names)
        if green and isinstance(process, int) and isinstance(context, int)
        if isinstance(sms, int) and 0 < sms < INT32.max
    }


def _positive(rows: Rows, name: str) -> Codes:
    """A column of quantities; absent where 0 or less, which means unknown."""
    if rows.numbers(name).is_absent:
        return constant(ABSENT, len(rows), np.int32)
    values = rows.amount(name)
    return np.where(rows.null(name) | (values <= 0), np.int32(ABSENT), values)


def _cluster_blocks(rows: Rows) -> Codes:
    """Blocks per cluster; absent if the export has no cluster columns."""
    if rows.numbers(_CLUSTER[0]).is_absent:
        return constant(ABSENT, len(rows), np.int32)
    sides = [np.maximum(rows.amount(name), 1).astype(np.float64) for name in _CLUSTER]
    blocks = np.minimum(np.prod(sides, axis=0), INT32.max)
    return np.where(rows.null(_CLUSTER[0]), ABSENT, blocks).astype(np.int32)


def copies(reader: Reader) -> Staged | None:
    rows = reader.export.rows(COPIES)
    if rows is None:
        return None
    kinds = memory_kinds(reader.export.database)
    directions = copy_directions(reader.export.database)
    return {
        **_on_stream(reader, rows),
        "bytes": rows.nullable("bytes"),
        "direction": meanings(rows.integer("copyKind"), directions),
        "source_memory": meanings(rows.integer("srcKind", NULL), {**kinds, NULL: "unknown"}),
        "destination_memory": meanings(rows.integer("dstKind", NULL), {**kinds, NULL: "unknown"}),
        "migration_cause": _migration_causes(rows),
        "graph_node_id": _graph_node(rows),
    }


def _migration_causes(rows: Rows) -> Texts:
    """Causes of page migrations; absent for copies that the program requested."""
    cause = rows.integer("migrationCause", 0)
    labels = meanings(cause, MIGRATION_CAUSES)
    return Texts(np.where(cause == 0, np.int32(-1), labels.codes), labels.values)


def sets(reader: Reader) -> Staged | None:
    rows = reader.export.rows(SETS)
    if rows is None:
        return None
    return {
        **_on_stream(reader, rows),
        "bytes": rows.nullable("bytes"),
        "graph_node_id": _graph_node(rows),
    }


def graph_launches(reader: Reader) -> Staged | None:
    rows = reader.export.rows(GRAPH_LAUNCHES)
    if rows is None:
        return None
    return {
        **_on_stream(reader, rows),
        "graph_id": rows.integer("graphId"),
        "graph_exec_id": rows.integer("graphExecId"),
    }


def _on_stream(reader: Reader, rows: Rows) -> Staged:
    process = reader.owners.processes(rows)
    return {
        **rows.span(),
        "process": process,
        "device": reader.owners.devices(rows, process),
        "context_id": rows.identity("contextId"),
        "stream_id": rows.identity("streamId"),
        "correlation_id": rows.nullable("correlationId"),
    }


def _graph_node(rows: Rows) -> Integers:
    nodes = rows.nullable("graphNodeId")
    if nodes.strides == (0,):
        return nodes if nodes[:1].any() else constant(NULL, len(nodes), np.int64)
    none = nodes == 0
    return np.where(none, NULL, nodes) if none.any() else nodes


def api_calls(reader: Reader) -> Staged | None:
    rows = reader.export.rows(API_CALLS)
    if rows is None:
        return None
    repeats = rows.cells("eventClass") == BACKTRACE_CLASS
    calls = rows.where(~repeats) if repeats.any() else rows
    thread, process = reader.owners.threads(calls)
    staged: Staged = {
        **calls.span(),
        "thread": thread,
        "process": process,
        "correlation_id": calls.nullable("correlationId"),
        "name": _call_names(reader.names, calls),
        "callchain_id": calls.nullable("callchainId"),
    }
    if repeats.any():
        staged["callchain_id"] = _with_callchains(reader, calls, rows.where(repeats), process)
    return staged


def _call_names(names: Names, calls: Rows) -> Texts:
    texts = filled(names.texts(calls.numbers("nameId")), UNNAMED)
    return texts.map([without_version(value) for value in texts.values])


def _with_callchains(reader: Reader, calls: Rows, repeats: Rows, process: Codes) -> Integers:
    """The call-chain id of each call, if absent that of the row that repeats it."""
    _, owner = reader.owners.threads(repeats)
    chains = repeats.nullable("callchainId")
    rows = matched(
        process, calls.nullable("correlationId"), owner, repeats.nullable("correlationId")
    )
    own = calls.nullable("callchainId")
    take = (rows >= 0) & (own == NULL)
    return np.where(take, chains[rows], own)


def matched(process: Codes, correlation: Integers, owner: Codes, key: Integers) -> Integers:
    """For each row, the last row of (`owner`, `key`) equal to (process, correlation id), or −1."""
    if not len(key):
        return np.full(len(process), -1, np.int64)
    wanted, keys = _joint(process, correlation), _joint(owner, key)
    order = np.argsort(keys, kind="stable")
    row = order[np.searchsorted(keys[order], wanted, side="right") - 1]
    # Compare the ids themselves: joint keys of very large ids may collide.
    same = (owner[row] == process) & (key[row] == correlation) & (correlation != NULL)
    return np.where(same, row, -1)


def _joint(process: Codes, correlation: Integers) -> Integers:
    return (process.astype(np.int64) << 40) ^ correlation


def memory_events(reader: Reader) -> Staged | None:
    rows = reader.export.rows(MEMORY_EVENTS)
    if rows is None:
        return None
    process = reader.owners.processes(rows)
    operations = memory_operations(reader.export.database)
    kinds = memory_kinds(reader.export.database)
    return {
        "time_ns": rows.nullable("start"),
        "process": process,
        "device": reader.owners.devices(rows, process),
        "bytes": rows.nullable("bytes"),
        "operation": meanings(rows.integer("memoryOperationType"), operations),
        "memory": meanings(rows.integer("memKind", NULL), {**kinds, NULL: "unknown"}),
        "correlation_id": rows.nullable("correlationId"),
    }


def overheads(reader: Reader) -> Staged | None:
    parts = [_overheads(reader, source) for source in (PROFILER_OVERHEADS, CUPTI_OVERHEADS)]
    tables = [part for part in parts if part is not None]
    return (
        {name: _stacked([part[name] for part in tables]) for name in tables[0]} if tables else None
    )


def _overheads(reader: Reader, source: ExportTable) -> Staged | None:
    rows = reader.export.rows(source)
    if rows is None:
        return None
    known = ~rows.null("globalTid")
    thread = np.full(len(rows), ABSENT, np.int32)
    process = thread.copy()
    thread[known], process[known] = reader.owners.threads(rows.where(known))
    names = reader.names.texts(rows.numbers("nameId"))
    kind = "profiler" if source is PROFILER_OVERHEADS else "cupti"
    known_kinds = {QUEUE_FULL: "queue-full"} if kind == "cupti" else {}
    types = rows.integer("overheadType").tolist()
    return {
        **rows.span(),
        "thread": thread,
        "process": process,
        "name": filled(names, UNNAMED),
        "kind": Texts.of([known_kinds.get(number, kind) for number in types]),
    }


def _stacked(parts: Sequence[Array | Texts]) -> Array | Texts:
    arrays = [part for part in parts if not isinstance(part, Texts)]
    if arrays:
        return np.concatenate(arrays)
    return Texts.of([text for part in parts if isinstance(part, Texts) for text in part.decode()])


def diagnostics(reader: Reader) -> Staged | None:
    rows = reader.export.rows(DIAGNOSTICS)
    if rows is None:
        return None
    levels = severities(reader.export.database)
    return {
        "time_ns": rows.integer("timestamp"),
        "severity": meanings(rows.integer("severity"), levels),
        "text": filled(rows.texts("text"), ""),
        "process_id": _process_ids(rows),
    }


def _process_ids(rows: Rows) -> Integers:
    """Process ids of the operating system; absent for messages about no process (globalPid 0)."""
    number = rows.integer("globalPid", 0) >> 24 & 0xFFFFFF
    return np.where(number == 0, NULL, number)
