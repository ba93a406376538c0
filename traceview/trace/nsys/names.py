"""Names in an nsys export: strings by id, and enumerations."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from traceview.tables import Array, Integers, RowNumbers, Texts, constant, object_array
from traceview.tables.numbers import numbered
from traceview.trace.schema.gpu_work import UNIFIED
from traceview.trace.sqlite.file import Database
from traceview.trace.sqlite.row_reader import Numbers

UNNAMED = "(unnamed)"
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")

# Enumerations, for exports without their own ENUM_ tables.
_DIRECTIONS = "unknown H2D D2H H2A A2H A2A A2D D2A D2D H2H P2P"
_MIGRATIONS = (f"{UNIFIED}H2D", f"{UNIFIED}D2H", f"{UNIFIED}D2D")
COPY_DIRECTIONS = dict(enumerate((*_DIRECTIONS.split(), *_MIGRATIONS)))
JIT_OPERATIONS = {1: "cache load", 2: "cache store", 3: "compile"}
MIGRATION_CAUSES = {
    0: "unknown",
    1: "user prefetch",
    2: "page fault",
    3: "speculative prefetch",
    4: "eviction",
    5: "access counters",
}
_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static")
MEMORY_KINDS = dict(enumerate((*_MEMORY, "unknown")))
MEMORY_OPERATIONS = {0: "allocation", 1: "release"}
SEVERITIES = {0: "unknown", 1: "info", 2: "warning", 3: "error", 4: "verbose"}
SYNC_KINDS = {0: "unknown", 1: "event", 2: "stream-wait-event", 3: "stream", 4: "context"}
_SYNC_WORDS = {
    "STREAM_WAIT_EVENT": "stream-wait-event",
    "EVENT_SYNCHRONIZE": "event",
    "STREAM_SYNCHRONIZE": "stream",
    "CONTEXT_SYNCHRONIZE": "context",
}
_COPY_WORDS = re.compile(r"(_UVM)?_([HDAP])TO([HDAP])$")


def numbered_pairs(first: Array, second: Array) -> tuple[list[tuple[int, int]], RowNumbers]:
    """The distinct pairs of two columns, and for each row the index of its pair."""
    (ones, one), (others, other) = numbered(first), numbered(second)
    if len(others) == 1:
        return [(int(value), int(others[0])) for value in ones], one
    pairs, codes = numbered(one.astype(np.int64) * len(others) + other)
    split = (divmod(pair, len(others)) for pair in pairs.tolist())
    return [(int(ones[a]), int(others[b])) for a, b in split], codes


class Names:
    """The StringIds table. Only the strings looked up are read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def texts(self, ids: Numbers) -> Texts:
        """The string of every id: absent for an absent id, a placeholder for an unknown one."""
        distinct, codes = numbered(ids.values)
        texts = Texts(codes, object_array(self.of(distinct))).map(self.of(distinct))
        if ids.null is None:
            return texts
        if ids.is_absent:
            return Texts(constant(-1, len(codes), np.int32), texts.values)
        return Texts(np.where(ids.null, np.int32(-1), texts.codes), texts.values)

    def of(self, ids: Integers) -> list[str]:
        """The strings of distinct ids."""
        keys = ids.tolist()
        found: dict[int, object] = {}
        if "StringIds" in self._database.tables:
            found = self._database.lookup("StringIds", "id", "value", keys)
        return [str(found.get(key, f"(unknown name #{key})")) for key in keys]


def without_version(name: str) -> str:
    """The name of a CUDA API function without `_v3020`, `_ptsz` and `_ptds`."""
    return _VERSION.sub("", name)


def first_of(preferred: Texts, other: Texts) -> Texts:
    """Row by row, the text in `preferred`, or where that is absent the text in `other`."""
    if (preferred.codes >= 0).all():
        return preferred
    every = Texts.of([*preferred.values, *other.values])
    shifted = np.where(other.codes >= 0, other.codes + len(preferred.values), -1)
    codes = np.where(preferred.codes >= 0, preferred.codes, shifted)
    places = np.append(every.codes, np.int32(-1))
    return Texts(places[codes], every.values)


def filled(texts: Texts, default: str) -> Texts:
    """The texts, with `default` in the rows where they are absent."""
    one = Texts(constant(0, len(texts), np.int32), object_array([default]))
    return first_of(texts, one)


def meanings(values: Array, known: Mapping[int, str]) -> Texts:
    """The label of every number; `kind 17` for an unknown one."""
    distinct, codes = numbered(values)
    words = [known.get(value, f"kind {value}") for value in distinct.tolist()]
    return Texts(codes, object_array(words)).map(words)


def copy_directions(database: Database) -> dict[int, str]:
    """Map copyKind to H2D, D2H, UVM H2D, …"""
    stored = _enum(database, "ENUM_CUDA_MEMCPY_OPER")
    matches = {key: _COPY_WORDS.search(name) for key, (name, _) in stored.items()}
    read = {
        key: f"{UNIFIED if hit[1] else ''}{hit[2]}2{hit[3]}" for key, hit in matches.items() if hit
    }
    return {**COPY_DIRECTIONS, **read}


def memory_kinds(database: Database) -> dict[int, str]:
    """Map srcKind, dstKind and memKind to pageable, pinned, …"""
    return {**MEMORY_KINDS, **_labels(database, "ENUM_CUDA_MEM_KIND")}


def memory_operations(database: Database) -> dict[int, str]:
    """Map memoryOperationType to allocation or release."""
    labels = _labels(database, "ENUM_CUDA_DEV_MEM_EVENT_OPER")
    read = {key: "release" if label.startswith("de") else label for key, label in labels.items()}
    return {**MEMORY_OPERATIONS, **read}


def jit_operations(database: Database) -> dict[int, str]:
    """Map jitOperationType to compile, cache load or cache store, as CUPTI numbers them."""
    stored = _enum(database, "ENUM_CUPTI_JIT_OPERATION_TYPE")
    read = {
        key: word
        for key, (name, _) in stored.items()
        for word in JIT_OPERATIONS.values()
        if name.endswith(word.replace(" ", "_").upper())
    }
    return {**JIT_OPERATIONS, **read}


def severities(database: Database) -> dict[int, str]:
    """Map severity to info, warning, …"""
    return {**SEVERITIES, **_labels(database, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL")}


def sync_kinds(database: Database) -> dict[int, str]:
    """Map syncType to event, stream, …, as the export itself numbers them."""
    stored = _enum(database, "ENUM_CUPTI_SYNC_TYPE")
    read = {
        key: kind
        for key, (name, _) in stored.items()
        for word, kind in _SYNC_WORDS.items()
        if name.endswith(word)
    }
    return {**SYNC_KINDS, **read}


def _enum(database: Database, table: str) -> dict[int, tuple[str, str]]:
    rows = database.lines(table, ("id", "name", "label"))
    return {key: (str(name), str(label or "")) for key, name, label in rows if type(key) is int}


def _labels(database: Database, table: str) -> dict[int, str]:
    stored = _enum(database, table).items()
    return {key: label.lower() for key, (_, label) in stored if label}
