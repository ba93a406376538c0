"""Lanes of GPU work: one per stream, one per device for its idle time, and page migrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.idle.gaps import every_gap
from traceview.facts.kernel_labels import kernel_labels
from traceview.facts.operations import operations as gpu
from traceview.facts.operations.kernel_classes import kernel_classes
from traceview.facts.operations.operations import (
    Kind,
    Operations,
)
from traceview.facts.waves.configurations import every_configuration
from traceview.records import record
from traceview.tables import (
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
from traceview.timeline.names import COPIES, FIRST_CAUSE, FIRST_KERNEL, NUMBER, RowNames
from traceview.timeline.tracks import Lane, Track, spread
from traceview.trace import Trace, fact
from traceview.trace.schema.gpu_work import UNIFIED
from traceview.vocabulary.causes import CAUSE_NAMES

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
    trace: Trace, ops: Operations, names: RowNames, launches: LaunchConfigurations
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

    by_kind: dict[Kind, Callable[[], RowNumbers]] = {
        Kind.KERNEL: kernel_names,
        Kind.COPY: lambda: copy_names(trace.copies, names),
        Kind.SET: lambda: names.add(
            Texts(np.zeros(len(trace.sets), np.int32), object_array(["memset"])), NUMBER["memset"]
        ),
        Kind.GRAPH: graph_names,
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


def _amounts(trace: Trace, ops: Operations) -> Integers:
    """Bytes of each copy and memset, 0 for other operations."""
    result = np.zeros(len(ops), np.int64)
    for kind, table in ((Kind.COPY, "copies"), (Kind.SET, "sets")):
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
