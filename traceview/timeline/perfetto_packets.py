"""TracePackets of Perfetto, written as protocol buffers column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from traceview.tables import Array, Integers

# Protocol buffers by columns: many messages of the same shape as the rows of one byte array.
#
# A varint may be longer than its value needs. With one width per field all messages of a shape
# have the same length, and a field of all of them is written at once.

Bytes = npt.NDArray[np.uint8]
VARINT, FIXED64, LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """The shortest varint of a number; one below 0 has the bits of its 64-bit complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


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


def track(
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
