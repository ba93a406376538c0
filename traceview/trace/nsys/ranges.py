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
    Names,
    filled,
    first_of,
    meanings,
    numbered_pairs,
)
from traceview.trace.nsys.processes import ABSENT, Codes
from traceview.trace.nsys.rows import ExportTable, Rows, Staged
from traceview.trace.nsys.tables import Reader

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
        if not wanted:
            return result
        _, process = reader.owners.threads(self.rows)
        domain, mark = self.rows.integer("domainId"), self.rows.cells("eventType") == MARK
        for owner, number in wanted:
            result |= (domain == number) & (process == owner)
        result &= mark
        return result


def nvtx_events(reader: Reader) -> NvtxEvents | None:
    """The NVTX events of the export; None if none were recorded."""
    rows = reader.export.rows(RANGES)
    return None if rows is None else NvtxEvents(rows, _domain_names(reader, rows))


def ranges(reader: Reader, events: NvtxEvents, stacks: Mask) -> Staged:
    """Ranges and marks in file order, without other NVTX events and the marks in `stacks`."""
    distinct, code = numbered(events.rows.cells("eventType"))
    known = picked(np.isin(distinct, list(KINDS)), code) & ~stacks
    rows, domains = events.rows if known.all() else events.rows.where(known), events.domains
    thread, process = reader.owners.threads(rows)
    names = filled(_texts(reader.names, rows), UNNAMED)
    return {
        **rows.span(),
        "thread": thread,
        "process": process,
        "end_thread": _end_threads(reader, rows),
        "name": names,
        "domain": _domains(process, rows.integer("domainId"), domains),
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


def _texts(names: Names, rows: Rows) -> Texts:
    # torch stores the text itself; registered strings are ids.
    return first_of(rows.texts("text"), names.texts(rows.numbers("textId")))


def _end_threads(reader: Reader, rows: Rows) -> Codes:
    if rows.numbers("endGlobalTid").is_absent:
        return constant(ABSENT, len(rows), np.int32)
    known = ~rows.null("endGlobalTid")
    threads = np.full(len(rows), ABSENT, np.int32)
    threads[known] = reader.owners.threads(rows.where(known), "endGlobalTid")[0]
    return threads


def _domain_names(reader: Reader, events: Rows) -> dict[tuple[int, int], str]:
    """Domain names by (process, domain id): ids repeat between processes."""
    created = events.where(events.cells("eventType") == DOMAIN_CREATE)
    _, process = reader.owners.threads(created)
    named = _texts(reader.names, created).decode()
    ids = created.integer("domainId").tolist()
    keyed = zip(process.tolist(), ids, named, strict=True)
    return {(owner, domain): name for owner, domain, name in keyed if name is not None}


def _domains(process: Codes, domain: Integers, named: Mapping[tuple[int, int], str]) -> Texts:
    keys, codes = numbered_pairs(process, domain)
    names = [None if key[1] == DEFAULT_DOMAIN else named.get(key) for key in keys]
    return Texts(codes, object_array(names)).map(names)
