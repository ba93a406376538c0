"""NVTX ranges and marks of an nsys export."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from traceview.records import record
from traceview.tables import NULL, Integers, Mask, Texts, constant, object_array, picked
from traceview.tables.numbers import numbered
from traceview.tables.packed_texts import packed
from traceview.trace.nsys.names import (
    UNNAMED,
    filled,
    first_of,
    meanings,
    numbered_pairs,
)
from traceview.trace.nsys.processes import ABSENT
from traceview.trace.nsys.rows import ExportTable, Rows
from traceview.trace.nsys.tables import Reader
from traceview.trace.staged import Staged, numbers_of

RANGES = ExportTable(
    "NVTX_EVENTS",
    ("start", "end", "eventType"),
    ("globalTid", "endGlobalTid", "textId", "domainId"),
    ("text",),
)
PAYLOADS = ExportTable(
    "NVTX_EVENTS", ("start",), ("int64Value", "uint64Value", "int32Value", "uint32Value")
)
# Placeholder in a range name for its payload: see facts.work.declared.
REFERS_TO_PAYLOAD = b'"payload"'
# The second of each kind comes from an imported NVTXT file.
KINDS = {59: "push-pop", 70: "push-pop", 60: "start-end", 71: "start-end", 34: "mark", 65: "mark"}
MARK = 34
DOMAIN_CREATE = 75
DEFAULT_DOMAIN = 0


@record
class NvtxEvents:
    """Rows of NVTX_EVENTS, and the names of domains by (process, domain id)."""

    rows: Rows
    domains: Mapping[tuple[int, int], str]

    def of_domains(self, reader: Reader, names: Collection[str]) -> Mask:
        """True for the marks whose domain has one of `names`."""
        wanted = [key for key, name in self.domains.items() if name in names]
        result: Mask = np.zeros(len(self.rows), bool)
        if wanted:
            _, process = reader.owners.threads(self.rows)
            domain, mark = self.rows.integer("domainId"), self.rows.cells("eventType") == MARK
            for owner, domain_id in wanted:
                result |= mark & (domain == domain_id) & (process == owner)
        return result


def nvtx_events(reader: Reader) -> NvtxEvents | None:
    """The NVTX events of the export; None if none were recorded."""
    rows = reader.export.rows(RANGES)
    if rows is None:
        return None
    created = rows.where(rows.cells("eventType") == DOMAIN_CREATE)
    _, process = reader.owners.threads(created)
    ids, names = created.integer("domainId").tolist(), _texts(reader, created).decode()
    keyed = zip(process.tolist(), ids, names, strict=True)
    return NvtxEvents(rows, {(owner, id_): name for owner, id_, name in keyed if name is not None})


def ranges(reader: Reader, events: NvtxEvents, stacks: Mask) -> Staged:
    """Ranges and marks in file order, without other NVTX events and the marks in `stacks`."""
    distinct, code = numbered(events.rows.cells("eventType"))
    known = picked(np.isin(distinct, list(KINDS)), code) & ~stacks
    rows = events.rows if known.all() else events.rows.where(known)
    on_thread = reader.on_thread(rows)
    names = filled(_texts(reader, rows), UNNAMED)
    keys, codes = numbered_pairs(numbers_of(on_thread, "process"), rows.integer("domainId"))
    domains = [None if key[1] == DEFAULT_DOMAIN else events.domains.get(key) for key in keys]
    end_thread = constant(ABSENT, len(rows), np.int32)
    if not rows.numbers("endGlobalTid").is_absent:
        ended = ~rows.null("endGlobalTid")
        end_thread = np.full(len(rows), ABSENT, np.int32)
        end_thread[ended] = reader.owners.threads(rows.where(ended), "endGlobalTid")[0]
    return {
        **on_thread,
        "end_thread": end_thread,
        "name": names,
        "domain": Texts(codes, object_array(domains)).map(domains),
        "kind": meanings(rows.cells("eventType"), KINDS),
        "payload": _payloads(reader, names, known),
    }


def _payloads(reader: Reader, names: Texts, known: Mask) -> Integers:
    """The integer payload of each range, read only if a range name refers to it."""
    payload = constant(NULL, len(names), np.int64)
    if not packed(names).holds(REFERS_TO_PAYLOAD):
        return payload
    rows = reader.export.rows(PAYLOADS)
    if rows is None:
        return payload
    for column in PAYLOADS.optional:
        payload = np.where(payload == NULL, rows.nullable(column)[known], payload)
    return payload


def _texts(reader: Reader, rows: Rows) -> Texts:
    # torch stores the text itself; registered strings are ids.
    return first_of(rows.texts("text"), reader.named(rows, "textId", None))
