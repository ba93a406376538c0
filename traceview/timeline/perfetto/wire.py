"""Protocol buffers by columns: many messages of the same shape as the rows of one byte array.

A varint may be longer than its value needs. With one width per field all messages of a shape have
the same length, and a field of all of them is written at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceview.tables import Array, Integers

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
