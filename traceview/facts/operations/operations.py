"""Operations: kernels, copies, memsets and whole graphs of all devices, joined to their calls."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.operations.joins import match
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, Table, joined, picked, row_numbers
from traceview.trace import Trace, fact_without_ranges
from traceview.trace.schema.gpu_work import UNIFIED


class Kind(IntEnum):
    """Kind of an operation, in the order of `TABLES`."""

    KERNEL = 0
    COPY = 1
    SET = 2
    GRAPH = 3


TABLES = ("kernels", "copies", "sets", "graph_launches")


@record
class Operations(Timed):
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

    def __len__(self) -> int:
        return len(self.start_ns)

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
    return direction.matching(lambda text: text.startswith(UNIFIED))


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
