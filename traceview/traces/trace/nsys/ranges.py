"""NVTX ranges and marks of an nsys export, and what `traceview record` adds to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

import numpy as np

from traceview.base import groups, tables
from traceview.base.records import record
from traceview.base.tables import rows_of
from traceview.base.tables.arrays import numbered
from traceview.base.tables.packed_texts import packed
from traceview.traces.trace.nsys.processes import ABSENT
from traceview.traces.trace.nsys.rows import (
    UNNAMED,
    ExportTable,
    Rows,
    filled,
    first_of,
    meanings,
    numbered_pairs,
)
from traceview.traces.trace.nsys.tables import Reader
from traceview.traces.trace.staged import Staged, numbers_of, texts_of

RANGES = ExportTable(
    "NVTX_EVENTS",
    ("start", "end", "eventType"),
    ("globalTid", "endGlobalTid", "textId", "domainId"),
    ("text",),
)
PAYLOADS = ExportTable(
    "NVTX_EVENTS", ("start",), ("int64Value", "uint64Value", "int32Value", "uint32Value")
)
MPI_CALLS = tuple(
    ExportTable(f"MPI_{kind}_EVENTS", ("start", "end", "textId"), ("globalTid",))
    for kind in ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")
)
MPI_DOMAIN = "MPI"
"""Of calls of MPI: exports have tables of them (--trace=mpi), older ones ranges in this domain."""
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

    def of_domains(self, reader: Reader, names: Collection[str]) -> tables.Mask:
        """True for the marks whose domain has one of `names`."""
        wanted = [key for key, name in self.domains.items() if name in names]
        result: tables.Mask = np.zeros(len(self.rows), bool)
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


def ranges(reader: Reader, events: NvtxEvents, stacks: tables.Mask) -> Staged:
    """Ranges and marks in file order, without other NVTX events and the marks in `stacks`."""
    distinct, code = numbered(events.rows.cells("eventType"))
    known = tables.picked(np.isin(distinct, list(KINDS)), code) & ~stacks
    rows = events.rows if known.all() else events.rows.where(known)
    on_thread = reader.on_thread(rows)
    names = filled(_texts(reader, rows), UNNAMED)
    keys, codes = numbered_pairs(numbers_of(on_thread, "process"), rows.integer("domainId"))
    domains = [None if key[1] == DEFAULT_DOMAIN else events.domains.get(key) for key in keys]
    end_thread = tables.constant(ABSENT, len(rows), np.int32)
    if not rows.numbers("endGlobalTid").is_absent:
        ended = ~rows.null("endGlobalTid")
        end_thread = np.full(len(rows), ABSENT, np.int32)
        end_thread[ended] = reader.owners.threads(rows.where(ended), "endGlobalTid")[0]
    return {
        **on_thread,
        "end_thread": end_thread,
        "name": names,
        "domain": tables.Texts(codes, tables.object_array(domains)).map(domains),
        "kind": meanings(rows.cells("eventType"), KINDS),
        "payload": _payloads(reader, names, known),
    }


def mpi_calls(reader: Reader) -> Iterator[Staged]:
    """Yield the calls of MPI of each table as ranges."""
    for source in MPI_CALLS:
        rows = reader.export.rows(source)
        if rows is not None and len(rows):
            texts = {"name": reader.named(rows, "textId")}
            for name, text in (("domain", MPI_DOMAIN), ("kind", KINDS[59])):
                codes = np.zeros(len(rows), np.int32)
                texts[name] = tables.Texts(codes, tables.object_array([text]))
            yield {
                **reader.on_thread(rows),
                **texts,
                "end_thread": tables.constant(ABSENT, len(rows), np.int32),
                "payload": tables.constant(tables.NULL, len(rows), np.int64),
            }


def _payloads(reader: Reader, names: tables.Texts, known: tables.Mask) -> tables.Integers:
    """The integer payload of each range, read only if a range name refers to it."""
    payload = tables.constant(tables.NULL, len(names), np.int64)
    if not packed(names).holds(REFERS_TO_PAYLOAD):
        return payload
    rows = reader.export.rows(PAYLOADS)
    if rows is None:
        return payload
    for column in PAYLOADS.optional:
        payload = np.where(payload == tables.NULL, rows.nullable(column)[known], payload)
    return payload


def _texts(reader: Reader, rows: Rows) -> tables.Texts:
    # torch stores the text itself; registered strings are ids.
    return first_of(rows.texts("text"), reader.named(rows, "textId", None))


# What `traceview record` adds to the NVTX ranges of a program: sync marks, and ranges of its own.
#
# It wraps each call that can wait for the GPU in an NVTX range with the source line: such marks
# are separated from the ranges. Ranges that it adds are recognized by a prefix of their names:
# torch opens ranges in the default domain only, so the prefix stands for a domain of our own.

DOMAIN = "traceview"
PREFIX = "traceview:sync:"
RANGE_PREFIX = "traceview:range:"
CLOCK = "traceview:clock:"
"""Prefix of the marks that hold the wall-clock time, for samples taken in the program."""
NOTED = "sync_sites"
"""Name in TRACEVIEW_RUN, which is present if the recorder requested marks."""

# For example: train.py:31 in step: loss.item() [Tensor.item]. Longer texts are not marks.
_LONGEST = 2_000
_MARK = re.compile(r"(.+):(\d{1,9}) in (\S.*?): (.*?) ?\[([^\[\]]*)\]")
_TIMES = ("start_ns", "end_ns", "thread", "process")


class Mark(NamedTuple):
    """The parts of a mark; a text of another form is all `source`."""

    file: str | None
    line: int | None
    function: str | None
    source: str
    hint: str | None


def parsed(text: str) -> Mark:
    """The parts of a mark's text."""
    match = _MARK.fullmatch(text) if len(text) <= _LONGEST else None
    if not match:
        return Mark(None, None, None, text, None)
    file, line, function, source, hint = match.groups()
    return Mark(file, int(line), function, source, hint or None)


def split_marks(
    ranges: Staged | None, run: Mapping[str, str]
) -> tuple[Staged | None, Staged | None]:
    """Split ranges into those of the program and marks (None if no marks were requested).

    Ranges that the recorder added to the program stay, in a domain of their own.
    """
    if ranges is None:
        return None, None
    name, domain = texts_of(ranges, "name"), texts_of(ranges, "domain")
    marked: tables.Mask = domain.isin([DOMAIN]) & ~is_added(name, domain)
    marked |= (domain.codes < 0) & starting(name, PREFIX, CLOCK)[name.codes]
    requested = NOTED in run
    if not marked.any():
        return in_own_domain(ranges), _sites(ranges, marked) if requested else None
    clock = name.isin([str(text) for text in name.values if str(text).startswith(CLOCK)])
    sites = marked & ~clock
    left = in_own_domain(_chosen(ranges, ~marked))
    return left, _sites(ranges, sites) if requested or sites.any() else None


def _sites(ranges: Staged, marked: tables.Mask) -> Staged:
    sites = _chosen({name: ranges[name] for name in (*_TIMES, "name")}, marked)
    names = texts_of(sites, "name")
    used = groups.different(names.codes[names.codes >= 0])
    marks = {int(code): parsed(str(names.values[code]).removeprefix(PREFIX)) for code in used}
    parts = {
        part: [getattr(marks.get(code), part, None) for code in range(len(names.values))]
        for part in Mark._fields
    }
    lines = np.array([tables.NULL if line is None else line for line in (*parts.pop("line"), None)])
    return {
        **{name: sites[name] for name in _TIMES},
        "line": lines.astype(np.int64)[names.codes],
        **{part: names.map(texts) for part, texts in parts.items()},
    }


def _chosen(staged: Staged, rows: tables.Mask) -> Staged:
    return {name: rows_of(values, rows) for name, values in staged.items()}


def starting(texts: tables.Texts, *prefixes: str) -> tables.Mask:
    """Whether each distinct text starts with one of `prefixes`, by code; False for code −1."""
    every = packed(texts)
    if not any(every.holds(prefix.encode()) for prefix in prefixes):
        return np.zeros(len(every) + 1, bool)
    values = texts.values.tolist()
    hit = map(str.startswith, values, repeat(prefixes))
    return np.append(np.fromiter(hit, bool, len(values)), False)


def is_added(name: tables.Texts, domain: tables.Texts) -> tables.Mask:
    """True for the ranges that `traceview record` added."""
    prefixed = starting(name, RANGE_PREFIX)
    if not prefixed.any():
        return np.zeros(len(name), bool)
    return prefixed[name.codes] & ((domain.codes < 0) | domain.isin([DOMAIN]))


def in_own_domain(ranges: Staged) -> Staged:
    """The ranges; added ones get the domain DOMAIN, and names without the prefix."""
    name, domain = texts_of(ranges, "name"), texts_of(ranges, "domain")
    added = is_added(name, domain)
    if not added.any():
        return ranges
    used = np.zeros(len(name.values) + 1, bool)
    used[name.codes[added]] = True
    short = [
        str(text).removeprefix(RANGE_PREFIX) if is_used else str(text)
        for text, is_used in zip(name.values, used, strict=False)
    ]
    # Short names are appended, because the program may use the prefixed name as well.
    codes = np.where(added, name.codes + len(name.values), name.codes)
    names = tables.Texts(codes.astype(np.int32), tables.object_array([*name.values, *short]))
    domains = np.where(added, len(domain.values), domain.codes).astype(np.int32)
    return {
        **ranges,
        "name": names.map([str(text) for text in names.values]),
        "domain": tables.Texts(domains, tables.object_array([*domain.values, DOMAIN])),
    }
