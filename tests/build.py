"""Write a small, real nsys export from a few exact numbers, so that a test is checked by hand.

    trace = (
        Export()
        .range("step_0", 0, 100)
        .launch(call=(0, 2), kernel=(8, 20))
        .load(tmp_path)
    )

All times are nanoseconds. Processes and devices are small numbers, a thread is a number within its
process, of which 0 is the main one. Correlation ids count from 1 in every process, as they do in
real exports, so those of two processes collide.
"""

from __future__ import annotations

import html
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.export_file import ExportFile, Row
from tests.oracles.nsys_stats import (
    COPY_KINDS,
    DOMAIN_CREATED,
    DRIVER_CLASS,
    EVENT_TYPES,
    GRID,
    H200,
    MEMORY_KINDS,
    MEMORY_OPERATIONS,
    MIGRATION_CAUSES,
    MIGRATION_KINDS,
    QUEUE_FULL,
    RUNTIME_CLASS,
    SEVERITIES,
    SYNC_TYPES,
)
from traceview.base.tables import Column
from traceview.traces.trace import Trace
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import KERNELS_TABLE, packed
from traceview.traces.trace.schema import KERNEL_CODE

Span = tuple[int, int]
DAY_NS = 1_795_331_501_386_098_606
HOST = 1
STATIC_SCHEMA = 1 << 24
NVTX_TYPES = {"i": 5, "Q": 18, "N": 22}
_MESSAGE = {"NCCL communicator ID": (0, "Q"), "Message size [bytes]": (8, "N")}
_CREATED = {
    "NCCL communicator ID": (0, "Q"),
    "No. of ranks": (8, "i"),
    "Rank": (12, "i"),
    "CUDA device": (16, "i"),
}
NCCL_SCHEMAS: dict[str, tuple[int, dict[str, tuple[int, str]]]] = {
    "ncclCommInitRank": (0, _CREATED),
    "ncclCommInitRankConfig": (11, _CREATED),
    "ncclCommDestroy": (2, _CREATED),
    "ncclAllGather": (4, _MESSAGE),
    "ncclAllReduce": (5, {**_MESSAGE, "Reduction operation": (16, "i")}),
    "ncclBroadcast": (6, {**_MESSAGE, "Root": (16, "i")}),
    "ncclReduceScatter": (7, {**_MESSAGE, "Reduction operation": (16, "i")}),
    "ncclReduce": (8, {**_MESSAGE, "Root": (16, "i"), "Reduction operation": (20, "i")}),
    "ncclSend": (9, {**_MESSAGE, "Peer rank": (16, "i")}),
    "ncclRecv": (10, {**_MESSAGE, "Peer rank": (16, "i")}),
    "ncclAlltoAll": (16, _MESSAGE),
}
"""NCCL's number of the schema of a function, and its fields: (offset, type), as NCCL 2.28 has it.

Read in nvtx.h and nvtx_payload_schemas.h of NCCL, and in exports of nsys 2025.3 and 2026.2.
"""


def nccl_payload(function: str, payload: dict[str, int]) -> bytes:
    """The bytes of a payload, after the header that nsys puts before it."""
    schema, fields = NCCL_SCHEMAS[function]
    body = bytearray(8 * -(-max(o + (4 if k == "i" else 8) for o, k in fields.values()) // 8))
    for name, value in payload.items():
        offset, kind = fields[name]
        struct.pack_into("<i" if kind == "i" else "<Q", body, offset, value)
    header = struct.pack("<QQQQ", 1, STATIC_SCHEMA + schema, len(body), 32)
    return header + bytes(body)


def host_id(process: int) -> int:
    """The machine of a process: those from 101 on are on a second one, from 201 on a third."""
    return HOST + process // 100


def process_id(process: int) -> int:
    """The id that the operating system would have given: process 101 has the id of process 1."""
    return 1000 * (process % 100)


def global_pid(process: int) -> int:
    return host_id(process) << 48 | process_id(process) << 24


def global_tid(process: int, thread: int | None) -> int:
    return global_pid(process) | process_id(process) + (thread or 0)


def _declared(column: Column) -> str:
    kinds = {"text": ":T", "bytes": ":B"}
    return f"{column.name}{kinds.get(column.dtype, '')}{'' if column.nullable else '!'}"


def without(trace: Trace, *names: str) -> Trace:
    """The trace without these tables, as if they had not been recorded."""
    return trace.but(tables={n: table for n, table in trace.tables.items() if n not in names})


class Export(ExportFile):
    """An nsys SQLite export under construction: the tables of one schema version.

    Every table of that version is written, empty where nothing was added; see `drop`.
    """

    def __init__(self, schema: str = "3.20.3", *, registered_names: bool = False) -> None:
        """With `registered_names` the names of ranges go through StringIds, as `nvtx` does it."""
        super().__init__(schema)
        self._tables[KERNELS_TABLE] = " ".join(_declared(column) for column in KERNEL_CODE.columns)
        self._rows[KERNELS_TABLE] = []
        self._registered_names = registered_names
        self.program = "python3"
        self._correlations: dict[int, int] = {}
        self._domains: dict[str, int] = {}
        self._gpus: dict[int, dict[str, Any]] = {}
        self._unknown_gpus: set[int] = set()
        self._used: set[tuple[int, int]] = set()
        self._threads: set[tuple[int, int]] = set()

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        thread: int | None = None,
        process: int = 1,
        domain: str | None = None,
        kind: str = "push-pop",
        end_thread: int | None = None,
        payload: int | None = None,
    ) -> Self:
        """Add an NVTX range, or a mark (`end` None). `end_thread` ends a start/end range."""
        self._seen(process, thread)
        text = {"textId": self.string(name)} if self._registered_names else {"text": name}
        ended = None if end_thread is None else global_tid(process, end_thread)
        return self.raw(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=EVENT_TYPES[kind],
            globalTid=global_tid(process, thread),
            endGlobalTid=ended,
            domainId=self._domain(domain, process),
            int64Value=payload,
            **text,
        )

    def call(
        self,
        api: str,
        start: int,
        end: int,
        *,
        process: int = 1,
        thread: int | None = None,
        correlation: int | None = None,
        callchain: int | None = None,
        error: int = 0,
    ) -> Self:
        """Add a call of the CUDA runtime or driver."""
        self._seen(process, thread)
        return self.raw(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=RUNTIME_CLASS if api.startswith("cuda") else DRIVER_CLASS,
            globalTid=global_tid(process, thread),
            correlationId=correlation or self._next_correlation(process),
            nameId=self.string(api),
            callchainId=callchain,
            returnValue=error,
        )

    def chain(self, number: int, *symbols: str, module: str = "libtorch.so") -> Self:
        """Add a call chain, the innermost frame first; calls refer to its number."""
        for depth, symbol in enumerate(symbols):
            names = {"symbol": self.string(symbol), "module": self.string(module)}
            self.raw("CUDA_CALLCHAINS", id=number, stackDepth=depth, **names)
        return self

    def launch(
        self,
        call: Span,
        kernel: Span,
        *,
        stream: int = 7,
        device: int = 0,
        process: int = 1,
        thread: int | None = None,
        name: str = "k",
        api: str = "cudaLaunchKernel_v7000",
        correlation: int | None = None,
        **columns: Any,
    ) -> Self:
        """Add a launch call and the kernel it starts; `columns` are set on the kernel's row."""
        number = correlation or self._next_correlation(process)
        self.call(api, *call, process=process, thread=thread, correlation=number)
        where = {"stream": stream, "device": device, "process": process}
        return self.kernel_without_launch(kernel, name=name, correlation=number, **where, **columns)

    def launch_without_kernel(
        self, call: Span, *, api: str = "cudaLaunchKernel_v7000", **where: Any
    ) -> Self:
        """Add a launch call whose kernel the recording lost. `where` is that of `call`."""
        return self.call(api, *call, **where)

    def kernel_without_launch(
        self,
        kernel: Span,
        *,
        name: str = "k",
        stream: int = 7,
        device: int = 0,
        process: int = 1,
        correlation: int | None = None,
        **columns: Any,
    ) -> Self:
        """Add a kernel; without a `correlation`, one that no call can be found for."""
        names = {
            "demangledName": self.string(name),
            "shortName": self.string(name.partition("<")[0].partition("(")[0]),
        }
        return self._operation(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            kernel,
            (process, device, stream),
            correlation,
            **{**names, **GRID, "registersPerThread": 32, **columns},
        )

    def copy(
        self,
        call: Span | None,
        copy: Span,
        *,
        bytes: int = 1024,  # noqa: A002 - the quantity is a number of bytes
        kind: str = "H2D",
        source: str = "pageable",
        destination: str = "device",
        api: str = "cudaMemcpyAsync_v3020",
        stream: int = 7,
        device: int = 0,
        process: int = 1,
        thread: int | None = None,
    ) -> Self:
        """Add a copy and, unless `call` is None, the call that enqueued it."""
        return self._operation(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            copy,
            (process, device, stream),
            self._enqueued(api, call, process, thread),
            bytes=bytes,
            copyKind=COPY_KINDS[kind],
            srcKind=MEMORY_KINDS[source],
            dstKind=MEMORY_KINDS[destination],
        )

    def migration(
        self,
        copy: Span,
        *,
        bytes: int = 65536,  # noqa: A002 - the quantity is a number of bytes
        kind: str = "UVM H2D",
        cause: str = "page fault",
        device: int = 0,
        process: int = 1,
    ) -> Self:
        """Add pages of unified memory that the driver moved: no call enqueued them."""
        memory = MEMORY_KINDS["managed"], MEMORY_KINDS["device"]
        source, destination = memory if kind == "UVM H2D" else memory[::-1]
        return self._operation(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            copy,
            (process, device, 0),
            None,
            bytes=bytes,
            copyKind=MIGRATION_KINDS[kind],
            srcKind=source,
            dstKind=destination,
            migrationCause=MIGRATION_CAUSES[cause],
        )

    def set(
        self,
        call: Span | None,
        work: Span,
        *,
        bytes: int = 1024,  # noqa: A002 - the quantity is a number of bytes
        api: str = "cudaMemsetAsync_v3020",
        stream: int = 7,
        device: int = 0,
        process: int = 1,
        thread: int | None = None,
    ) -> Self:
        """Add a memory set and, unless `call` is None, the call that enqueued it."""
        number = self._enqueued(api, call, process, thread)
        where = (process, device, stream)
        return self._operation("CUPTI_ACTIVITY_KIND_MEMSET", work, where, number, bytes=bytes)

    def sync(
        self,
        api: str,
        start: int,
        end: int,
        *,
        sync_type: str | None = "stream",
        stream: int = 7,
        device: int = 0,
        process: int = 1,
        thread: int | None = None,
        callchain: int | None = None,
        event: int | None = None,
    ) -> Self:
        """Add a synchronizing call and, unless `sync_type` is None, the wait CUPTI reports."""
        number = self._next_correlation(process)
        where: dict[str, Any] = {"process": process, "thread": thread, "callchain": callchain}
        self.call(api, start, end, correlation=number, **where)
        if sync_type is None:
            return self
        return self.raw(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            start=start,
            end=end,
            # What CUPTI writes here is 0 in every process, whatever the device.
            deviceId=0,
            contextId=device + 1,
            streamId=stream,
            correlationId=number,
            globalPid=global_pid(process),
            syncType=SYNC_TYPES[sync_type],
            eventId=event,
        )

    def graph_launch(
        self,
        call: Span,
        nodes: list[Span],
        *,
        name: str = "k",
        names: Sequence[str] = (),
        process: int = 1,
        thread: int | None = None,
        **where: Any,
    ) -> Self:
        """Add a graph recorded node by node: kernels that share the launch's correlation id.

        They are all called `name` unless each has one of `names`.
        """
        number = self._enqueued("cudaGraphLaunch_v10000", call, process, thread)
        for node, kernel in enumerate(nodes, start=1):
            columns = {"graphNodeId": node, "process": process, **where}
            called = names[node - 1] if names else name
            self.kernel_without_launch(kernel, name=called, correlation=number, **columns)
        return self

    def graph_whole(
        self,
        call: Span,
        graph: Span,
        *,
        stream: int = 7,
        device: int = 0,
        process: int = 1,
        thread: int | None = None,
        graph_id: int = 1,
    ) -> Self:
        """Add a graph recorded as one piece, without its nodes."""
        number = self._enqueued("cudaGraphLaunch_v10000", call, process, thread)
        where, ids = (process, device, stream), {"graphId": graph_id, "graphExecId": graph_id}
        return self._operation("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", graph, where, number, **ids)

    def memory(
        self,
        time: int,
        operation: str = "allocation",
        *,
        bytes: int = 1024,  # noqa: A002 - the quantity is a number of bytes
        memory: str = "device",
        device: int = 0,
        process: int = 1,
        address: int = 4096,
        correlation: int | None = None,
    ) -> Self:
        """Add an allocation or a release of memory; `correlation` is that of its call."""
        self._used.add((process, device))
        return self.raw(
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
            start=time,
            globalPid=global_pid(process),
            deviceId=device,
            contextId=device + 1,
            address=address,
            bytes=bytes,
            memKind=MEMORY_KINDS[memory],
            memoryOperationType=MEMORY_OPERATIONS[operation],
            correlationId=correlation,
        )

    def gpu(self, device: int, **fields: Any) -> Self:
        """Describe a GPU, also one that nothing ran on; fields not given are an H200's."""
        self._gpus[device] = fields
        return self

    def gpu_unknown(self, device: int) -> Self:
        """Leave a GPU out of TARGET_INFO_GPU: work runs on it, and nothing describes it."""
        self._unknown_gpus.add(device)
        return self

    def named_thread(self, thread: int, name: str, *, process: int = 1) -> Self:
        """Give a thread a name, as torch does with those of autograd (`pt_autograd_0`)."""
        named = {"nameId": self.string(name), "globalTid": global_tid(process, thread)}
        return self.raw("ThreadNames", **named)

    def overhead(
        self,
        start: int,
        end: int,
        *,
        name: str = "CUDA profiling data flush overhead",
        kind: str = "profiler",
        process: int = 1,
        thread: int | None = None,
    ) -> Self:
        """Add time lost to the `profiler`, or (schema 3.24 on) to a launch `queue-full`."""
        where = {"globalTid": global_tid(process, thread), "nameId": self.string(name)}
        if kind == "profiler":
            return self.raw("PROFILER_OVERHEAD", start=start, end=end, **where)
        where["overheadType"] = QUEUE_FULL
        return self.raw("CUPTI_ACTIVITY_KIND_OVERHEAD", start=start, end=end, **where)

    def printed(self, text: str) -> Self:
        """Add what a program printed, one file of several."""
        self._tables["ProcessStreams"] = "contentId!"
        self._rows.setdefault("ProcessStreams", [])
        return self.raw("ProcessStreams", contentId=self.string(text))

    def off_cpu(
        self, *spans: Span, process: int = 1, thread: int | None = None, cpu: int = 0
    ) -> Self:
        """Take a thread off the CPU during these times: one scheduling event out, one in."""
        self._tables["SCHED_EVENTS"] = "start! cpu! isSchedIn! globalTid"
        self._rows.setdefault("SCHED_EVENTS", [])
        where = {"cpu": cpu, "globalTid": global_tid(process, thread)}
        for leaves, enters in spans:
            self.raw("SCHED_EVENTS", start=leaves, isSchedIn=0, **where)
            self.raw("SCHED_EVENTS", start=enters, isSchedIn=1, **where)
        return self

    def sampled(
        self,
        *samples: tuple[int, int, int],
        device: int = 0,
        names: tuple[str, str] = ("DRAM Read Bandwidth", "DRAM Write Bandwidth"),
    ) -> Self:
        """Add samples of device memory: time, per cent read, per cent written."""
        self._tables["GPU_METRICS"] = "rawTimestamp! timestamp! typeId! metricId! value!"
        self._tables["TARGET_INFO_GPU_METRICS"] = (
            "typeId! sourceId! typeName:T! metricId! metricName:T!"
        )
        for table in ("GPU_METRICS", "TARGET_INFO_GPU_METRICS"):
            self._rows.setdefault(table, [])
        kind = {"typeId": HOST << 48 | 1 << 32 | device}
        for number, name in enumerate((*names, "SMs Active"), 18):
            told = f"{name} [Throughput %]"
            self.raw("TARGET_INFO_GPU_METRICS", metricId=number, metricName=told, **kind)
        for time, *values in samples:
            for number, value in enumerate((*values, 100), 18):
                self.raw("GPU_METRICS", timestamp=time, metricId=number, value=value, **kind)
        return self

    def python_sample(
        self,
        time: int,
        *frames: tuple[str, int, str],
        thread: int | None = None,
        process: int = 1,
        state: str = "Running",
        domain: str = "Python Periodic Sampling",
    ) -> Self:
        """Add a Python stack as nsys stores it: (file, line, function), innermost first."""
        self._seen(process, thread)
        listed = [
            {
                "Function": self.string(html.escape(function)),
                "File": self.string(file),
                "Line": line,
            }
            for file, line, function in frames
        ]
        sample = {"Thread state ID": 1, "Thread state": state, "Frames count": len(frames)}
        return self.raw(
            "NVTX_EVENTS",
            start=time,
            eventType=EVENT_TYPES["mark"],
            globalTid=global_tid(process, thread),
            domainId=self._domain(domain, process),
            jsonText=json.dumps({domain: {**sample, "Frames": listed}}, separators=(",", ":")),
        )

    def source_line(self, file: str, line: int, text: str, *, around: bool = False) -> Self:
        """Add the text of a line, or of one around it, as `traceview record` stores them."""
        table = "TRACEVIEW_SOURCE_EXCERPTS" if around else "TRACEVIEW_SOURCE_LINES"
        self._tables[table] = "file:T! line! text:T!"
        self._rows.setdefault(table, [])
        return self.raw(table, file=file, line=line, text=text)

    def python_event(
        self,
        kind: str,
        start: int,
        end: int,
        *,
        at: tuple[str, int, str] = ("train.py", 1, "step"),
        source: str | None = None,
        reason: str | None = None,
        guards: int | None = None,
        process: int = 1,
        thread: int | None = None,
    ) -> Self:
        """Add what the program noted of Python or torch.compile, `at` (file, line, function)."""
        table = "TRACEVIEW_PYTHON_EVENTS"
        self._tables[table] = (
            "start! end! globalTid! line guards kind:T! file:T function:T source:T reason:T"
        )
        self._rows.setdefault(table, [])
        file, line, function = at
        return self.raw(
            table,
            start=start,
            end=end,
            globalTid=global_tid(process, thread),
            line=line,
            guards=guards,
            kind=kind,
            file=file,
            function=function,
            source=source,
            reason=reason,
        )

    def nccl(
        self,
        function: str,
        start: int,
        end: int,
        payload: dict[str, int] | None = None,
        *,
        stored: str = "blob",
        described: bool = True,
        process: int = 1,
        thread: int | None = None,
    ) -> Self:
        """Add a call of NCCL: a range in its domain, with its payload by the names of the fields.

        The payload is `stored` as a "blob", as "json", or as text "by id"; its schema may not be
        `described`.
        """
        self._seen(process, thread)
        domain = self._domain("NCCL", process)
        columns: dict[str, Any] = {}
        if payload is not None and stored == "blob":
            columns["binaryData"] = nccl_payload(function, payload)
            if described:
                self._describe_nccl(domain, function)
        elif payload is not None and stored == "json":
            columns["jsonText"] = json.dumps(payload)
        elif payload is not None:
            columns["jsonTextId"] = self.string(json.dumps(payload))
        return self.raw(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=EVENT_TYPES["push-pop"],
            globalTid=global_tid(process, thread),
            domainId=domain,
            textId=self.string(function),
            **columns,
        )

    def _describe_nccl(self, domain: int, function: str) -> None:
        table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
        self._tables[table] = (
            "domainId schemaId idx flags type name:T description:T arrayOrUnionDetail offset"
        )
        self._rows.setdefault(table, [])
        schema, fields = NCCL_SCHEMAS[function]
        for index, (name, (offset, kind)) in enumerate(fields.items()):
            # nsys leaves out an offset of 0.
            self.raw(
                table,
                domainId=domain,
                schemaId=STATIC_SCHEMA + schema,
                idx=index,
                type=NVTX_TYPES[kind],
                name=name,
                offset=offset or None,
            )

    def os_call(
        self,
        name: str,
        start: int,
        end: int,
        *frames: tuple[str, str | None],
        thread: int | None = None,
        process: int = 1,
    ) -> Self:
        """Add a call of the operating system's libraries, with its stack: (module, function)."""
        self._tables["OSRT_API"] = "start! end! globalTid nameId! callchainId"
        self._rows.setdefault("OSRT_API", [])
        return self.raw(
            "OSRT_API",
            start=start,
            end=end,
            globalTid=global_tid(process, thread),
            nameId=self.string(name),
            callchainId=self._chain("OSRT_CALLCHAINS", frames) if frames else 0,
        )

    def mpi_call(
        self,
        name: str,
        start: int,
        end: int,
        *,
        table: str | None = "P2P",
        thread: int | None = None,
        process: int = 1,
    ) -> Self:
        """Add a call of MPI: to a table of nsys, or as the range that an older one writes."""
        if table is None:
            return self.range(name, start, end, thread=thread, process=process, domain="MPI")
        named = f"MPI_{table}_EVENTS"
        self._tables[named] = "start! end! globalTid textId"
        self._rows.setdefault(named, [])
        where = {"globalTid": global_tid(process, thread), "textId": self.string(name)}
        return self.raw(named, start=start, end=end, **where)

    def native_sample(
        self,
        time: int,
        *frames: tuple[str, str | None],
        thread: int | None = None,
        process: int = 1,
    ) -> Self:
        """Add a sample of a running thread: (module, function), innermost first."""
        self._tables["COMPOSITE_EVENTS"] = "id! start! cpu threadState globalTid cpuCycles!"
        self._rows.setdefault("COMPOSITE_EVENTS", [])
        number = self._chain("SAMPLING_CALLCHAINS", frames)
        where = {"globalTid": global_tid(process, thread), "cpu": 0, "cpuCycles": 1}
        return self.raw("COMPOSITE_EVENTS", id=number, start=time, threadState=1, **where)

    def _chain(self, table: str, frames: Sequence[tuple[str, str | None]]) -> int:
        """The number of a new call chain, from 1 on."""
        self._tables[table] = "id! symbol! module! unresolved stackDepth!"
        rows = self._rows.setdefault(table, [])
        number = max((row["id"] for row in rows), default=0) + 1
        for depth, (module, function) in enumerate(frames):
            self.raw(
                table,
                id=number,
                symbol=self.string(function or f"0x7f{depth:04x}"),
                module=self.string(module),
                unresolved=int(function is None),
                stackDepth=depth,
            )
        return number

    def diagnostic(
        self, text: str, *, severity: str = "warning", time: int = 0, process: int | None = None
    ) -> Self:
        """Add a remark of the recorder on its own work, or on a process."""
        about = {} if process is None else {"globalPid": global_pid(process)}
        level = SEVERITIES[severity]
        row = {"timestamp": time, "severity": level, "source": 1, "text": text, **about}
        return self.raw("DIAGNOSTIC_EVENT", **row)

    def started(self, of_day_ns: int) -> Self:
        """Let the timeline begin at this time, in ns since the epoch."""
        self._tables["TARGET_INFO_SESSION_START_TIME"] = "utcEpochNs"
        self._rows["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": of_day_ns}]
        return self

    def driver(self, cuda_version: str, release: str = "6.8.0-generic") -> Self:
        """Let the machine have a driver of this version of CUDA, such as 12040, and this system."""
        self._tables["TARGET_INFO_SYSTEM_ENV"] = "name:T value:T"
        self._rows["TARGET_INFO_SYSTEM_ENV"] = [
            {"name": "CudaDriverVersion", "value": cuda_version},
            {"name": "SoftwareReleaseVersion", "value": release},
        ]
        return self

    def capture(self, name: str, value: str) -> Self:
        """Add an option of the recorder."""
        return self.raw("META_DATA_CAPTURE", name=name, value=value)

    def run(self, **values: str) -> Self:
        """Add what `traceview record` notes of a run."""
        self._tables["TRACEVIEW_RUN"] = "name:T! value:T"
        self._rows.setdefault("TRACEVIEW_RUN", [])
        for name, value in values.items():
            self.raw("TRACEVIEW_RUN", name=name, value=value)
        return self

    def code(
        self, name: str, ptx: str | None = None, cubin: bytes | None = None, **columns: Any
    ) -> Self:
        """Add a gathered kernel; `columns` are those of the table."""
        code = {"ptx": ptx.encode() if ptx else None, "cubin": cubin}
        packed_code = {key: packed(blob) if blob else None for key, blob in code.items()}
        told = {"arch": "sm_90", "signature": "[]", "constexprs": "{}", "options": "{}"}
        return self.raw(KERNELS_TABLE, name=name, **{**told, **packed_code, **columns})

    def load(self, folder: Path) -> Trace:
        """Write the file into `folder` and read it with traceview."""
        return load(self.write(folder / "built.sqlite"))

    def _operation(
        self,
        table: str,
        span: Span,
        where: tuple[int, int, int],
        correlation: int | None,
        **columns: Any,
    ) -> Self:
        process, device, stream = where
        self._used.add((process, device))
        return self.raw(
            table,
            start=span[0],
            end=span[1],
            deviceId=device,
            streamId=stream,
            correlationId=correlation,
            globalPid=global_pid(process),
            **{"contextId": device + 1} | columns,
        )

    def _enqueued(
        self, api: str, call: Span | None, process: int, thread: int | None
    ) -> int | None:
        if call is None:
            return None
        number = self._next_correlation(process)
        self.call(api, *call, process=process, thread=thread, correlation=number)
        return number

    def _next_correlation(self, process: int) -> int:
        self._correlations[process] = self._correlations.get(process, 0) + 1
        return self._correlations[process]

    def _seen(self, process: int, thread: int | None) -> None:
        self._threads.add((process, thread or 0))

    def _domain(self, name: str | None, process: int) -> int:
        if name is None:
            return 0
        if name not in self._domains:
            self._domains[name] = len(self._domains) + 1
            columns = {"text": name, "domainId": self._domains[name]}
            thread = {"globalTid": global_tid(process, 0)}
            self.raw("NVTX_EVENTS", start=0, eventType=DOMAIN_CREATED, **columns, **thread)
        return self._domains[name]

    def _described(self) -> dict[str, list[Row]]:
        """The tables that follow from what was added."""
        processes = sorted({p for p, _ in self._threads} | {p for p, _ in self._used})
        named = [(self.string(f"thread {t}"), global_tid(p, t)) for p, t in sorted(self._threads)]
        return {
            "ThreadNames": [{"nameId": name, "globalTid": tid} for name, tid in named],
            "PROCESSES": [
                {"globalPid": global_pid(p), "pid": process_id(p), "name": self.program}
                for p in processes
            ],
            "TARGET_INFO_GPU": self._gpu_rows(),
            "TARGET_INFO_CUDA_DEVICE": [
                {"gpuId": device, "cudaId": device, "pid": process_id(process)}
                for process, device in sorted(self._used)
            ],
        }

    def _gpu_rows(self) -> list[Row]:
        used = {(host_id(process), device) for process, device in self._used}
        devices = sorted(used | {(HOST, device) for device in self._gpus})
        return [
            {"vmId": host << 48, "id": d, "cuDevice": d, **H200, **self._gpus.get(d, {})}
            for host, d in devices
            if d not in self._unknown_gpus
        ]
