"""Columns of a table through the sqlite3 module: right for every database, in no hurry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from traceview.errors import TraceFormatError
from traceview.tables import Array, Mask, Texts

Kind = Literal["integer", "text"]
BATCH = 50_000
# A row takes a cell pointer, its own length, its rowid and a header. A damaged b-tree whose pages
# point at each other can yield rows for ever; no sound one yields more than this.
LEAST_ROW_BYTES = 5


@dataclass(frozen=True)
class Numbers:
    """Whole numbers as stored, of any signed type.

    `null` is True where there is none; None means everywhere one. Both may be a `constant`.
    """

    values: Array
    null: Mask | None = None

    def __len__(self) -> int:
        return len(self.values)


Columns = Mapping[str, Numbers | Texts]


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def lenient_text(raw: bytes) -> str:
    """Text of a trace: whatever the bytes are, they become a string."""
    return raw.decode("utf-8", errors="replace")


def read_rows(
    connection: sqlite3.Connection, table: str, wanted: Mapping[str, Kind], file_bytes: int
) -> Columns:
    """Read the wanted columns, rows in the order of the table's b-tree.

    Raises TraceFormatError if a number is wanted where the table holds something else, or if the
    table yields more rows than a file of that size can hold; sqlite3.Error if it is damaged.
    """
    pieces: dict[str, list[Numbers]] = {name: [] for name in wanted}
    coders: dict[str, _Coder] = {name: _Coder() for name in wanted}
    for batch in _batches(connection, table, list(wanted), file_bytes // LEAST_ROW_BYTES):
        for (name, kind), cells in zip(wanted.items(), zip(*batch, strict=True), strict=True):
            if kind == "text":
                coders[name].add(cells)
            else:
                pieces[name].append(_numbers(table, name, cells))
    return {
        name: coders[name].texts() if kind == "text" else joined(pieces[name])
        for name, kind in wanted.items()
    }


def _batches(
    connection: sqlite3.Connection, table: str, names: Sequence[str], most: int
) -> Iterator[list[tuple[object, ...]]]:
    # NOT INDEXED: a covering index would hand the rows out in its own order.
    listed = ", ".join(quoted(name) for name in names)
    cursor = connection.execute(f"SELECT {listed} FROM {quoted(table)} NOT INDEXED")  # noqa: S608
    rows = 0
    while batch := cursor.fetchmany(BATCH):
        rows += len(batch)
        if rows > most:
            raise TraceFormatError(
                f"table {table} is damaged: it yields more rows than the file can hold",
                "export the recording again",
            )
        yield batch


def _numbers(table: str, name: str, cells: Sequence[object]) -> Numbers:
    kinds = set(map(type, cells))
    if not kinds <= {int, type(None)}:
        odd = ", ".join(sorted(kind.__name__ for kind in kinds - {int, type(None)}))
        raise TraceFormatError(
            f"column {name} of table {table} holds {odd} where whole numbers belong",
            "export the recording again",
        )
    if type(None) not in kinds:
        return Numbers(np.array(cells, np.int64))
    null = np.array([cell is None for cell in cells], bool)
    return Numbers(np.array([0 if cell is None else cell for cell in cells], np.int64), null)


def joined(pieces: list[Numbers]) -> Numbers:
    """One after the other; the list is emptied, so that memory is held once."""
    values = np.concatenate([np.empty(0, np.int64), *(piece.values for piece in pieces)])
    nulls = [_mask(piece) for piece in pieces] if any(p.null is not None for p in pieces) else []
    pieces.clear()
    return Numbers(values, np.concatenate(nulls) if nulls else None)


def _mask(piece: Numbers) -> Mask:
    return np.zeros(len(piece), bool) if piece.null is None else piece.null


class _Coder:
    """Codes texts that come in batches."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._codes: list[np.ndarray[tuple[int], np.dtype[np.int32]]] = []

    def add(self, cells: Sequence[object]) -> None:
        codes = [-1 if cell is None else self._code(cell) for cell in cells]
        self._codes.append(np.array(codes, np.int32))

    def _code(self, cell: object) -> int:
        text = lenient_text(cell) if isinstance(cell, bytes) else str(cell)
        return self._index.setdefault(text, len(self._index))

    def texts(self) -> Texts:
        values = np.array([*self._index, None], object)[:-1]
        return Texts(np.concatenate([np.empty(0, np.int32), *self._codes]), values)
