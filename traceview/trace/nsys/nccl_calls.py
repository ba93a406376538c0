"""Calls of NCCL, from the ranges of its NVTX domain and their payloads.

NCCL has named its ranges after its functions since 2.4, and added a structure since 2.18, with the
communicator since 2.24: src/include/nvtx.h and nvtx_payload_schemas.h of NCCL. The bytes of a call
are those of one message: of the send buffer of an all-gather, of the receive buffer of a
reduce-scatter, and for one peer of an all-to-all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from traceview.tables import NULL, Integers, Mask, Texts, constant
from traceview.trace.impossible_rows import MOST_BYTES
from traceview.trace.nsys import payloads
from traceview.trace.nsys.names import first_of
from traceview.trace.nsys.ranges import NvtxEvents
from traceview.trace.nsys.rows import Rows
from traceview.trace.nsys.tables import Reader
from traceview.trace.sqlite.file import Database
from traceview.trace.staged import INT32, Staged, absent_texts

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
_MESSAGE = {_COMMUNICATOR: payloads.Field(0, 8), _BYTES: payloads.Field(8, 8)}
_WITH_ROOT = {**_MESSAGE, _ROOT: payloads.Field(16, 4)}
_WITH_PEER = {**_MESSAGE, _PEER: payloads.Field(16, 4)}
_CREATED = {
    _COMMUNICATOR: payloads.Field(0, 8),
    _RANKS: payloads.Field(8, 4),
    _RANK: payloads.Field(12, 4),
}
_STATIC: Mapping[int, Mapping[str, payloads.Field]] = {
    **dict.fromkeys((0, 2, 3, 11, 12), _CREATED),
    **dict.fromkeys((4, 5, 7, 16), _MESSAGE),
    **dict.fromkeys((6, 8), _WITH_ROOT),
    **dict.fromkeys((9, 10), _WITH_PEER),
}


def nccl_tables(reader: Reader, events: NvtxEvents) -> dict[str, Staged]:
    """The staged tables collective_calls and communicators; none without ranges of NCCL."""
    # NCCL's domain has its name, or if that was not recorded, its schemas.
    domains = {domain for (_, domain), name in events.domains.items() if name == DOMAIN}
    for domain, schemas in payloads.schemas_of(reader.export.database).items():
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
        return payloads.decoded(blobs, nccl_schemas(database, domains), FIELDS)
    ids = sorted({number for number in numbers if isinstance(number, int)})
    if ids:
        named = dict(zip(ids, reader.names.of(np.array(ids, np.int64)), strict=True))
        texts = [named.get(n, t) for n, t in zip(numbers, texts, strict=True)]
    return payloads.parsed(texts, FIELDS)


def nccl_schemas(database: Database, domains: Collection[int] | None = None) -> payloads.Schemas:
    """The schemas of NCCL's payloads: its static ones, and those described in these domains."""
    schemas_by_id = {
        payloads.FIRST_STATIC_ID + number: fields for number, fields in _STATIC.items()
    }
    for domain, schemas in payloads.schemas_of(database).items():
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
        "bytes": payloads.bounded(fields[_BYTES][chosen], MOST_BYTES),
        "total_bytes": constant(NULL, len(rows), np.int64),
        "bus_bytes": constant(NULL, len(rows), np.int64),
        "peer": _narrow(peer[chosen]),
    }


def _communicators(
    reader: Reader, rows: Rows, names: Texts, fields: Mapping[str, Integers]
) -> Staged:
    chosen = (
        names.isin(OF_COMMUNICATORS)
        & (payloads.bounded(fields[_RANKS]) > 0)
        & (fields[_COMMUNICATOR] != NULL)
    )
    chosen &= payloads.bounded(fields[_RANK]) >= 0
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
    sound = payloads.bounded(values)
    return np.where(sound == NULL, INT32.min, sound).astype(np.int32)
