"""TracePackets of Perfetto: descriptors of tracks, interned names, slices and counters.

Field numbers are those of perfetto_trace.proto. All packets belong to one sequence, whose first
packet interns every name.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceview.tables import Array, Integers
from traceview.timeline.perfetto.wire import (
    Bytes,
    constants,
    fixed64,
    message,
    messages,
    number,
    text,
    varints,
)

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
