"""From the tables of an nsys export to the tables of a Trace: work of GPUs, and calls of CUDA.

A function per table makes staged columns of its rows. They are final except for the numbers of
processes, threads and GPUs, which `Owners` settles when all tables have been read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from traceview.base import groups, tables
from traceview.base.tables import Array, Integers, Table, Texts
from traceview.base.tables.arrays import numbered
from traceview.traces.trace.nsys.processes import ABSENT, PROCESS_BITS, Codes, Owners, host_of
from traceview.traces.trace.nsys.rows import (
    COPY_DIRECTIONS,
    MEMORY_KINDS,
    MEMORY_OPERATIONS,
    MIGRATION_CAUSES,
    SEVERITIES,
    UNNAMED,
    Enumeration,
    Export,
    ExportTable,
    Names,
    Rows,
    filled,
    first_of,
    meanings,
)
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.staged import INT32, Staged, numbers_of

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


# Suffixes of the names of CUDA API functions: _v3020, _ptsz, _ptds.
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")


class Reader:
    """What the functions of all tables share: the open export, its names, processes and GPUs."""

    def __init__(self, export: Export) -> None:
        self.export = export
        self.names = Names(export.database)
        self.owners = Owners()

    def named(self, rows: Rows, column: str, default: str | None = UNNAMED) -> Texts:
        """The texts of a column of ids, with `default` (None: absent) where there is no id."""
        texts = self.names.texts(rows.numbers(column))
        return texts if default is None else filled(texts, default)

    def meaning(self, rows: Rows, column: str, of: Enumeration, absent: int = 0) -> Texts:
        """The meanings of a column of an enumeration."""
        return meanings(rows.integer(column, absent), of.of(self.export.database))

    def on_thread(self, rows: Rows) -> Staged:
        """Start, end, thread and process of calls and ranges."""
        thread, process = self.owners.threads(rows)
        return {**rows.span(), "thread": thread, "process": process}

    def on_stream(self, rows: Rows) -> Staged:
        """Start, end, place and correlation id of GPU work; CUPTI writes 0 for an unknown time."""
        process = self.owners.processes(rows)
        span = rows.span()
        unknown = (span["start_ns"] == 0) & (span["end_ns"] == 0)
        if unknown.any():
            span = {name: np.where(unknown, tables.NULL, times) for name, times in span.items()}
        return {
            **span,
            "process": process,
            "device": self.owners.devices(rows, process),
            "context_id": rows.identity("contextId"),
            "stream_id": rows.identity("streamId"),
            "correlation_id": rows.nullable("correlationId"),
        }


def kernels(reader: Reader, rows: Rows) -> Staged:
    name = reader.named(rows, "demangledName")
    return {
        **reader.on_stream(rows),
        "name": name,
        "short_name": first_of(reader.named(rows, "shortName", None), name),
        "mangled_name": reader.named(rows, "mangledName", None),
        **{f"{axis[:-1]}_{axis[-1].lower()}": rows.amount(axis) for axis in _GRID},
        "registers_per_thread": rows.amount("registersPerThread"),
        "static_shared_memory_bytes": rows.amount("staticSharedMemory"),
        "dynamic_shared_memory_bytes": rows.amount("dynamicSharedMemory"),
        "shared_memory_config_bytes": _positive(rows, "sharedMemoryExecuted"),
        "cluster_blocks": _cluster_blocks(rows),
        "max_active_clusters": _positive(rows, "maxActiveClusters"),
        "sm_count": _green_sms(reader, rows),
        "graph_node_id": _graph_node(rows),
    }


def _green_sms(reader: Reader, rows: Rows) -> Codes:
    """SMs of the green context of each kernel; absent outside of one, and where unknown."""
    context = tables.thrifty(rows.integer("greenContextId", 0))
    if context.strides == (0,) and not context[:1].any():
        return tables.constant(ABSENT, len(rows), np.int32)
    result = np.full(len(rows), ABSENT, np.int32)
    # SMs of each green context, by process id and context id. From schema 3.30 on.
    columns = ("processId", "contextId", "isGreenContext", "numMultiprocessors")
    lines = reader.export.database.lines("TARGET_INFO_CUDA_CONTEXT_INFO", columns)
    of_green = {
        (int(process) & PROCESS_BITS, int(context_id)): int(sms)
        for process, context_id, green, sms in lines
        if green and isinstance(process, int) and isinstance(context_id, int)
        if isinstance(sms, int) and 0 < sms < INT32.max
    }
    inside = np.flatnonzero(context > 0)
    owner = rows.integer("globalPid", 0)[inside] >> 24 & PROCESS_BITS
    pairs = groups.group(owner, context[inside])
    keys = zip(owner[pairs.first].tolist(), context[inside][pairs.first].tolist(), strict=True)
    result[inside] = np.array([of_green.get(key, ABSENT) for key in keys], np.int32)[pairs.ids]
    return result


def _positive(rows: Rows, name: str) -> Codes:
    """A column of quantities; absent where 0 or less, which means unknown."""
    if rows.numbers(name).is_absent:
        return tables.constant(ABSENT, len(rows), np.int32)
    values = rows.amount(name)
    return np.where(rows.null(name) | (values <= 0), np.int32(ABSENT), values)


def _cluster_blocks(rows: Rows) -> Codes:
    """Blocks per cluster; absent if the export has no cluster columns."""
    if rows.numbers(_CLUSTER[0]).is_absent:
        return tables.constant(ABSENT, len(rows), np.int32)
    sides = [np.maximum(rows.amount(name), 1).astype(np.float64) for name in _CLUSTER]
    blocks = np.minimum(np.prod(sides, axis=0), INT32.max)
    return np.where(rows.null(_CLUSTER[0]), ABSENT, blocks).astype(np.int32)


def copies(reader: Reader, rows: Rows) -> Staged:
    # Causes of page migrations; absent for copies that the program requested.
    cause = rows.integer("migrationCause", 0)
    causes = meanings(cause, MIGRATION_CAUSES)
    return {
        **reader.on_stream(rows),
        "bytes": rows.nullable("bytes"),
        "direction": reader.meaning(rows, "copyKind", COPY_DIRECTIONS),
        "source_memory": reader.meaning(rows, "srcKind", MEMORY_KINDS, tables.NULL),
        "destination_memory": reader.meaning(rows, "dstKind", MEMORY_KINDS, tables.NULL),
        "migration_cause": Texts(np.where(cause == 0, np.int32(-1), causes.codes), causes.values),
        "graph_node_id": _graph_node(rows),
    }


def sets(reader: Reader, rows: Rows) -> Staged:
    size = rows.nullable("bytes")
    return {**reader.on_stream(rows), "bytes": size, "graph_node_id": _graph_node(rows)}


def graph_launches(reader: Reader, rows: Rows) -> Staged:
    ids = {"graph_id": rows.integer("graphId"), "graph_exec_id": rows.integer("graphExecId")}
    return {**reader.on_stream(rows), **ids}


def _graph_node(rows: Rows) -> Integers:
    nodes = rows.nullable("graphNodeId")
    if nodes.strides == (0,):
        return nodes if nodes[:1].any() else tables.constant(tables.NULL, len(nodes), np.int64)
    none = nodes == 0
    return np.where(none, tables.NULL, nodes) if none.any() else nodes


def api_calls(reader: Reader, rows: Rows) -> Staged:
    repeats = rows.cells("eventClass") == BACKTRACE_CLASS
    calls = rows.where(~repeats) if repeats.any() else rows
    name = reader.named(calls, "nameId")
    staged: Staged = {
        **reader.on_thread(calls),
        "correlation_id": calls.nullable("correlationId"),
        "name": name.map([_VERSION.sub("", text) for text in name.values]),
        "callchain_id": calls.nullable("callchainId"),
    }
    if repeats.any():
        # A call without a chain has that of the row that repeats it.
        repeated = rows.where(repeats)
        row = matched(
            *(numbers_of(staged, "process"), numbers_of(staged, "correlation_id")),
            *(reader.owners.threads(repeated)[1], repeated.nullable("correlationId")),
        )
        chain = numbers_of(staged, "callchain_id")
        chains = repeated.nullable("callchainId")[row]
        staged["callchain_id"] = np.where((row >= 0) & (chain == tables.NULL), chains, chain)
    return staged


def matched(process: Codes, correlation: Integers, owner: Codes, key: Integers) -> Integers:
    """For each row, the last row of (`owner`, `key`) equal to (process, correlation id), or −1."""
    if not len(key):
        return np.full(len(process), -1, np.int64)
    wanted = (process.astype(np.int64) << 40) ^ correlation
    keys = (owner.astype(np.int64) << 40) ^ key
    order = np.argsort(keys, kind="stable")
    row = order[np.searchsorted(keys[order], wanted, side="right") - 1]
    # Compare the ids themselves: joint keys of very large ids may collide.
    same = (owner[row] == process) & (key[row] == correlation) & (correlation != tables.NULL)
    return np.where(same, row, -1)


def memory_events(reader: Reader, rows: Rows) -> Staged:
    process = reader.owners.processes(rows)
    return {
        "time_ns": rows.nullable("start"),
        "process": process,
        "device": reader.owners.devices(rows, process),
        "bytes": rows.nullable("bytes"),
        "operation": reader.meaning(rows, "memoryOperationType", MEMORY_OPERATIONS),
        "memory": reader.meaning(rows, "memKind", MEMORY_KINDS, tables.NULL),
        "correlation_id": rows.nullable("correlationId"),
    }


def overheads(reader: Reader) -> Staged | None:
    """Overheads of the profiler and of CUPTI, which the export has in a table each."""
    kinds: Mapping[str, tuple[ExportTable, dict[int, str]]] = {
        "profiler": (PROFILER_OVERHEADS, {}),
        "cupti": (CUPTI_OVERHEADS, {QUEUE_FULL: "queue-full"}),
    }
    parts: list[Staged] = []
    for kind, (source, by_type) in kinds.items():
        rows = reader.export.rows(source)
        if rows is None:
            continue
        has_thread = ~rows.null("globalTid")
        thread = np.full(len(rows), ABSENT, np.int32)
        process = thread.copy()
        thread[has_thread], process[has_thread] = reader.owners.threads(rows.where(has_thread))
        labels = [by_type.get(value, kind) for value in rows.integer("overheadType").tolist()]
        named = {"name": reader.named(rows, "nameId"), "kind": Texts.of(labels)}
        parts.append({**rows.span(), "thread": thread, "process": process, **named})
    return stacked(parts)


def stacked(parts: Sequence[Staged]) -> Staged | None:
    """The rows of all parts, which have the same columns; None without a part."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return {name: _stacked([part[name] for part in parts]) for name in parts[0]}


def _stacked(columns: Sequence[Array | Texts]) -> Array | Texts:
    arrays = [column for column in columns if not isinstance(column, Texts)]
    if arrays:
        return np.concatenate(arrays)
    texts = [column.decode() for column in columns if isinstance(column, Texts)]
    return Texts.of([text for column in texts for text in column])


def diagnostics(reader: Reader, rows: Rows) -> Staged:
    # Process ids of the operating system; absent for messages about no process (globalPid 0).
    process = rows.integer("globalPid", 0) >> 24 & PROCESS_BITS
    return {
        "time_ns": rows.integer("timestamp"),
        "severity": reader.meaning(rows, "severity", SEVERITIES),
        "text": filled(rows.texts("text"), ""),
        "process_id": np.where(process == 0, tables.NULL, process),
    }


# Sampled GPU metrics, limited to those that the analyses use.

METRIC_SAMPLES = ExportTable("GPU_METRICS", ("timestamp", "typeId", "metricId", "value"))
# Matched by name: ids differ between metric sets.
METRICS = {
    "dram-read": re.compile(r"DRAM Read \w+ \[Throughput %\]"),
    "dram-write": re.compile(r"DRAM Write \w+ \[Throughput %\]"),
}
_GPU_BITS = 0xFF


def gpu_metrics(rows: Rows, database: Database, devices: Table) -> Staged:
    """Samples of METRICS in time order. Host and GPU are bits of the type id."""
    lines = database.lines("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    metrics_of: dict[int, dict[int, int]] = {}
    for type_id, metric_id, label in lines:
        if isinstance(type_id, int) and isinstance(metric_id, int) and isinstance(label, str):
            for code, pattern in enumerate(METRICS.values()):
                if pattern.fullmatch(label):
                    metrics_of.setdefault(type_id, {})[metric_id] = code
    keys = zip(devices["host_id"].tolist(), devices["device_id"].tolist(), strict=True)
    device_of = {key: row for row, key in enumerate(keys)}
    types, type_code = numbered(rows.integer("typeId"))
    metric, device = (np.full(len(rows), -1, np.int32) for _ in range(2))
    for place, type_id in enumerate(types.tolist()):
        of_type = type_code == place
        device[of_type] = device_of.get((host_of(type_id), type_id & _GPU_BITS), -1)
        for metric_id, code in metrics_of.get(type_id, {}).items():
            metric[of_type & (rows.integer("metricId") == metric_id)] = code
    kept = (metric >= 0) & (device >= 0)
    time = rows.nullable("timestamp")[kept]
    order = np.argsort(time, kind="stable")
    value = rows.integer("value")[kept].clip(0, 100).astype(np.int16)
    return {
        "time_ns": time[order],
        "device": device[kept][order],
        "metric": Texts(metric[kept][order], tables.object_array(list(METRICS))),
        "value_pct": value[order],
    }
