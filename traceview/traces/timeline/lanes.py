"""Lanes of GPU streams and CPU threads, and counters over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals
from traceview.base.records import record
from traceview.base.tables import (
    Integers,
    RowNumbers,
    Table,
    Texts,
    constant,
    object_array,
    picked,
    row_numbers,
    unbroken,
)
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts import launches, memory, operations, waits
from traceview.traces.facts import operations as gpu
from traceview.traces.facts.idle.gaps import every_gap
from traceview.traces.facts.kernel_classes import kernel_classes, kernel_labels
from traceview.traces.facts.launch_configurations import every_configuration
from traceview.traces.facts.ranges.nesting import depths
from traceview.traces.facts.ranges.origins import INFERRED_DOMAIN
from traceview.traces.facts.ranges.ranges import range_tree
from traceview.traces.facts.samples import stack_lines
from traceview.traces.timeline.tracks import (
    CLASS_OF_CALL,
    COPIES,
    FIRST_CAUSE,
    FIRST_DOING,
    FIRST_KERNEL,
    HARMFUL,
    NUMBER,
    Lane,
    RowNames,
    Track,
    spread,
)
from traceview.traces.trace import Trace, fact
from traceview.traces.trace.schema import UNIFIED

LAUNCH_COLUMNS = (
    *(f"grid_{axis}" for axis in "xyz"),
    *(f"block_{axis}" for axis in "xyz"),
    "registers_per_thread",
    "static_shared_memory_bytes",
    "dynamic_shared_memory_bytes",
)
MOST_LAUNCHES = 20_000
"""Launch configurations beyond which the timeline tells kernels apart by name alone."""


@record
class LaunchConfigurations:
    """Distinct launch configurations, a row of LAUNCH_COLUMNS each; `of` is the row of a kernel."""

    rows: npt.NDArray[np.int64]
    of: RowNumbers


def launch_configurations(trace: Trace) -> LaunchConfigurations:
    """The configurations of all kernels; none if there are more than MOST_LAUNCHES."""
    kernels, (some, of) = trace.recorded("kernels"), _kernels_alike(trace)
    distinct = groups.group(*(picked(kernels[name], some) for name in LAUNCH_COLUMNS))
    if not len(kernels) or distinct.size > MOST_LAUNCHES:
        return LaunchConfigurations(
            np.zeros((0, len(LAUNCH_COLUMNS)), np.int64), constant(-1, len(kernels), np.int32)
        )
    rows = np.stack([kernels[name][some[distinct.first]] for name in LAUNCH_COLUMNS], axis=1)
    return LaunchConfigurations(rows.astype(np.int64), picked(row_numbers(distinct.ids), of))


@fact
def _kernels_alike(trace: Trace) -> tuple[RowNumbers, RowNumbers]:
    """Rows of kernels, at least one per name and configuration, and for each kernel its like there.

    The report has grouped all kernels so already, and to name a million of them takes long.
    """
    every = every_configuration(trace)
    others = np.flatnonzero(every.of_kernel < 0)
    of = row_numbers(every.of_kernel.copy())
    of[others] = np.arange(len(every), len(every) + len(others))
    return row_numbers(np.concatenate((every.row, others))), of


def stream_lanes(trace: Trace, names: RowNames, launches: LaunchConfigurations) -> Iterator[Lane]:
    """A lane per stream, by device, those with the longest work first."""
    ops = gpu.operations(trace)
    name = _operation_names(trace, ops, names, launches)
    amount, rows = _amounts(trace, ops), gpu.operations_by_stream(trace)
    at = unbroken(rows) if len(ops.streams) == 1 else rows
    every = Track.of(
        "operations",
        picked(ops.start_ns, at),
        picked(ops.end_ns, at),
        picked(name, at),
        rows,
        picked(amount, at) if amount.any() else None,
    )
    ends = np.cumsum(np.bincount(ops.stream, minlength=len(ops.streams)))
    # The streams whose rows do not overlap; `ends` has the end row of each stream.
    follows = every.end_ns > every.start_ns
    follows[1:] &= every.start_ns[1:] >= every.end_ns[:-1]
    # The first row of a stream follows none.
    first = ends[:-1][ends[:-1] < len(every)]
    follows[first] = every.end_ns[first] > every.start_ns[first]
    apart = np.ones(len(ends), bool)
    apart[np.searchsorted(ends, np.flatnonzero(~follows), "right")] = False
    total = groups.added(ops.stream, ops.duration_ns, len(ops.streams))
    order = np.lexsort((-total, ops.streams[:, 1])).tolist()
    processes = len(groups.different(ops.process)) > 1
    for stream in order:
        process, device, _, number = ops.streams[stream].tolist()
        track = every.take(slice(ends[stream - 1] if stream else 0, ends[stream]))
        tracks = (track,) if apart[stream] else spread(track)
        owner = f", process {trace.processes['process_id'][process]}" if processes else ""
        yield Lane("stream", f"Stream {number}{owner}", tracks, device, process, -1, number)


def _operation_names(
    trace: Trace, ops: operations.Operations, names: RowNames, launches: LaunchConfigurations
) -> RowNumbers:
    def kernel_names() -> RowNumbers:
        some, of = _kernels_alike(trace)
        classes = picked(kernel_classes(trace), some).astype(np.int64) + FIRST_KERNEL
        labels, whole = kernel_labels(trace).take(some), trace.kernels.texts("name").take(some)
        return picked(names.add(labels, classes, whole, picked(launches.of, some)), of)

    def graph_names() -> RowNumbers:
        graph = groups.group(trace.graph_launches["graph_id"])
        ids = trace.graph_launches["graph_id"][graph.first].tolist()
        labels = object_array([f"CUDA graph {number}" for number in ids])
        return names.add(Texts(row_numbers(graph.ids), labels), NUMBER["graph"])

    by_kind: dict[operations.Kind, Callable[[], RowNumbers]] = {
        operations.Kind.KERNEL: kernel_names,
        operations.Kind.COPY: lambda: copy_names(trace.copies, names),
        operations.Kind.SET: lambda: names.add(
            Texts(np.zeros(len(trace.sets), np.int32), object_array(["memset"])), NUMBER["memset"]
        ),
        operations.Kind.GRAPH: graph_names,
    }
    result = np.zeros(len(ops), np.int32)
    for kind, named in by_kind.items():
        rows = np.flatnonzero(ops.kind == kind)
        if len(rows):
            result[rows] = picked(named(), picked(ops.row, rows))
    return result


def copy_names(copies: Table, names: RowNames) -> RowNumbers:
    """RowNames of the rows of copies, such as `H2D copy, pageable to device`."""
    columns = [copies.texts(n) for n in ("direction", "source_memory", "destination_memory")]
    distinct = groups.group(*(column.codes for column in columns))
    directions, sources, targets = (column.take(distinct.first).decode() for column in columns)
    texts = [f"{d} copy, {s} to {t}" for d, s, t in zip(directions, sources, targets, strict=True)]
    kinds = [
        "migration" if d.startswith(UNIFIED) else d.lower() if d.lower() in COPIES else "other"
        for d in map(str, directions)
    ]
    classes = np.array([NUMBER[f"copy-{kind}"] for kind in kinds], np.int64)
    labels = Texts(row_numbers(distinct.ids), object_array(texts))
    return names.add(labels, classes[distinct.ids] if len(distinct.ids) else 0)


def _amounts(trace: Trace, ops: operations.Operations) -> Integers:
    """Bytes of each copy and memset, 0 for other operations."""
    result = np.zeros(len(ops), np.int64)
    for kind, table in ((operations.Kind.COPY, "copies"), (operations.Kind.SET, "sets")):
        rows = np.flatnonzero(ops.kind == kind)
        if len(rows):
            result[rows] = trace.recorded(table)["bytes"][ops.row[rows]]
    return result


def idle_lanes(trace: Trace, names: RowNames) -> Iterator[Lane]:
    """A lane per device with its idle gaps, each named after its cause."""
    gaps = every_gap(trace)
    causes = Texts(gaps.cause.astype(np.int32), object_array(CAUSE_NAMES))
    name = names.add(causes, gaps.cause.astype(np.int64) + FIRST_CAUSE)
    of_device = groups.rows_of(gaps.device)
    for device in gpu.operations_by_device(trace):
        rows = of_device.get(device, groups.NO_ROWS)
        track = Track.of("gaps", gaps.start_ns[rows], gaps.end_ns[rows], name[rows], rows)
        yield Lane("idle", "Idle, by cause", spread(track), device)


def migration_lanes(trace: Trace, names: RowNames) -> Iterator[Lane]:
    """A lane per device with the page migrations of unified memory, which no stream runs."""
    rows = np.flatnonzero(gpu.migrations(trace))
    if not len(rows):
        return
    copies = trace.copies.take(rows)
    name = copy_names(copies, names)
    for device in groups.different(copies["device"]).tolist():
        own = np.flatnonzero(copies["device"] == device)
        track = Track.of(
            "operations",
            copies["start_ns"][own],
            copies["end_ns"][own],
            name[own],
            np.full(len(own), -1),
            copies["bytes"][own],
        )
        yield Lane("migrations", "Unified memory migrations", spread(track), device)


def device_title(trace: Trace, device: int) -> str:
    """The title of a device, such as `GPU 0, NVIDIA H200`."""
    name = trace.devices.texts("name")[device]
    number = int(trace.devices["device_id"][device])
    return f"GPU {number}, {name}" if name else f"GPU {number}"


HARMFUL_NS = 5_000
"""Idle time from which a wait is shown as harmful: less costs no more than a kernel launch."""
MOST_DEPTH = 16
"""Ranges nested deeper are left out."""
_MERGED_PERIODS = 3
_LEAST_MAIN = 100
"""Main threads come first if they make at least 1 / _LEAST_MAIN of the busiest thread's calls."""


def thread_lanes(trace: Trace, names: RowNames) -> Iterator[Lane]:
    """A lane per thread with ranges, calls or samples: main threads first, then by CUDA calls."""
    tracks: dict[int, list[Track]] = {}
    for part in (_range_tracks, _call_tracks, _python_tracks):
        for thread, track in part(trace, names):
            tracks.setdefault(thread, []).append(track)
    calls = np.bincount(operations.api_calls(trace).thread, minlength=len(trace.threads))
    main = trace.threads["thread_id"] == trace.processes["process_id"][trace.threads["process"]]
    most = int(calls.max(initial=0))
    used = main & (calls >= most // _LEAST_MAIN)
    for thread in sorted(tracks, key=lambda row: (not used[row], -int(calls[row]))):
        process = int(trace.threads["process"][thread])
        # The title of a thread, such as `python3, thread 4242`.
        name, number = trace.threads.texts("name")[thread], int(trace.threads["thread_id"][thread])
        yield Lane(
            "thread",
            f"{name}, thread {number}" if name else f"Thread {number}",
            tuple(tracks[thread]),
            -1,
            process,
            thread,
        )


def _range_tracks(trace: Trace, names: RowNames) -> Iterator[tuple[int, Track]]:
    """The ranges of each thread, one track per depth, without inferred steps: see step_lanes."""
    tree, ranges = range_tree(trace), trace.recorded("ranges")
    if not len(tree.row):
        return
    nesting = tree.nesting
    name = names.add(ranges.texts("name").take(tree.row), NUMBER["range"])
    # The depth of each range of the tree, −1 for inferred steps.
    inferred = trace.recorded("ranges").texts("domain").isin([INFERRED_DOMAIN])
    depth = depths(tree.nesting.parent)
    if inferred.any():
        depth[inferred[tree.row]] = -1
    for thread, (first, last) in enumerate(pairwise(nesting.bounds.tolist())):
        for deep, at in groups.rows_of(depth[first:last]).items():
            if 0 <= deep < MOST_DEPTH:
                rows = at + np.int32(first)
                track = Track.some("ranges", nesting.start, nesting.end, name, rows)
                apart = thread not in nesting.walked
                yield from ((thread, part) for part in ((track,) if apart else spread(track)))


def _call_tracks(trace: Trace, names: RowNames) -> Iterator[tuple[int, Track]]:
    """The tracks of each thread's calls: runtime calls, and below them the calls they make."""
    calls = operations.api_calls(trace)
    if not len(calls):
        return
    classes = np.array(CLASS_OF_CALL, np.int16)[calls.does]
    # Rows of api_calls that left a GPU idle for HARMFUL_NS or more.
    cost = waits.stalls(trace)
    idle = cost.idle_ns(np.ones(len(cost.wait), bool))
    classes[launches.waits(trace).call[idle >= HARMFUL_NS]] = HARMFUL
    name = names.add(trace.api_calls.texts("name"), classes)
    for thread, own in operations.calls_by_thread(trace).items():
        at = unbroken(own)
        start, end = picked(calls.start_ns, at), picked(calls.end_ns, at)
        if (end <= start).any():
            end = np.maximum(end, start + 1)
        track = Track.of("calls", start, end, picked(name, at), own)
        if (start[1:] < start[:-1]).any():
            track = track.take(np.argsort(start, kind="stable"))
        yield from ((thread, part) for part in spread(track))


def _python_tracks(trace: Trace, names: RowNames) -> Iterator[tuple[int, Track]]:
    """A track per sampled thread: the line of the program that consecutive samples agree on."""
    samples = trace.recorded("python_samples")
    if not len(samples):
        return
    lines = stack_lines(trace)
    # Texts such as `train.py:42 in step`, for the frame (row in python_frames) of each stack.
    frames = trace.recorded("python_frames")
    rows = np.maximum(lines.frame, 0)
    file, function = (frames.texts(n).take(rows).decode() for n in ("file", "function"))
    numbers = frames["line"][rows].tolist()
    line = Texts.of(
        f"{str(path).rpartition('/')[2]}:{number} in {of}"
        for path, number, of in zip(file, numbers, function, strict=True)
    )
    for thread in groups.different(samples["thread"]).tolist():
        own = np.flatnonzero(samples["thread"] == thread)
        stack = samples["stack"][own]
        own, stack = own[lines.frame[stack] >= 0], stack[lines.frame[stack] >= 0]
        if len(own) < 2:
            continue
        kind = lines.doing[stack].astype(np.int64) + FIRST_DOING
        name = names.add(line.take(stack), kind)
        # Consecutive samples with the same name, and no gap, form one row.
        time = samples["time_ns"][own]
        period = max(int(np.median(np.diff(time))), 1)
        opens = np.append(True, name[1:] != name[:-1])
        opens[1:] |= np.diff(time) > _MERGED_PERIODS * period
        first = np.flatnonzero(opens)
        last = np.append(first[1:], len(time)) - 1
        following = np.append(time[first[1:]], time[-1] + period)
        end = np.minimum(time[last] + period, np.maximum(following, time[last] + 1))
        yield thread, Track.of("python", time[first], end, name[first], own[first])


_METRICS = {"dram-read": "DRAM read", "dram-write": "DRAM write"}


@record
class Counter:
    """A value on a device (row in devices) that holds from each time to the next.

    `unit` is operations, bytes or pct.
    """

    title: str
    unit: str
    device: int
    time_ns: Integers
    value: Integers
    exact: bool = True
    """Whether every change is kept; False after `reduced`."""

    def reduced(self, most: int) -> Counter:
        """The counter in at most `most` points: the least and the greatest value per slot."""
        if len(self.time_ns) <= most:
            return self
        first = np.linspace(0, len(self.time_ns), max(most // 2, 1) + 1).astype(np.int64)[:-1]
        least = np.minimum.reduceat(self.value, first)
        greatest = np.maximum.reduceat(self.value, first)
        start = self.time_ns[first]
        middle = start + (np.append(start[1:], self.time_ns[-1]) - start) // 2
        return Counter(
            self.title,
            self.unit,
            self.device,
            np.stack((start, middle), 1).reshape(-1),
            np.stack((greatest, least), 1).reshape(-1),
            exact=False,
        )


def counters(trace: Trace) -> Iterator[Counter]:
    """All counters of the trace, by device."""
    yield from queue_depths(trace)
    for device, level in memory.levels(trace).items():
        if len(level.time_ns):
            yield Counter("Memory", "bytes", device, level.time_ns, level.bytes)
    samples = trace.recorded("gpu_metrics")
    sampled = groups.group(samples["device"], samples.texts("metric").codes)
    for number, first in enumerate(sampled.first.tolist()):
        rows = np.flatnonzero(sampled.ids == number)
        rows = rows[np.argsort(samples["time_ns"][rows], kind="stable")]
        metric = str(samples.texts("metric")[first])
        value = samples["value_pct"][rows].astype(np.int64)
        title = _METRICS.get(metric, metric)
        yield Counter(title, "pct", int(samples["device"][first]), samples["time_ns"][rows], value)


def queue_depths(trace: Trace) -> Iterator[Counter]:
    """A counter per device: operations whose launch call has started and that have not ended."""
    ops, calls = operations.operations(trace), operations.api_calls(trace)
    for device, on_device in operations.operations_by_device(trace).items():
        rows = on_device[picked(ops.call, on_device) >= 0]
        if not len(rows):
            continue
        launched = intervals.ascending(picked(calls.start_ns, picked(ops.call, rows)))
        ended = intervals.ascending(picked(ops.end_ns, rows))
        yield Counter("Queue depth", "operations", device, *intervals.running(launched, ended))
