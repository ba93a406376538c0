"""Operations: kernels, copies, memsets and whole graphs of all devices, joined to their calls."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals
from traceview.base.compiled import library
from traceview.base.hardware.rates import SHARING_MEMORY
from traceview.base.records import record
from traceview.base.tables import (
    NULL,
    Array,
    Cell,
    ColumnRecord,
    Integers,
    Mask,
    RowNumbers,
    Table,
    joined,
    picked,
    row_numbers,
)
from traceview.traces.trace import Trace, fact_without_ranges, schema


class CallKind(IntEnum):
    """Kind of a call, as far as waiting and launching are concerned."""

    OTHER = 0
    LAUNCH = 1
    """Starts a kernel or a graph."""
    SYNCHRONIZE = 2
    """Blocks the host until GPU work is done."""
    COPY = 3
    """Copies and blocks the host until done: the calls without Async."""
    COPY_ASYNC = 4
    """Copies; blocks the host only where the host memory is pageable."""
    ALLOCATE = 5
    """Allocates or frees memory outside a pool; may wait for the device."""
    LOAD = 6
    """Loads, unloads or links device code."""
    LOOK_UP = 7
    """Looks up a kernel, and loads its code if loading is lazy."""
    GRAPH = 8
    """Prepares a CUDA graph for launching: instantiates, updates or uploads it."""


_RULES = {
    CallKind.LAUNCH: r"(cuda|cu|hip)(Launch(?!HostFunc)|GraphLaunch)|hip(Ext|Module)+Launch",
    CallKind.SYNCHRONIZE: (
        r"((cuda|hip)(Device|Stream|Event|Thread)|cu(Ctx|Stream|Event))Synchronize$"
    ),
    CallKind.COPY_ASYNC: r"(cuda|cu|hip)Memcpy\w*Async$",
    CallKind.COPY: r"(cuda|cu|hip)Memcpy(?!\w*Async)",
    CallKind.ALLOCATE: r"(cuda|hip)(Malloc|Free)(?!\w*(Async|FromPool))"
    r"|(cuda|hip)(HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)$"
    r"|cuMem(Alloc|Free|Host)(?!\w*(Async|FromPool|GetDevicePointer|GetFlags))"
    r"|cuMem(Create|Map|Unmap|Release)$|(cuda|cu)MemPoolTrimTo$|(cuda|hip)DeviceReset$",
    CallKind.LOAD: r"cu(Module(Load|Unload)|Library(Load|Unload)|Link(Add|Complete))"
    r"|cudaLibrary(Load|Unload)|hipModule(Load|Unload)",
    CallKind.LOOK_UP: r"cu(ModuleGetFunction|LibraryGetKernel|KernelGetFunction)"
    r"|cudaFuncGetAttributes|hipModuleGetFunction|hipFuncGetAttributes",
    CallKind.GRAPH: r"(cuda|cu|hip)Graph(Instantiate|Upload|ExecUpdate)",
}


POOLS = re.compile(r"(cuda|cu|hip)(Mem)?(Alloc|Malloc|Free)\w*(Async|FromPool)")
"""Calls that allocate from a pool, or free into it."""

_RESETS, _RENEWED = re.compile(r"(cuda|hip)DeviceReset$"), 3
"""A program destroys its context when it ends, and may do so once to start afresh."""


@fact_without_ranges
def context_resets(trace: Trace) -> RowNumbers:
    """The calls that destroy the context of their process, in which the next call creates one.

    Rows of api_calls in order of time; none where a process does so less than three times.
    """
    calls = trace.recorded("api_calls")
    rows = np.flatnonzero(calls.texts("name").matching(_RESETS.match))
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    process = groups.group(calls["process"][rows])
    return row_numbers(rows[groups.count(process)[process.ids] >= _RENEWED])


def classify(name: str) -> CallKind:
    """Kind of the CUDA or HIP call of that name."""
    return next((does for does, rule in _RULES.items() if re.match(rule, name)), CallKind.OTHER)


@fact_without_ranges
def call_kinds(trace: Trace) -> npt.NDArray[np.uint8]:
    """What each row of api_calls does, as a `CallKind`."""
    names = trace.recorded("api_calls").texts("name")
    known = np.array([classify(name) for name in names.values] or [CallKind.OTHER], np.uint8)
    return known[np.maximum(names.codes, 0)]


@record
class ApiCalls(intervals.Timed, ColumnRecord):
    """The rows of api_calls: calling thread, time and what each call does (a `CallKind`)."""

    thread: Array
    start_ns: Integers
    end_ns: Integers
    does: npt.NDArray[np.uint8]


@fact_without_ranges
def api_calls(trace: Trace) -> ApiCalls:
    calls = trace.recorded("api_calls")
    return ApiCalls(calls["thread"], calls["start_ns"], calls["end_ns"], call_kinds(trace))


@fact_without_ranges
def calls_by_thread(trace: Trace) -> dict[int, RowNumbers]:
    """The API calls of each thread that made some."""
    return groups.rows_of(api_calls(trace).thread)


@fact_without_ranges
def graph_launch_calls(trace: Trace) -> Mask:
    """True for the API calls that launch a CUDA graph."""
    names = trace.recorded("api_calls").texts("name")
    return names.matching(re.compile(r"(cuda|cu|hip)GraphLaunch").match)


@fact_without_ranges
def pool_calls(trace: Trace) -> Mask:
    """True for the API calls that allocate from a pool of CUDA's, or free to it."""
    return trace.recorded("api_calls").texts("name").matching(POOLS.match)


@fact_without_ranges
def captured_calls(trace: Trace) -> Mask:
    """True for the API calls made while their process captured a CUDA graph.

    What is launched then becomes a node of the graph and does not run, also what PyTorch's autograd
    launches on its own thread.
    """
    calls = trace.recorded("api_calls")
    captured = np.zeros(len(calls), bool)
    names, start, process = calls.texts("name"), calls["start_ns"], calls["process"]
    begins = names.isin(["cudaStreamBeginCapture", "cudaStreamBeginCaptureToGraph"])
    begins |= names.isin(["cuStreamBeginCapture", "cuStreamBeginCaptureToGraph"])
    begins |= names.isin(["hipStreamBeginCapture", "hipStreamBeginCaptureToGraph"])
    ends = names.isin(["cudaStreamEndCapture", "cuStreamEndCapture", "hipStreamEndCapture"])
    for number in groups.different(process[begins]).tolist():
        rows = np.flatnonzero(process == number)
        edges = rows[begins[rows] | ends[rows]]
        edges = edges[np.argsort(start[edges], kind="stable")]
        open_ones = np.cumsum(np.where(begins[edges], 1, -1))
        # An end whose begin came before the recording closes nothing.
        open_ones -= np.minimum.accumulate(np.minimum(open_ones, 0))
        before = np.searchsorted(start[edges], start[rows])
        captured[rows] = np.concatenate([[0], open_ones])[before] > 0
    return captured


# Rows joined by process and key, such as operations to the calls that launched them.
#
# Ids in traces are nearly always dense, so a table with one slot per key finds the rows in a few
# linear passes; sparse ones are hashed.


def match(
    process: Array, key: Integers, wanted_process: Array, wanted_key: Integers, usable: Mask
) -> Integers:
    """For each wanted (process, key), the first row that has it, or −1.

    `usable` is False for the wanted rows without a key.
    """
    first_row = np.full(len(wanted_key), -1, np.int64)
    if not len(key) or not usable.any():
        return first_row
    known = groups.rows_of(process)
    for number, rows_wanted in groups.rows_of(wanted_process).items():
        rows_wanted = rows_wanted[picked(usable, rows_wanted)]
        if number in known and len(rows_wanted):
            rows, keys = known[number], picked(wanted_key, rows_wanted)
            first_row[rows_wanted] = _match_one(picked(key, rows), rows, keys)
    return first_row


def correlated(table: Table, of: Table, rows: RowNumbers | Integers) -> Integers:
    """The row of a table with the process and correlation id of these rows of another, or −1."""
    process, key = of["process"][rows], of["correlation_id"][rows]
    usable = ~of.is_null("correlation_id")[rows]
    return match(table["process"], table["correlation_id"], process, key, usable)


def _match_one(key: Integers, rows: RowNumbers, wanted: Integers) -> Integers:
    least = int(key.min())
    span = int(key.max()) - least + 1
    if span > 8 * (len(key) + len(wanted)) + 1024:
        return np.append(rows, -1)[_places_of_sparse(key, wanted)]
    slots = np.full(span, -1, np.int32)
    slots[key[::-1] - least] = rows[::-1]
    inside = (wanted >= least) & (wanted < least + span)
    return np.where(inside, slots[np.where(inside, wanted - least, 0)], -1)


def _places_of_sparse(key: Integers, wanted: Integers) -> RowNumbers:
    """The first place of each wanted key among the keys, −1 for none."""
    bits = len(key).bit_length() + 1
    slots, matched = np.empty(1 << bits, np.int32), np.empty(len(wanted), np.int32)
    given = (key, len(key), wanted, len(wanted), slots, bits, matched)
    if library.call("traceview_match_keys", *given):
        return matched
    # Keys crafted to have equal hashes.
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    place = np.minimum(np.searchsorted(ordered, wanted), len(key) - 1)
    return row_numbers(np.where(ordered[place] == wanted, order[place], -1))


class Kind(IntEnum):
    """Kind of an operation, in the order of `TABLES`."""

    KERNEL = 0
    COPY = 1
    SET = 2
    GRAPH = 3


TABLES = ("kernels", "copies", "sets", "graph_launches")


@record
class Operations(intervals.Timed, ColumnRecord):
    """All operations, one row per operation, in order of start.

    Page migrations of unified memory are left out: nothing launched them, and they do not keep the
    GPU busy.

    `row` is the row in the operation's own table, `stream` a row of `streams`, `call` the row in
    api_calls of the call that enqueued it, −1 where the trace has none.
    """

    kind: npt.NDArray[np.uint8]
    row: RowNumbers
    start_ns: Integers
    end_ns: Integers
    process: Array
    device: Array
    stream: RowNumbers
    call: RowNumbers
    streams: Integers
    """Process, device, context_id, stream_id of each stream; shape (streams, 4)."""

    @property
    def launched(self) -> Mask:
        """True where the call that enqueued the operation is known."""
        return self.call >= 0


@fact_without_ranges
def operations(trace: Trace) -> Operations:
    """All operations of the trace. Streams are keyed by process, device, context and stream id."""
    parts = [trace.recorded(name) for name in TABLES]
    rows = [np.arange(len(part), dtype=np.int32) for part in parts]
    copies = TABLES.index("copies")
    if migrations(trace).any():
        rows[copies] = row_numbers(np.flatnonzero(~migrations(trace)))
        parts[copies] = parts[copies].take(rows[copies])
    call = row_numbers(_calls(trace, parts))
    start = _column(parts, "start_ns")
    order = np.argsort(start, kind="stable")
    identity = [
        picked(_column(parts, name), order)
        for name in ("process", "device", "context_id", "stream_id")
    ]
    stream = groups.group(*identity)
    return Operations(
        kind=np.repeat(np.arange(4, dtype=np.uint8), [len(part) for part in parts])[order],
        row=picked(np.concatenate(rows), order),
        start_ns=picked(start, order),
        end_ns=picked(_column(parts, "end_ns"), order),
        process=identity[0],
        device=identity[1],
        stream=row_numbers(stream.ids),
        call=picked(call, order),
        streams=np.stack([key[stream.first] for key in identity], axis=1).astype(np.int64),
    )


@fact_without_ranges
def operations_by_device(trace: Trace) -> dict[int, RowNumbers]:
    """The operations of each device that has some, in order of start."""
    return groups.rows_of(operations(trace).device)


@fact_without_ranges
def operations_by_process(trace: Trace) -> dict[int, RowNumbers]:
    """The operations of each process that has some, in order of start."""
    return groups.rows_of(operations(trace).process)


@fact_without_ranges
def operations_by_stream(trace: Trace) -> RowNumbers:
    """Rows of all operations, sorted by stream and then by start."""
    return row_numbers(groups.order_of(operations(trace).stream))


@fact_without_ranges
def migrations(trace: Trace) -> Mask:
    """True for the rows of copies that are page migrations of unified memory."""
    direction = trace.recorded("copies").texts("direction")
    return direction.matching(lambda text: text.startswith(schema.UNIFIED))


def _column(parts: list[Table], name: str) -> Array:
    return joined([part[name] for part in parts])


def _calls(trace: Trace, parts: list[Table]) -> Integers:
    """Row in api_calls of each operation. Correlation ids are unique within a process only."""
    calls = trace.recorded("api_calls")
    absent = calls.is_null("correlation_id")
    keyed = calls.take(~absent) if absent.any() else calls
    call = match(
        keyed["process"],
        keyed["correlation_id"],
        _column(parts, "process"),
        _column(parts, "correlation_id"),
        ~np.concatenate([part.is_null("correlation_id") for part in parts]),
    )
    if keyed is calls or not len(keyed):
        return call
    return np.where(call >= 0, np.flatnonzero(~absent)[np.maximum(call, 0)], -1)


@fact_without_ranges
def kernel_operations(trace: Trace) -> RowNumbers:
    """Row in operations of each row of kernels."""
    ops = operations(trace)
    kernels = np.flatnonzero(ops.kind == Kind.KERNEL)
    result = np.empty(len(kernels), np.int32)
    result[ops.row[kernels]] = kernels
    return result


@fact_without_ranges
def first_launches(trace: Trace) -> Mask:
    """True for the operations that are the first run of their kernel in its context.

    CUDA loads a kernel's code into a context at its first launch there (lazy loading), which makes
    that call long.
    """
    kernels = trace.recorded("kernels")
    context = (kernels["process"], kernels["device"], kernels["context_id"])
    # Both tables are in order of start.
    by_kernel = groups.group(*context, kernels.texts("name").codes)
    first = np.zeros(len(operations(trace)), bool)
    first[kernel_operations(trace)[by_kernel.first]] = True
    return first


LAZY_LOAD_NS = 200_000
"""A first launch that takes longer loaded code."""


@fact_without_ranges
def loading_launches(trace: Trace) -> Mask:
    """True for the operations whose launch call first loaded their code, then enqueued them."""
    ops, calls = operations(trace), trace.recorded("api_calls")
    result = first_launches(trace) & ops.launched
    call = ops.call[result]
    result[result] = calls["end_ns"][call] - calls["start_ns"][call] > LAZY_LOAD_NS
    return result


def calls_that_enqueue(ops: Operations, calls: int, chosen: Mask | None = None) -> Mask:
    """True for the API calls that enqueued operations, all of them or the chosen ones.

    `calls` is the number of API calls.
    """
    result = np.zeros(calls, bool)
    result[ops.call[ops.launched if chosen is None else ops.launched & chosen]] = True
    return result


@fact_without_ranges
def first_launch_calls(trace: Trace) -> Mask:
    """True for the API calls that launched a kernel for the first time in its context."""
    calls = len(trace.recorded("api_calls"))
    return calls_that_enqueue(operations(trace), calls, first_launches(trace))


# The machine of each process and GPU, where a trace holds several machines.
#
# Process ids and the numbers of GPUs, contexts and streams repeat between machines. Rows of the
# tables `processes`, `threads` and `devices` do not: everything is joined by these, and results
# name the machine where ids alone are ambiguous.

HOST = "host_id int64?: machine, where the trace holds several"


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


@fact_without_ranges
def shares_memory(trace: Trace) -> bool:
    """Whether all GPUs that ran work share the memory of the CPU, as on a Jetson."""
    used = groups.different(operations(trace).device)
    capabilities = trace.devices.texts("compute_capability").take(used)
    return len(used) > 0 and bool(capabilities.isin(SHARING_MEMORY).all())


def gpu_cells(trace: Trace, device: int) -> dict[str, Cell]:
    """`device_id` and `host_id` of a row of devices."""
    number, host = int(trace.devices["device_id"][device]), int(device_hosts(trace)[device])
    return {"device_id": number, "host_id": None if host == NULL else host}
