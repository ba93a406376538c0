"""The events of a Chrome trace of torch.profiler, as typed structures.

The fields may hold any type: other programs write such traces as well, and a wrong type must cost
one event at most. Times stay the digits of the file: a float of microseconds cannot hold
nanoseconds since 1970.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from traceview.base.errors import TraceFormatError
from traceview.traces.trace.kineto import USE_TRACE

NOTHING = msgspec.Raw(b"")


class Arguments(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
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


class KinetoEvent(msgspec.Struct, gc=False):
    """One event of traceEvents; in a known category, with only the arguments that `_READ` lists."""

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
_PLACE = "device context stream correlation graph_node"
_COLLECTIVE = (
    "collective elements_in elements_out splits_in splits_out group_size group_name "
    "group_ranks group_description dtype source_rank target_rank"
)
_CALL = "correlation grid block shared_memory size"
_COPY = f"{_PLACE} bytes copy_kind source_kind target_kind"
_KERNEL = f"{_PLACE} grid block registers shared_memory"
_READ = {
    "python_function": "python_id",
    "cpu_op": f"input_dims {_COLLECTIVE}",
    "Operator": f"input_dims {_COLLECTIVE}",
    "cuda_runtime": _CALL,
    "cuda_driver": _CALL,
    "hip_runtime": _CALL,
    "hip_driver": _CALL,
    "Runtime": _CALL,
    "kernel": _KERNEL,
    "Kernel": _KERNEL,
    "gpu_memcpy": _COPY,
    "Memcpy": _COPY,
    "gpu_memset": f"{_PLACE} bytes",
    "Memset": f"{_PLACE} bytes",
    "cuda_sync": f"{_PLACE} sync_kind",
    "cpu_instant_event": "device_type device_id allocated_bytes total_allocated",
    "user_annotation": "",
    "overhead": "",
}
"""The arguments that are read, by category. Fewer fields make smaller objects."""
_UNREAD = ("gpu_user_annotation", "ac2g", "fwdbwd", "async_gpu", "async_cpu_to_gpu", "Trace")
"""Categories whose events are reduced to their phase."""


def _arguments(names: str) -> Any:
    """A Struct type with only these fields of Arguments."""
    wanted = names.split()
    fields = [field for field in msgspec.structs.fields(Arguments) if field.name in wanted]
    assert len(fields) == len(wanted)
    listed = [(field.name, field.type, field.default) for field in fields]
    rename = {field.name: field.encode_name for field in fields}
    return msgspec.defstruct("SomeArguments", listed, gc=False, rename=rename)


def _known() -> Any:
    """A union of event types, told apart by `cat`."""
    shared: list[tuple[str, Any, Any]] = [
        (field.name, field.type, field.default)
        for field in msgspec.structs.fields(KinetoEvent)
        if field.name not in ("cat", "args")
    ]
    fields_of = {
        name: [*shared, ("args", _arguments(names) | None, None)] for name, names in _READ.items()
    }
    fields_of |= {name: [("ph", Any, None)] for name in _UNREAD}
    kinds: list[Any] = [
        msgspec.defstruct(
            f"Event_{name}", fields, gc=False, tag_field="cat", tag=name, namespace={"cat": name}
        )
        for name, fields in fields_of.items()
    ]
    return functools.reduce(operator.or_, kinds)


_KNOWN = msgspec.json.Decoder(list[_known()])  # type: ignore[misc]
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
        for decoder in (_KNOWN, _EVENTS):
            try:
                return cast(list[KinetoEvent], decoder.decode(text))
            except msgspec.ValidationError:
                # First an unknown category, or none, as in metadata events; then a wrong type.
                continue
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
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
