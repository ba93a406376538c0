"""Launch calls: those that block or have no work, those of CUDA graphs, and the queue of
each stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Depth, Intervals, Timed
from traceview.base.records import record
from traceview.base.tables import ColumnRecord, arrays
from traceview.base.tables.arrays import Array, Integers, Mask, RowNumbers, constant, picked
from traceview.traces.facts import copies
from traceview.traces.facts.operations import (
    ApiCalls,
    CallKind,
    Kind,
    Operations,
    api_calls,
    call_kinds,
    calls_that_enqueue,
    captured_calls,
    correlated,
    first_launch_calls,
    graph_launch_calls,
    match,
    operations,
    operations_by_process,
    operations_by_stream,
)
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.trace import Trace, fact, fact_without_ranges, schema

LEAST_NS = 1_000_000_000
"""The edges of a shorter recording are no evidence."""
EDGE_NS = 100_000_000
"""A program that uses a GPU so soon after the first event had started before: creating a CUDA
context under the profiler takes longer."""
NEVER, ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@record
class CutWindow:
    """First and last time, in ns, of a recording that began and ended while the program ran."""

    first_ns: int
    last_ns: int


@record
class Unpaired:
    """Launch calls without GPU work (rows of api_calls) and operations without a launch call.

    `late` launches follow the last launch of their process whose work was recorded; `early`
    operations start before the first operation of their process whose launch was recorded. A window
    cuts both off, as far as the CPU runs ahead of the GPU.
    """

    launches: Mask
    late: Mask
    operations: Mask
    early: Mask


@fact_without_ranges
def unpaired(trace: Trace) -> Unpaired:
    ops, calls = operations(trace), trace.recorded("api_calls")
    processes = len(trace.processes) + 1
    has_work = np.zeros(len(calls), bool)
    has_work[ops.call[ops.launched]] = True
    launches = (call_kinds(trace) == CallKind.LAUNCH) & ~has_work & ~captured_calls(trace)
    last = np.full(processes, ALWAYS)
    working = np.flatnonzero(has_work)
    last[calls["process"][working]] = NEVER
    np.maximum.at(last, calls["process"][working], calls["start_ns"][working])
    first = np.full(processes, ALWAYS)
    np.minimum.at(first, ops.process[ops.launched], ops.start_ns[ops.launched])
    first[first == ALWAYS] = NEVER
    return Unpaired(
        launches=launches,
        late=launches & (calls["start_ns"] > last[calls["process"]]),
        operations=~ops.launched,
        early=~ops.launched & (ops.start_ns < first[ops.process]),
    )


@fact_without_ranges
def loses_graphs(trace: Trace) -> bool:
    """Whether most launch calls whose work is missing launch CUDA graphs, as without `node`."""
    lost = unpaired(trace).launches
    return bool(lost.any() and 2 * np.count_nonzero(lost & graph_launch_calls(trace)) > lost.sum())


@fact
def cut_window(trace: Trace) -> CutWindow | None:
    """The window; None where the program seems to begin or end in the recording.

    A recording is such a window if GPU work goes on from its first moment to its last, or if it
    cuts launches off from their work at both ends.
    """
    ops = operations(trace)
    edges = [
        (int(table["start_ns"].min()), int(table["start_ns"].max()))
        for name, table in trace.tables.items()
        if len(table) and "start_ns" in {column.name for column in schema.TABLES[name].columns}
    ]
    if not len(ops) or not edges:
        return None
    first, last = min(begin for begin, _ in edges), max(end for _, end in edges)
    last = max(last, int(ops.end_ns.max()))
    at_once = int(ops.start_ns[0]) - first < EDGE_NS
    to_the_end = last - int(ops.end_ns.max()) < EDGE_NS
    through = at_once and to_the_end and last - first > LEAST_NS
    cut_off = bool(unpaired(trace).late.any() and unpaired(trace).early.any())
    return CutWindow(first, last) if through or cut_off else None


@record
class Waits(Timed, ColumnRecord):
    """Blocking calls, one row per call, in order of start.

    `call` is the row in api_calls, `does` a `CallKind`, `device` the device waited for: −1 where
    the process uses several and the trace does not name one.
    """

    call: Integers
    does: Array
    start_ns: Integers
    end_ns: Integers
    process: Array
    thread: Array
    device: Integers


@fact_without_ranges
def waits(trace: Trace) -> Waits:
    """Synchronizations, copies, allocations and code loads that hold the calling thread."""
    calls = trace.recorded("api_calls")
    does = call_kinds(trace)
    blocking = np.isin(
        does,
        [CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.ALLOCATE, CallKind.LOAD, CallKind.LOOK_UP],
    )
    ops = operations(trace)
    copying = ops.call[copies.pageable_copies(trace) & ops.launched]
    # An Async copy through pageable memory blocks as well.
    blocking[copying[does[copying] == CallKind.COPY_ASYNC]] = True
    rows = np.flatnonzero(blocking)
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    process = calls["process"][rows]
    # The only device of the process, else that of the context.
    device, several = np.full(len(rows), -1, np.int64), np.zeros(len(rows), bool)
    for number, places in groups.rows_of(process).items():
        of_process = operations_by_process(trace).get(number, groups.NO_ROWS)
        used = groups.different(ops.device[of_process])
        device[places] = used[0] if len(used) == 1 else -1
        several[places] = len(used) > 1
    device[several] = _device_of_context(trace, rows[several])
    return Waits(
        call=rows,
        does=does[rows],
        start_ns=calls["start_ns"][rows],
        end_ns=calls["end_ns"][rows],
        process=process,
        thread=calls["thread"][rows],
        device=device,
    )


def between(trace: Trace, others: Mask, *asked: Array, behind: bool = False) -> list[Integers]:
    """A number for each of the API calls asked for: the same where no `others` are between them.

    They are of one thread, `others` a mask. One of the others has the number of those before it,
    or `behind` it.
    """
    calls, call = api_calls(trace), np.concatenate(asked)
    before = np.zeros(len(call), np.int64)
    for thread, rows in groups.rows_of(calls.thread[call]).items():
        starts = np.sort(calls.start_ns[others & (calls.thread == thread)])
        before[rows] = np.searchsorted(starts, calls.start_ns[call[rows]] + behind)
    ids = groups.group(calls.thread[call], before).ids
    return np.split(ids, np.cumsum([len(each) for each in asked])[:-1])


def _device_of_context(trace: Trace, call: Integers) -> Integers:
    """Device of the context in which each call waited, −1 where the trace does not say."""
    calls, syncs = trace.recorded("api_calls"), trace.recorded("synchronizations")
    process, row = calls["process"][call], correlated(syncs, calls, call)
    if not len(syncs):
        return row
    streams = operations(trace).streams
    context = syncs["context_id"][np.maximum(row, 0)]
    home = match(streams[:, 0], streams[:, 2], process, context, row >= 0)
    return np.where(home >= 0, streams[:, 1][np.maximum(home, 0)], -1)


@record
class Graphs:
    """Masks over the operations: nodes of graphs, and graphs recorded as a whole.

    `node_launches` is the number of graph launches that the nodes belong to.
    """

    node: Mask
    whole: Mask
    node_launches: int


@fact_without_ranges
def cuda_graphs(trace: Trace) -> Graphs:
    """The operations that came from CUDA graphs."""
    ops = operations(trace)
    node = np.zeros(len(ops), bool)
    for kind, name in ((Kind.KERNEL, "kernels"), (Kind.COPY, "copies"), (Kind.SET, "sets")):
        rows = np.flatnonzero(ops.kind == kind)
        node[rows] = ~trace.recorded(name).is_null("graph_node_id")[picked(ops.row, rows)]
    launches = groups.different(ops.call[node & ops.launched])
    return Graphs(node, ops.kind == Kind.GRAPH, len(launches))


# Time that launch calls waited for room in a full launch queue.
#
# The queue of a stream holds about a thousand entries. Once it is full, each call that enqueues
# work waits until the GPU has taken one out: the GPU has plenty to do, and the call's time is no
# cost of launching.

FULL = 1000
"""Least depth at which a queue may be full. On an H200 (driver 580) the depth of a stream rises to
1,023 and no further: calls made at 1,023 took 67 µs (median), at 1,022 and below 4 µs."""

PLATEAU = 1
"""A call counts as made at the top of the plateau within this of the stream's greatest depth."""

FAR_LONGER = 4
"""A call was held back if it took so many times the median of undisturbed calls of its name. Of
2,325 undisturbed calls on an H200 1 in 50 took longer; of the 44 at the plateau 21 did, most of
them by 16 to 49 times."""


@record
class QueueFull:
    """Time that calls waited for room in a full launch queue, by thread and by call (`held_ns`).

    `recorded` is True where the recorder reports that time; else it is inferred from queue depth
    and call duration.
    """

    held_ns: Integers
    by_thread: dict[int, Intervals]
    recorded: bool


@fact_without_ranges
def queue_full(trace: Trace) -> QueueFull:
    """Time that calls waited for room in the launch queue: recorded if reported, else inferred."""
    overheads, calls = trace.recorded("overheads"), api_calls(trace)
    waiting = overheads.texts("kind").isin(["queue-full"]) & ~overheads.is_null("thread")
    recorded = bool(waiting.any())
    if recorded:
        thread, start, end = (overheads[name][waiting] for name in ("thread", "start_ns", "end_ns"))
    else:
        row, held = _inferred(trace)
        thread, start = calls.thread[row], calls.start_ns[row]
        end = start + held
    by_thread = {
        number: intervals.union(start[rows], end[rows])
        for number, rows in groups.rows_of(thread).items()
    }
    if not by_thread:
        return QueueFull(constant(0, len(calls), np.int64), {}, recorded)
    enqueuing = calls_that_enqueue(operations(trace), len(calls))
    return QueueFull(held_time(calls, enqueuing, by_thread), by_thread, recorded)


def held_time(calls: ApiCalls, enqueuing: Mask, by_thread: Mapping[int, Intervals]) -> Integers:
    """Time that each API call waited for room, in ns; 0 for calls that enqueue nothing."""
    result, rows = np.zeros(len(calls), np.int64), np.flatnonzero(enqueuing)
    for thread, full in by_thread.items():
        made = rows[calls.thread[rows] == thread]
        result[made] = intervals.overlap(full, calls.start_ns[made], calls.end_ns[made])
    return result


def _inferred(trace: Trace) -> tuple[Integers, Integers]:
    """Rows of the calls held back, and by how much they exceed the median of undisturbed calls.

    The excess lies at the start of a call: the work enters the queue once there is room.
    """
    ops, calls = operations(trace), api_calls(trace)
    none = np.zeros(0, np.int64)
    # Several operations of one call are one entry, so depth in operations bounds depth in entries.
    if not trace.selection and all(depth.most < FULL for depth in stream_depths(trace)):
        return none, none
    depths = [queue_entries(ops, calls, rows) for rows in rows_by_stream(trace)]
    full, calm = plateau(depths, len(calls))
    if not full.any():
        return none, none
    # First launches load code.
    calm &= ~first_launch_calls(trace)
    rows = np.flatnonzero(calls_that_enqueue(ops, len(calls)))
    names = trace.recorded("api_calls").texts("name").codes[rows]
    held_ns = excess_time(calls.duration_ns[rows], names, full[rows], calm[rows])
    return rows[held_ns > 0], held_ns[held_ns > 0]


def excess_time(duration_ns: Integers, name: Array, full: Mask, calm: Mask) -> Integers:
    """Excess of each call made with a full queue over the usual duration, in ns; 0 for others.

    The usual duration is the median of the calm calls of the same name. Calls no longer than
    FAR_LONGER times that were not held back.
    """
    by_name = groups.group(name)
    usual = np.full(by_name.size, -1, np.int64)
    calm_names = groups.group(by_name.ids[calm])
    medians = groups.stats(calm_names, duration_ns[calm]).median
    usual[by_name.ids[calm][calm_names.first]] = medians
    usual = usual[by_name.ids]
    held = full & (usual >= 0) & (duration_ns > FAR_LONGER * usual)
    return np.where(held, duration_ns - usual, 0)


def plateau(depths: Sequence[tuple[Integers, Integers]], calls: int) -> tuple[Mask, Mask]:
    """Masks of the API calls made with a full queue, and of those with a queue surely not full.

    `depths` has, per stream, the calls that enqueued work and the queue's entries with each call;
    `calls` is the number of all API calls.
    """
    full, calm = np.zeros(calls, bool), np.zeros(calls, bool)
    for call, depth in depths:
        most = int(depth.max(initial=0))
        full[call] = (depth >= most - PLATEAU) & (most >= FULL)
        calm[call] = depth < FULL - FULL // 10
    return full, calm


def queue_entries(ops: Operations, calls: ApiCalls, rows: Array) -> tuple[Integers, Integers]:
    """The calls that enqueued operations of a stream, and the entries in its queue with each one.

    A graph is one entry, however many nodes it has.
    """
    rows = rows[ops.call[rows] >= 0]
    by_call = groups.group(ops.call[rows])
    call: Array = ops.call[rows[by_call.first]]
    end = np.full(by_call.size, np.iinfo(np.int64).min)
    np.maximum.at(end, by_call.ids, ops.end_ns[rows])
    start = calls.start_ns[call]
    begun = intervals.places(intervals.ascending(start), start, side="right")
    return call, begun - intervals.places(intervals.ascending(end), start, side="right")


# How far the CPU runs ahead of each stream: queue wait and queue depth.
#
# Queue wait is max(0, operation start − launch call end); queue depth is the number of operations
# whose launch call has started and that have not ended. Both need the launch call, so operations
# without one count in neither.


@fact_without_ranges
def queue_wait_ns(trace: Trace) -> Integers:
    """Queue wait of each operation; −1 where its launch call is not known."""
    return queue_waits(operations(trace), api_calls(trace))


def queue_waits(ops: Operations, calls: ApiCalls) -> Integers:
    """Queue wait of each operation in ns; −1 where its launch call is not known."""
    wait = np.full(len(ops), -1, np.int64)
    known = ops.launched
    if known.any():
        wait[known] = np.maximum(ops.start_ns[known] - picked(calls.end_ns, ops.call[known]), 0)
    return wait


@record
class QueueWait:
    """Statistics of queue waits; None where no operation has a known call.

    Percentiles are interpolated and rounded.
    """

    median_ns: int | None
    p90_ns: int | None
    most_ns: int | None


def wait_of(trace: Trace, rows: Array) -> QueueWait:
    """Statistics of the queue waits of these operations."""
    wait = picked(queue_wait_ns(trace), rows)
    wait = wait[wait >= 0]
    if not len(wait):
        return QueueWait(None, None, None)
    median, p90 = (round(arrays.quantile(wait, share)) for share in (0.5, 0.9))
    return QueueWait(median, p90, int(wait.max()))


@fact
def stream_depths(trace: Trace) -> tuple[Depth, ...]:
    """Queue depth that the selected operations of each stream saw."""
    chosen = selected_operations(trace)
    return tuple(depth_of(trace, rows, chosen) for rows in rows_by_stream(trace))


@fact_without_ranges
def rows_by_stream(trace: Trace) -> tuple[RowNumbers, ...]:
    """The operations of each stream, in order of start: one pass for all streams."""
    ops = operations(trace)
    ends = np.cumsum(np.bincount(ops.stream, minlength=len(ops.streams)))
    return tuple(np.split(operations_by_stream(trace), ends[:-1]))


def depth_of(trace: Trace, rows: Array, chosen: Mask) -> Depth:
    """Greatest and time-weighted mean depth that the chosen ones of these operations saw."""
    return queue_depth(operations(trace), api_calls(trace), rows, chosen)


def queue_depth(ops: Operations, calls: ApiCalls, rows: Array, chosen: Mask) -> Depth:
    """Depth of a queue that holds the operations `rows`, as the chosen ones saw it.

    `chosen` is a mask over all operations.
    """
    call = picked(ops.call, rows)
    if len(call) and call.min() < 0:
        rows, call = rows[call >= 0], call[call >= 0]
    if not len(rows):
        return Depth(0, 0.0)
    start = picked(calls.start_ns, call)
    return intervals.depth(start, picked(ops.end_ns, rows), picked(chosen, rows))
