"""The events of a Chrome trace of torch.profiler, as typed structures.

The fields may hold any type: other programs write such traces as well, and a wrong type must cost
one event at most. Times stay the digits of the file: a float of microseconds cannot hold
nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from traceview.base.errors import TraceFormatError
from traceview.traces.trace.kineto import USE_TRACE

NOTHING = msgspec.Raw(b"")


class Arguments(
    msgspec.Struct,
    gc=False,
    rename={
        "python_id": "Python id",
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "graph_node": "graph node id",
        "sync_kind": "cuda_sync_kind",
        "device_type": "Device Type",
        "device_id": "Device Id",
        "allocated_bytes": "Bytes",
        "total_allocated": "Total Allocated",
        "collective": "Collective name",
        "elements_in": "In msg nelems",
        "elements_out": "Out msg nelems",
        "splits_in": "In split size",
        "splits_out": "Out split size",
        "group_size": "Group size",
        "group_name": "Process Group Name",
        "group_ranks": "Process Group Ranks",
        "group_description": "Process Group Description",
        "input_dims": "Input Dims",
        "source_rank": "Src Rank",
        "target_rank": "Dst Rank",
        "copy_kind": "copy kind",
        "source_kind": "src kind",
        "target_kind": "dst kind",
    },
):
    """The arguments that are read; all others are skipped without being decoded."""

    correlation: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    bytes: Any = None
    size: Any = None
    kind: Any = None
    name: Any = None
    labels: Any = None
    dtype: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = None
    shared_memory: Any = None
    graph_node: Any = None
    sync_kind: Any = None
    python_id: Any = None
    device_type: Any = None
    device_id: Any = None
    allocated_bytes: Any = None
    total_allocated: Any = None
    collective: Any = None
    elements_in: Any = None
    elements_out: Any = None
    splits_in: Any = None
    splits_out: Any = None
    group_size: Any = None
    group_name: Any = None
    group_ranks: Any = None
    group_description: Any = None
    source_rank: Any = None
    target_rank: Any = None
    copy_kind: Any = None
    source_kind: Any = None
    target_kind: Any = None
    input_dims: msgspec.Raw = NOTHING


class LooseEvent(msgspec.Struct, gc=False):
    """One event of traceEvents without its arguments, which may be anything but an object."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING


class KinetoEvent(LooseEvent, gc=False):
    """One event of traceEvents."""

    args: Arguments | None = None


Events = Sequence[KinetoEvent]
NO_ARGUMENTS = Arguments()
_EVENTS = msgspec.json.Decoder(list[KinetoEvent])
_VALUES = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(LooseEvent)


MANY = 10_000
"""So many values that are no events are no damage: the file is of another kind."""
_LEAST_BYTES = 16
"""Text of an event on average. The shortest that profilers write, a flow, takes 60 bytes and one
`}`, one with arguments two of them."""


def decode_events(text: bytes) -> list[KinetoEvent]:
    """The events of a JSON array.

    Raises msgspec.DecodeError if it is not a JSON array, TraceFormatError if it holds many values
    too short for events, whose objects would take a hundred times the memory of their text.
    """
    check_length(text.count(b"}"), len(text))
    try:
        return _EVENTS.decode(text)
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    except msgspec.ValidationError:
        return [event for raw in _VALUES.decode(text) if (event := _loose(raw))]


def check_length(events: int, size: int) -> None:
    """Raise TraceFormatError if so many events take so few bytes that they are none."""
    if events > MANY and size < _LEAST_BYTES * events:
        raise no_events()


def no_events() -> TraceFormatError:
    """The error for a list of many other values."""
    what = f"its list of events holds over {MANY:,} values that are no events"
    return TraceFormatError(what, USE_TRACE)


def _loose(raw: msgspec.Raw) -> KinetoEvent | None:
    """An event with fields of unexpected types; None for anything that is not an object."""
    if bytes(memoryview(raw)[:1]) != b"{":
        return None
    try:
        return _EVENTS.decode(b"[" + bytes(raw) + b"]")[0]
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        loose = _ONE.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return KinetoEvent(loose.ph, loose.cat, loose.name, loose.pid, loose.tid, loose.ts, loose.dur)
