"""A timeline as a Perfetto trace: protocol buffers written column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt

from traceview.base import groups, intervals
from traceview.base.tables import Array, Integers, Mask
from traceview.traces.facts.operations import operations
from traceview.traces.timeline.lanes import device_title
from traceview.traces.timeline.timeline import Timeline
from traceview.traces.timeline.tracks import CLASSES, Lane, NameTable, Track
from traceview.traces.trace import Trace
from traceview.traces.trace.perfetto import varint

# Protocol buffers by columns: many messages of the same shape as the rows of one byte array.
#
# A varint may be longer than its value needs. With one width per field all messages of a shape
# have the same length, and a field of all of them is written at once.

Bytes = npt.NDArray[np.uint8]
VARINT, FIXED64, LENGTH = 0, 1, 2


def tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A varint field of one message."""
    return tag(field, VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """A field that holds a message, text or bytes."""
    content = b"".join(parts)
    return tag(field, LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A text field; what UTF-8 cannot hold becomes a question mark."""
    return message(field, value.encode("utf-8", "replace"))


def constants(rows: int, content: bytes) -> Bytes:
    """An array of `rows` rows that all are `content`."""
    return np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content)))


def varints(field: int, values: Array) -> Bytes:
    """A varint field of every row, all as wide as the largest value needs."""
    width = max(-(-int(values.max(initial=0)).bit_length() // 7), 1)
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    groups = (values.astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)
    groups[:, :-1] |= np.uint64(0x80)
    return columns(constants(len(values), tag(field, VARINT)), groups.astype(np.uint8))


def fixed64(field: int, values: Integers) -> Bytes:
    """A fixed64 field of every row."""
    content = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(len(values), 8)
    return columns(constants(len(values), tag(field, FIXED64)), content)


def columns(*parts: Bytes) -> Bytes:
    """The parts of each row, one after the other."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def messages(field: int, *parts: Bytes) -> Bytes:
    """A field of every row that holds a message of these parts, all of the same length."""
    content = columns(*parts)
    head = tag(field, LENGTH) + varint(content.shape[1])
    return columns(constants(len(content), head), content)


def interleaved(parts: Sequence[tuple[Integers, Bytes]], rows: int) -> bytes:
    """Rows of several shapes in one order; each part gives the places of its rows."""
    widest = max(content.shape[1] for _, content in parts)
    padded = np.empty((rows, widest), np.uint8)
    length = np.empty(rows, np.int64)
    for places, content in parts:
        padded[places, : content.shape[1]] = content
        length[places] = content.shape[1]
    return padded[np.arange(widest) < length[:, None]].tobytes()


# TracePackets of Perfetto: descriptors of tracks, interned names, slices and counters.
#
# Field numbers are those of perfetto_trace.proto. All packets belong to one sequence, whose first
# packet interns every name.

PACKET = 1
_TIMESTAMP, _TRACK_EVENT, _INTERNED, _DESCRIPTOR = 8, 11, 12, 60
_SEQUENCE = number(10, 1)
_CLEARED, _NEEDED = number(13, 1), number(13, 2)
_TYPE, _TRACK, _NAME, _CATEGORY, _COUNTER_VALUE = 9, 11, 10, 3, 30
_ANNOTATION, _FLOW, _ENDING_FLOW = 4, 47, 48
_BEGIN, _END, _COUNTER = 1, 2, 4
UNIT_COUNT, UNIT_BYTES = 2, 3


def track_packet(
    uuid: int,
    parent: int,
    name: str,
    *,
    process: tuple[int, str] | None = None,
    thread: tuple[int, int, str] | None = None,
    unit: int | str | None = None,
    rank: int = 0,
) -> bytes:
    """A TrackDescriptor. `process` is pid and name, `thread` pid, tid and name.

    `unit` makes it a counter: UNIT_COUNT, UNIT_BYTES, or the name of another unit.
    """
    parts = [number(1, uuid), number(12, rank), number(11, 3)]
    parts += [number(5, parent)] if parent else []
    if process:
        parts.append(message(3, number(1, process[0]), text(6, process[1])))
    elif thread:
        parts.append(message(4, number(1, thread[0]), number(2, thread[1]), text(5, thread[2])))
    else:
        parts.append(text(2, name))
    if unit is not None:
        parts.append(message(8, text(6, unit) if isinstance(unit, str) else number(3, unit)))
    return message(PACKET, _SEQUENCE, message(_DESCRIPTOR, *parts))


def interned(
    names: Iterable[str], categories: Iterable[str], keys: Iterable[str], values: Iterable[str]
) -> bytes:
    """All names, categories, and keys and texts of annotations, each numbered from 1."""
    parts = [
        message(field, number(1, at), text(2, value))
        for field, listed in ((2, names), (1, categories), (3, keys), (29, values))
        for at, value in enumerate(listed, 1)
    ]
    return message(PACKET, _SEQUENCE, _CLEARED, message(_INTERNED, *parts))


def begins(uuid: int, time: Integers, name: Array, category: Array, *more: Bytes) -> Bytes:
    """Packets that begin slices; `name` and `category` are interned, numbered from 1."""
    kind = constants(len(time), number(_TYPE, _BEGIN) + number(_TRACK, uuid))
    return _packets(time, kind, varints(_NAME, name), varints(_CATEGORY, category), *more)


def ends(uuid: int, time: Integers) -> Bytes:
    """Packets that end the innermost slice of a track."""
    return _packets(time, constants(len(time), number(_TYPE, _END) + number(_TRACK, uuid)))


def counted(uuid: int, time: Integers, value: Integers) -> Bytes:
    """Packets with values of a counter."""
    kind = constants(len(time), number(_TYPE, _COUNTER) + number(_TRACK, uuid))
    return _packets(time, kind, varints(_COUNTER_VALUE, value))


def flow(ids: Integers, *, ends: bool = False) -> Bytes:
    """A flow that starts at each slice, or ends there."""
    return fixed64(_ENDING_FLOW if ends else _FLOW, ids)


def text_annotation(key: int, value: Array) -> Bytes:
    """An annotation of each slice: an interned key, and an interned text."""
    return messages(_ANNOTATION, constants(len(value), number(1, key)), varints(17, value))


def number_annotation(key: int, value: Array) -> Bytes:
    """An annotation of each slice with a number ≥ 0."""
    return messages(_ANNOTATION, constants(len(value), number(1, key)), varints(3, value))


def _packets(time: Integers, *event: Bytes) -> Bytes:
    head = constants(len(time), _SEQUENCE + _NEEDED)
    return messages(
        PACKET, varints(_TIMESTAMP, np.asarray(time)), head, messages(_TRACK_EVENT, *event)
    )


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
        crossed = crossing(intervals.Intervals(start[kept], end[kept]))
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
    return np.maximum(track.end_ns, track.start_ns + 1)


def crossing(spans: intervals.Intervals) -> Mask:
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
_UNITS: Mapping[str, int | str] = {"operations": UNIT_COUNT, "bytes": UNIT_BYTES, "pct": "%"}
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
    yield interned(texts, CLASSES, _KEYS, [*whole, *launched])
    yield track_packet(_RUN, 0, "Run", rank=0)
    for device in range(len(trace.devices)):
        yield track_packet(_FIRST_DEVICE + device, 0, device_title(trace, device), rank=1 + device)
    processes = zip(*map(trace.processes.cells, ("process_id", "name")), strict=True)
    for process, (pid, name) in enumerate(processes):
        owner = int(str(pid)), str(name or "")
        yield track_packet(_FIRST_PROCESS + process, 0, "", process=owner)
    uuids = count(_FIRST_OTHER)
    writer = _Slices(trace, names)
    for rank, lane in enumerate(timeline.lanes):
        if lane.kind == "thread":
            yield from _thread(trace, lane, writer, uuids, rank)
            continue
        parent = _FIRST_DEVICE + lane.device if lane.device >= 0 else _RUN
        for track in lane.tracks:
            uuid = next(uuids)
            yield track_packet(uuid, parent, lane.title, rank=rank)
            yield from writer.slices(uuid, [track])
    for counter in timeline.counters:
        uuid = next(uuids)
        parent = _FIRST_DEVICE + counter.device
        yield track_packet(uuid, parent, counter.title, unit=_UNITS[counter.unit])
        yield counted(uuid, counter.time_ns, counter.value).tobytes()


def _thread(
    trace: Trace, lane: Lane, writer: _Slices, uuids: Iterator[int], rank: int
) -> Iterator[bytes]:
    """Ranges and calls as one tree of slices; what does not nest, and samples, on tracks below."""
    uuid = next(uuids)
    pid = int(trace.processes["process_id"][lane.process])
    tid = int(trace.threads["thread_id"][lane.thread])
    name = trace.threads.texts("name")[lane.thread] or ""
    parent = _FIRST_PROCESS + lane.process
    yield track_packet(uuid, parent, "", thread=(pid, tid, name), rank=rank)
    nesting = [track for track in lane.tracks if track.content != "python"]
    within, outside = nested(nesting) if nesting else ([], [])
    yield from writer.slices(uuid, [t.take(r) for t, r in zip(nesting, within, strict=True)])
    rest = [t.take(r) for t, r in zip(nesting, outside, strict=True) if len(r)]
    for track in (*rest, *(track for track in lane.tracks if track.content == "python")):
        below = next(uuids)
        yield track_packet(below, uuid, _CONTENT_TITLES[track.content])
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
            ended = ends(uuid, end[edges[is_end] - len(start)])
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
            yield rows, begins(uuid, start, name + 1, kind + 1, *more)

    def _operations(self, track: Track) -> Iterator[tuple[Integers, list[Bytes]]]:
        launched = (track.source >= 0) & (np.append(self._call, -1)[track.source] >= 0)
        name = self._names.place[track.name].astype(np.int64)
        launch = self._names.launch[name]
        shape = groups.group(launched, launch >= 0, track.bytes > 0)
        for number, first in enumerate(shape.first.tolist()):
            rows = np.flatnonzero(shape.ids == number)
            more: list[Bytes] = []
            if launch[first] >= 0:
                more.append(text_annotation(_NAME_KEY, name[rows] + 1))
                texts = launch[rows] + len(self._names) + 1
                more.append(text_annotation(_LAUNCH_KEY, texts))
            if track.bytes[first]:
                more.append(number_annotation(_BYTES_KEY, track.bytes[rows]))
            if launched[first]:
                ids = track.source[rows].astype(np.int64) + 1
                more.append(flow(ids, ends=True))
            yield rows, more

    def _calls(self, track: Track) -> Iterator[tuple[Integers, list[Bytes]]]:
        """Calls by the number of operations that they launched, to each of which a flow leads."""
        number = self._first[track.source + 1] - self._first[track.source]
        for flows in groups.different(number).tolist():
            rows = np.flatnonzero(number == flows)
            first = self._first[track.source[rows]]
            parts = [flow(self._flows[first + n] + 1) for n in range(flows)]
            yield rows, [columns(*parts)] if parts else []
