"""Calls of NCCL, from the ranges of its NVTX domain and their extended payloads.

NCCL has named its ranges after its functions since 2.4, and added a structure since 2.18, with the
communicator since 2.24: src/include/nvtx.h and nvtx_payload_schemas.h of NCCL. The bytes of a call
are those of one message: of the send buffer of an all-gather, of the receive buffer of a
reduce-scatter, and for one peer of an all-to-all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from traceview.base.records import record
from traceview.base.tables import NULL, Integers, Mask, Texts, constant, object_array
from traceview.traces.trace.nsys.ranges import NvtxEvents
from traceview.traces.trace.nsys.rows import Rows, first_of
from traceview.traces.trace.nsys.tables import Reader
from traceview.traces.trace.sqlite.file import Database
from traceview.traces.trace.staged import INT32, MOST_BYTES, Staged, absent_texts

# Extended NVTX payloads: structures of integers that a library attaches to its ranges.
#
# nsys exports the structures of a range as JSON (`nsys export --include-json=true`), or as they
# were in memory (`--include-blobs=true`): a header with their number and the schema, size and
# offset of each, then the bytes. NVTX_PAYLOAD_SCHEMA_ENTRIES lists the fields. Only the first
# structure is read.

ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
FIRST_STATIC_ID = 1 << 24
"""Ids of schemas that a library numbers itself count from here (nvToolsExtPayload.h)."""
HEADER = np.dtype([(name, "<u8") for name in ("count", "schema", "size", "offset")])
# Bytes of the integer types of nvToolsExtPayload.h, as on 64-bit Linux: int, unsigned, long,
# unsigned long and long long, the types of fixed width, size_t.
_WIDTHS = {5: 4, 6: 4, 7: 8, 8: 8, 9: 8, 10: 8, 15: 4, 16: 4, 17: 8, 18: 8, 22: 8}
_LARGEST = 1 << 16


@record
class Field:
    """An integer of a structure: its first byte, and its size in bytes."""

    offset: int
    size: int


Schemas = Mapping[int, Mapping[str, Field]]
"""Map of schema id to the fields by name."""


def schemas_of(database: Database) -> Mapping[int, Schemas]:
    """The integer fields of every schema that the export describes, by domain id."""
    names = ("domainId", "schemaId", "type", "offset", "name")
    found: dict[int, dict[int, dict[str, Field]]] = {}
    for *numbers, name in database.lines(ENTRIES, names):
        # nsys leaves the offset of the first field NULL.
        place = [0 if number is None else number for number in numbers]
        if not isinstance(name, str) or not all(isinstance(number, int) for number in place):
            continue
        domain, schema, kind, offset = (int(str(number)) for number in place)
        if kind in _WIDTHS and 0 <= offset <= _LARGEST:
            schemas = found.setdefault(domain, {})
            schemas.setdefault(schema, {})[name] = Field(offset, _WIDTHS[kind])
    return found


def decoded(blobs: Sequence[object], schemas: Schemas, names: Sequence[str]) -> dict[str, Integers]:
    """The named fields of each structure, NULL where it lacks one or is damaged.

    Unsigned numbers from 2^63 on wrap.
    """
    result = {name: np.full(len(blobs), NULL) for name in names}
    lengths = np.array([len(b) if isinstance(b, bytes) else -1 for b in blobs], np.int64)
    cells = object_array(blobs)
    for length in np.unique(lengths[(lengths >= HEADER.itemsize) & (lengths <= _LARGEST)]).tolist():
        rows = np.flatnonzero(lengths == length)
        raw = np.frombuffer(b"".join(cells[rows]), np.uint8).reshape(-1, length)
        header = raw[:, : HEADER.itemsize].copy().view(HEADER)[:, 0]
        for schema, offset in np.unique(header[["schema", "offset"]]).tolist():
            own = (header["schema"] == schema) & (header["offset"] == offset)
            for name, field in schemas.get(schema, {}).items():
                if name in result and offset + field.offset + field.size <= length:
                    field_bytes = raw[own, offset + field.offset :][:, : field.size]
                    numbers = field_bytes.copy().view("<i8" if field_bytes.shape[1] == 8 else "<i4")
                    result[name][rows[own]] = numbers[:, 0].astype(np.int64)
    return result


def masked(blob: object, schemas: Schemas, names: Sequence[str]) -> bytes | None:
    """A structure with all bytes 0 but its header and the named fields; None if damaged."""
    if not isinstance(blob, bytes) or not HEADER.itemsize <= len(blob) <= _LARGEST:
        return None
    count, schema, size, offset = np.frombuffer(blob, HEADER, 1)[0].tolist()
    if schema not in schemas or max(count, size, offset) > _LARGEST:
        return None
    result = bytearray(len(blob))
    result[: HEADER.itemsize] = blob[: HEADER.itemsize]
    for name, field in schemas[schema].items():
        start = offset + field.offset
        if name in names and start + field.size <= len(blob):
            result[start : start + field.size] = blob[start : start + field.size]
    return bytes(result)


def parsed(texts: Sequence[object], names: Sequence[str]) -> dict[str, Integers]:
    """As `decoded`, from the JSON of the structures. Equal texts are parsed once."""
    result = {name: np.full(len(texts), NULL) for name in names}
    known: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        if isinstance(text, str):
            if text not in known:
                known[text] = _parsed(text, names)
            for name, value in zip(names, known[text], strict=True):
                result[name][row] = value
    return result


def _parsed(text: str, names: Sequence[str]) -> list[int]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [NULL] * len(names)
    parsed: dict[str, object] = {}
    # The structure is the whole text, or the value of its schema's name.
    for level in (whole, *(whole.values() if isinstance(whole, dict) else ())):
        parsed |= level if isinstance(level, dict) else {}
    return [_integer(parsed.get(name)) for name in names]


def _integer(value: object) -> int:
    """An integer, which JSON may hold as text, wrapped from 2^63 on as in `decoded`; or NULL."""
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**64:
        return NULL
    return value - 2**64 if value >= 2**63 else value


def bounded(values: Integers, most: int = int(INT32.max)) -> Integers:
    """The values from 0 to `most`, NULL for the others."""
    return np.where((values >= 0) & (values <= most), values, NULL)


DOMAIN = "NCCL"
PUSH_POP = 59
KINDS = {
    "ncclAllGather": "all-gather",
    "ncclAllReduce": "all-reduce",
    "ncclAlltoAll": "all-to-all",
    "ncclBroadcast": "broadcast",
    "ncclGather": "gather",
    "ncclRecv": "receive",
    "ncclReduce": "reduce",
    "ncclReduceScatter": "reduce-scatter",
    "ncclScatter": "scatter",
    "ncclSend": "send",
    "ncclGroupStart": "group-start",
    "ncclGroupEnd": "group-end",
}
# NCCL 2.28 attaches no payload to ncclCommSplit, which torch.distributed.new_group calls, but does
# to the end of the communicator.
OF_COMMUNICATORS = frozenset(
    f"ncclComm{name}"
    for name in (
        *("InitRank", "InitRankConfig", "InitRankScalable", "Split", "Shrink", "Grow"),
        *("Destroy", "Abort"),
    )
)
_COMMUNICATOR, _BYTES = "NCCL communicator ID", "Message size [bytes]"
_PEER, _ROOT, _RANKS, _RANK = "Peer rank", "Root", "No. of ranks", "Rank"
FIELDS = (_COMMUNICATOR, _BYTES, _PEER, _ROOT, _RANKS, _RANK)
"""Fields of a payload that are read."""
# Schemas of NCCL 2.24 and newer, by NCCL's own number: for exports that lack their description.
_MESSAGE = {_COMMUNICATOR: Field(0, 8), _BYTES: Field(8, 8)}
_WITH_ROOT = {**_MESSAGE, _ROOT: Field(16, 4)}
_WITH_PEER = {**_MESSAGE, _PEER: Field(16, 4)}
_CREATED = {_COMMUNICATOR: Field(0, 8), _RANKS: Field(8, 4), _RANK: Field(12, 4)}
_STATIC: Mapping[int, Mapping[str, Field]] = {
    **dict.fromkeys((0, 2, 3, 11, 12), _CREATED),
    **dict.fromkeys((4, 5, 7, 16), _MESSAGE),
    **dict.fromkeys((6, 8), _WITH_ROOT),
    **dict.fromkeys((9, 10), _WITH_PEER),
}


def nccl_tables(reader: Reader, events: NvtxEvents) -> dict[str, Staged]:
    """The staged tables collective_calls and communicators; none without ranges of NCCL."""
    # NCCL's domain has its name, or if that was not recorded, its schemas.
    domains = {domain for (_, domain), name in events.domains.items() if name == DOMAIN}
    for domain, schemas in schemas_of(reader.export.database).items():
        if any(_COMMUNICATOR in fields for fields in schemas.values()):
            domains.add(domain)
    if not domains:
        return {}
    of_nccl = np.isin(events.rows.integer("domainId"), list(domains))
    of_nccl &= events.rows.integer("eventType") == PUSH_POP
    rows = events.rows.where(of_nccl)
    if not len(rows):
        return {}
    names = first_of(rows.texts("text"), reader.named(rows, "textId", None))
    fields = _payloads(reader, domains, len(rows))
    communicators = _communicators(reader, rows, names, fields)
    return {"collective_calls": _calls(reader, rows, names, fields), "communicators": communicators}


def _payloads(reader: Reader, domains: set[int], count: int) -> Mapping[str, Integers]:
    """The payload fields (FIELDS) of each range, NULL where the export has no payload."""
    absent = {name: np.full(count, NULL) for name in FIELDS}
    database = reader.export.database
    if not {"binaryData", "jsonText"} & set(database.describe("NVTX_EVENTS").columns):
        return absent
    lines = database.lines_of(
        "NVTX_EVENTS",
        ("binaryData", "jsonText", "jsonTextId"),
        {"domainId": sorted(domains), "eventType": [PUSH_POP]},
    )
    if len(lines) != count:
        return absent
    blobs, texts, numbers = (list(cells) for cells in zip(*lines, strict=True))
    if any(blob is not None for blob in blobs):
        return decoded(blobs, nccl_schemas(database, domains), FIELDS)
    ids = sorted({number for number in numbers if isinstance(number, int)})
    if ids:
        named = dict(zip(ids, reader.names.of(np.array(ids, np.int64)), strict=True))
        texts = [named.get(n, t) for n, t in zip(numbers, texts, strict=True)]
    return parsed(texts, FIELDS)


def nccl_schemas(database: Database, domains: Collection[int] | None = None) -> Schemas:
    """The schemas of NCCL's payloads: its static ones, and those described in these domains."""
    schemas_by_id = {FIRST_STATIC_ID + number: fields for number, fields in _STATIC.items()}
    for domain, schemas in schemas_of(database).items():
        schemas_by_id |= schemas if domains is None or domain in domains else {}
    return schemas_by_id


def _calls(reader: Reader, rows: Rows, names: Texts, fields: Mapping[str, Integers]) -> Staged:
    kinds = names.map([KINDS.get(str(name)) for name in names.values])
    chosen: Mask = kinds.codes >= 0
    rows = rows.where(chosen)
    peer = np.where(fields[_PEER] == NULL, fields[_ROOT], fields[_PEER])
    return {
        **reader.on_thread(rows),
        "kind": kinds.take(chosen),
        "communicator": fields[_COMMUNICATOR][chosen],
        "bytes": bounded(fields[_BYTES][chosen], MOST_BYTES),
        "total_bytes": constant(NULL, len(rows), np.int64),
        "bus_bytes": constant(NULL, len(rows), np.int64),
        "peer": _narrow(peer[chosen]),
    }


def _communicators(
    reader: Reader, rows: Rows, names: Texts, fields: Mapping[str, Integers]
) -> Staged:
    chosen = (
        names.isin(OF_COMMUNICATORS)
        & (bounded(fields[_RANKS]) > 0)
        & (fields[_COMMUNICATOR] != NULL)
    )
    chosen &= bounded(fields[_RANK]) >= 0
    _, process = reader.owners.threads(rows.where(chosen))
    communicator, rank = fields[_COMMUNICATOR][chosen], fields[_RANK][chosen]
    once = np.unique(np.stack((process, communicator, rank)), axis=1, return_index=True)[1]
    return {
        "process": process[once],
        "communicator": communicator[once],
        "ranks": _narrow(fields[_RANKS][chosen][once]),
        "rank": _narrow(rank[once]),
        "name": absent_texts(len(once)),
        "members": absent_texts(len(once)),
    }


def _narrow(values: Integers) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    sound = bounded(values)
    return np.where(sound == NULL, INT32.min, sound).astype(np.int32)
