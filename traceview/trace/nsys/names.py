"""Names in an nsys export: strings by id, and enumerations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from traceview.records import record
from traceview.tables import NULL, Array, Integers, RowNumbers, Texts, constant, object_array
from traceview.tables.numbers import numbered
from traceview.trace.schema.gpu_work import UNIFIED
from traceview.trace.sqlite.file import Database
from traceview.trace.sqlite.row_reader import Numbers
from traceview.trace.staged import same_text

UNNAMED = "(unnamed)"


@record
class Enumeration:
    """An enumeration: its table in the export, and what its numbers mean without that table.

    `word` gives the meaning of a row of the table, from its name and its label in lower case; None
    if it tells none.
    """

    table: str
    default: Mapping[int, str]
    word: Callable[[str, str], str | None] = lambda _, label: label or None

    def of(self, database: Database) -> dict[int, str]:
        """What each number means, as the export itself numbers them."""
        rows = database.lines(self.table, ("id", "name", "label"))
        stored = {
            number: self.word(str(name), str(label or "").lower())
            for number, name, label in rows
            if type(number) is int
        }
        return {**self.default, **{number: word for number, word in stored.items() if word}}


def _by_ending(endings: Mapping[str, str]) -> Callable[[str, str], str | None]:
    return lambda name, _: next((w for end, w in endings.items() if name.endswith(end)), None)


_COPY_WORDS = re.compile(r"(_UVM)?_([HDAP])TO([HDAP])$")


def _direction(name: str, _: str) -> str | None:
    match = _COPY_WORDS.search(name)
    return f"{UNIFIED if match[1] else ''}{match[2]}2{match[3]}" if match else None


_DIRECTIONS = "unknown H2D D2H H2A A2H A2A A2D D2A D2D H2H P2P"
_MIGRATIONS = (f"{UNIFIED}H2D", f"{UNIFIED}D2H", f"{UNIFIED}D2D")
COPY_DIRECTIONS = Enumeration(
    "ENUM_CUDA_MEMCPY_OPER", dict(enumerate((*_DIRECTIONS.split(), *_MIGRATIONS))), _direction
)
_CAUSES = (
    *("unknown", "user prefetch", "page fault", "speculative prefetch", "eviction"),
    "access counters",
)
MIGRATION_CAUSES = dict(enumerate(_CAUSES))
_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static")
MEMORY_KINDS = Enumeration(
    "ENUM_CUDA_MEM_KIND", {**dict(enumerate((*_MEMORY, "unknown"))), NULL: "unknown"}
)
MEMORY_OPERATIONS = Enumeration(
    "ENUM_CUDA_DEV_MEM_EVENT_OPER",
    {0: "allocation", 1: "release"},
    lambda _, label: "release" if label.startswith("de") else label or None,
)
SEVERITIES = Enumeration(
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
    {0: "unknown", 1: "info", 2: "warning", 3: "error", 4: "verbose"},
)
JIT_OPERATIONS = Enumeration(
    "ENUM_CUPTI_JIT_OPERATION_TYPE",
    {1: "cache load", 2: "cache store", 3: "compile"},
    _by_ending({"CACHE_LOAD": "cache load", "CACHE_STORE": "cache store", "COMPILE": "compile"}),
)
SYNC_KINDS = Enumeration(
    "ENUM_CUPTI_SYNC_TYPE",
    {0: "unknown", 1: "event", 2: "stream-wait-event", 3: "stream", 4: "context"},
    _by_ending(
        {
            "STREAM_WAIT_EVENT": "stream-wait-event",
            "EVENT_SYNCHRONIZE": "event",
            "STREAM_SYNCHRONIZE": "stream",
            "CONTEXT_SYNCHRONIZE": "context",
        }
    ),
)


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
    one = same_text(default, len(texts))
    return first_of(texts, one)


def meanings(values: Array, words: Mapping[int, str]) -> Texts:
    """The label of every number; `kind 17` for an unknown one."""
    distinct, codes = numbered(values)
    labels = [words.get(value, f"kind {value}") for value in distinct.tolist()]
    return Texts(codes, object_array(labels)).map(labels)
