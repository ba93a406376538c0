"""The events of a Chrome trace of torch.profiler, as typed structures.

The fields may hold any type: other programs write such traces as well, and a wrong type must cost
one event at most. Times stay the digits of the file: a float of microseconds cannot hold
nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

Scalar = int | float | str | None
NOTHING = msgspec.Raw(b"")


class Arguments(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "python_id": "Python id",
        "python_parent": "Python parent id",
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
        "group_size": "Group size",
        "group_name": "Process Group Name",
        "group_ranks": "Process Group Ranks",
        "input_dims": "Input Dims",
        "source_rank": "Src Rank",
        "target_rank": "Dst Rank",
    },
):
    """The arguments that are read; others are skipped without being decoded."""

    external_id: Any = None
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
    python_parent: Any = None
    device_type: Any = None
    device_id: Any = None
    allocated_bytes: Any = None
    total_allocated: Any = None
    collective: Any = None
    elements_in: Any = None
    elements_out: Any = None
    group_size: Any = None
    group_name: Any = None
    group_ranks: Any = None
    source_rank: Any = None
    target_rank: Any = None
    input_dims: msgspec.Raw = NOTHING


class KinetoEvent(msgspec.Struct, gc=False):
    """One event of traceEvents."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    args: Arguments | None = None


class LooseEvent(msgspec.Struct):
    """An event whose arguments are anything but an object."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING


Events = Sequence[KinetoEvent]
NO_ARGUMENTS = Arguments()
_EVENTS = msgspec.json.Decoder(list[KinetoEvent])
_VALUES = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(LooseEvent)


def decode_events(text: bytes) -> list[KinetoEvent]:
    """The events of a JSON array. Raises msgspec.DecodeError if it is no JSON array."""
    try:
        return _EVENTS.decode(text)
    except msgspec.ValidationError:
        pass
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    return [event for raw in _VALUES.decode(text) if (event := _loose(raw))]


def _loose(raw: msgspec.Raw) -> KinetoEvent | None:
    """An event of unexpected types; None for anything that is no object."""
    try:
        return _EVENTS.decode(b"[" + bytes(raw) + b"]")[0]
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        loose = _ONE.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return KinetoEvent(loose.ph, loose.cat, loose.name, loose.pid, loose.tid, loose.ts, loose.dur)
