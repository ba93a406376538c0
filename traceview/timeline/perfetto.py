"""A timeline as a Perfetto trace (TrackEvent packets), piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import operations
from traceview.intervals import Intervals
from traceview.tables import Integers, Mask
from traceview.timeline import perfetto_packets
from traceview.timeline.names import CLASSES, NameTable
from traceview.timeline.perfetto_packets import Bytes, columns, interleaved
from traceview.timeline.stream_lanes import device_title
from traceview.timeline.timeline import Timeline
from traceview.timeline.tracks import Lane, Track
from traceview.trace import Trace

# Slices of one Perfetto track: its rows must nest, because a viewer builds a tree of them.

_MOST_ROUNDS = 16


def nested(tracks: Sequence[Track]) -> tuple[list[Integers], list[Integers]]:
    """The rows of each track that nest within each other, and the rows that cross another one."""
    which = np.repeat(np.arange(len(tracks)), [len(track) for track in tracks])
    row = np.concatenate([np.arange(len(track)) for track in tracks])
    start = np.concatenate([track.start_ns for track in tracks])
    end = np.concatenate([last_ns(track) for track in tracks])
    order = np.lexsort((which, -end, start))
    left_out = np.zeros(len(order), bool)
    for _ in range(_MOST_ROUNDS):
        kept = order[~left_out[order]]
        crossed = crossing(Intervals(start[kept], end[kept]))
        if not crossed.any():
            break
        left_out[kept[crossed]] = True
    else:
        left_out[:] = True
    parts = [
        [row[(which == number) & (left_out == out)] for number in range(len(tracks))]
        for out in (False, True)
    ]
    return parts[0], parts[1]


def last_ns(track: Track) -> Integers:
    """The end of each row, at least 1 ns after its start."""
    result: Integers = np.maximum(track.end_ns, track.start_ns + 1)
    return result


def crossing(spans: Intervals) -> Mask:
    """True for intervals that end after their parent; sorted by start, then longest first.

    The depth of an interval is the number of those begun before and not ended at its start. Its
    parent, unless intervals cross, is the last one begun at the depth above.
    """
    ended = np.searchsorted(np.sort(spans.end), spans.start, side="right")
    depth = np.arange(len(spans.start)) - ended
    result = np.zeros(len(depth), bool)
    above = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        own = np.flatnonzero(depth == level)
        around = above[np.maximum(np.searchsorted(above, own) - 1, 0)]
        result[own] = spans.end[own] > spans.end[around]
        above = own
    return result


def edge_order(start: Integers, end: Integers, *, disjoint: bool) -> Integers:
    """The order of 2n edges, first all starts and then all ends, of n intervals that nest.

    At equal times ends come before starts, inner ends first and outer starts first. Disjoint
    intervals in order begin and end in turn.
    """
    rows = np.arange(len(start))
    if disjoint:
        return np.stack((rows, rows + len(start)), axis=1).reshape(-1)
    length = end - start
    rank = np.concatenate((-length, length))
    kind = np.repeat(np.array([1, 0], np.int8), len(start))
    time = np.concatenate((start, end))
    # Of equal intervals the first one is the outer one.
    place = np.concatenate((rows, -rows))
    return np.lexsort((place, rank, kind, time))


# A timeline as a Perfetto trace, piece by piece.
#
# Threads of a process hold their ranges and calls as nested slices. Each GPU is a track of its
# own with a track per stream, its idle time and its counters. A flow leads from each launch call
# to the work that it launched. Kernels carry their whole name and launch configuration as
# arguments.

_NAME_KEY, _LAUNCH_KEY, _BYTES_KEY = 1, 2, 3
_KEYS = ("kernel", "launch", "bytes")
_RUN, _FIRST_DEVICE, _FIRST_PROCESS, _FIRST_OTHER = 1, 1_000, 2_000_000, 4_000_000
_BLOCK = 1 << 18
"""Begins and ends of slices in one piece of the file."""
_UNITS: Mapping[str, int | str] = {
    "operations": perfetto_packets.UNIT_COUNT,
    "bytes": perfetto_packets.UNIT_BYTES,
    "pct": "%",
}
_CONTENT_TITLES = {"ranges": "Overlapping ranges", "calls": "Overlapping calls", "python": "Python"}


def perfetto_pieces(trace: Trace, timeline: Timeline) -> Iterator[bytes]:
    """The bytes of the trace file, in order."""
    names = timeline.names.table(track.name for track in timeline.tracks)
    texts = names.texts()
    whole = [text or short for text, short in zip(names.whole, texts, strict=True)]
    launched = (
        f"grid {gx}×{gy}×{gz}, block {bx}×{by}×{bz}, {registers} registers per thread, "
        f"{fixed + dynamic} bytes of shared memory per block"
        for gx, gy, gz, bx, by, bz, registers, fixed, dynamic in timeline.launches.rows.tolist()
    )
    yield perfetto_packets.interned(texts, CLASSES, _KEYS, [*whole, *launched])
    yield perfetto_packets.track(_RUN, 0, "Run", rank=0)
    for device in range(len(trace.devices)):
        yield perfetto_packets.track(
            _FIRST_DEVICE + device, 0, device_title(trace, device), rank=1 + device
        )
    processes = zip(*map(trace.processes.cells, ("process_id", "name")), strict=True)
    for process, (pid, name) in enumerate(processes):
        owner = int(str(pid)), str(name or "")
        yield perfetto_packets.track(_FIRST_PROCESS + process, 0, "", process=owner)
    uuids = count(_FIRST_OTHER)
    writer = _Slices(trace, names)
    for rank, lane in enumerate(timeline.lanes):
        if lane.kind == "thread":
            yield from _thread(trace, lane, writer, uuids, rank)
            continue
        parent = _FIRST_DEVICE + lane.device if lane.device >= 0 else _RUN
        for track in lane.tracks:
            uuid = next(uuids)
            yield perfetto_packets.track(uuid, parent, lane.title, rank=rank)
            yield from writer.slices(uuid, [track])
    for counter in timeline.counters:
        uuid = next(uuids)
        parent = _FIRST_DEVICE + counter.device
        yield perfetto_packets.track(uuid, parent, counter.title, unit=_UNITS[counter.unit])
        yield perfetto_packets.counted(uuid, counter.time_ns, counter.value).tobytes()


def _thread(
    trace: Trace, lane: Lane, writer: _Slices, uuids: Iterator[int], rank: int
) -> Iterator[bytes]:
    """Ranges and calls as one tree of slices; what does not nest, and samples, on tracks below."""
    uuid = next(uuids)
    pid = int(trace.processes["process_id"][lane.process])
    tid = int(trace.threads["thread_id"][lane.thread])
    name = trace.threads.texts("name")[lane.thread] or ""
    parent = _FIRST_PROCESS + lane.process
    yield perfetto_packets.track(uuid, parent, "", thread=(pid, tid, name), rank=rank)
    nesting = [track for track in lane.tracks if track.content != "python"]
    within, outside = nested(nesting) if nesting else ([], [])
    yield from writer.slices(uuid, [t.take(r) for t, r in zip(nesting, within, strict=True)])
    rest = [t.take(r) for t, r in zip(nesting, outside, strict=True) if len(r)]
    for track in (*rest, *(track for track in lane.tracks if track.content == "python")):
        below = next(uuids)
        yield perfetto_packets.track(below, uuid, _CONTENT_TITLES[track.content])
        yield from writer.slices(below, [track])


class _Slices:
    """Writes rows of tracks as slices, with their flows and arguments."""

    def __init__(self, trace: Trace, names: NameTable) -> None:
        self._names = names
        self._call = operations(trace).call
        # The operations in order of their launch calls, and the index of each call's first one.
        launched = np.flatnonzero(self._call >= 0)
        self._flows = launched[np.argsort(self._call[launched], kind="stable")]
        calls = np.arange(len(trace.recorded("api_calls")) + 1)
        self._first = np.searchsorted(self._call[self._flows], calls)

    def slices(self, uuid: int, tracks: Sequence[Track]) -> Iterator[bytes]:
        """The packets that begin and end rows that nest, in order of time, a block at a time."""
        tracks = [track for track in tracks if len(track)]
        if not tracks:
            return
        which = np.repeat(np.arange(len(tracks)), [len(track) for track in tracks])
        row = np.concatenate([np.arange(len(track)) for track in tracks])
        start = np.concatenate([track.start_ns for track in tracks])
        end = np.concatenate([last_ns(track) for track in tracks])
        order = edge_order(start, end, disjoint=len(tracks) == 1)
        for first in range(0, len(order), _BLOCK):
            edges = order[first : first + _BLOCK]
            is_end = edges >= len(start)
            ended = perfetto_packets.ends(uuid, end[edges[is_end] - len(start)])
            parts = [(np.flatnonzero(is_end), ended)]
            for number, track in enumerate(tracks):
                begun = np.flatnonzero(~is_end)
                begun = begun[which[edges[begun]] == number]
                shown = track.take(row[edges[begun]])
                parts += [(begun[at], content) for at, content in self._begins(uuid, shown)]
            yield interleaved(parts, len(edges))

    def _begins(self, uuid: int, track: Track) -> Iterator[tuple[Integers, Bytes]]:
        """The packets that begin the rows of a track, by shape.

        Packets of one shape have the same fields beyond name and class.
        """
        shapes: Iterable[tuple[Integers, list[Bytes]]] = [(np.arange(len(track)), [])]
        if track.content == "operations":
            shapes = self._operations(track)
        elif track.content == "calls":
            shapes = self._calls(track)
        for rows, more in shapes:
            name = self._names.place[track.name[rows]].astype(np.int64)
            kind, start = self._names.classes[name], track.start_ns[rows]
            yield rows, perfetto_packets.begins(uuid, start, name + 1, kind + 1, *more)

    def _operations(self, track: Track) -> Iterator[tuple[Integers, list[Bytes]]]:
        launched = (track.source >= 0) & (np.append(self._call, -1)[track.source] >= 0)
        name = self._names.place[track.name].astype(np.int64)
        launch = self._names.launch[name]
        shape = groups.group(launched, launch >= 0, track.bytes > 0)
        for number, first in enumerate(shape.first.tolist()):
            rows = np.flatnonzero(shape.ids == number)
            more: list[Bytes] = []
            if launch[first] >= 0:
                more.append(perfetto_packets.text_annotation(_NAME_KEY, name[rows] + 1))
                texts = launch[rows] + len(self._names) + 1
                more.append(perfetto_packets.text_annotation(_LAUNCH_KEY, texts))
            if track.bytes[first]:
                more.append(perfetto_packets.number_annotation(_BYTES_KEY, track.bytes[rows]))
            if launched[first]:
                ids = track.source[rows].astype(np.int64) + 1
                more.append(perfetto_packets.flow(ids, ends=True))
            yield rows, more

    def _calls(self, track: Track) -> Iterator[tuple[Integers, list[Bytes]]]:
        """Calls by the number of operations that they launched, to each of which a flow leads."""
        number = self._first[track.source + 1] - self._first[track.source]
        for flows in groups.different(number).tolist():
            rows = np.flatnonzero(number == flows)
            first = self._first[track.source[rows]]
            parts = [perfetto_packets.flow(self._flows[first + n] + 1) for n in range(flows)]
            yield rows, [columns(*parts)] if parts else []
