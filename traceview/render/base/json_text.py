"""JSON text of documents that hold tables, written column by column, each distinct text once.

The text equals that of `json.dumps` with an indent of 1, which takes seconds for a million rows
because only its slow path indents.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np

from traceview import groups
from traceview.tables import Array, Table, Texts, object_array

SCHEMA_VERSION = 1
"""Version of all documents; it changes with the name or the meaning of a key."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ROWS_AT_ONCE = 20_000


def written(value: Any) -> str:
    """The JSON text of a value, in ASCII. Tables become lists of rows."""
    return "".join(pieces(value))


def pieces(value: Any, margin: str = "") -> Iterator[str]:
    """The JSON text of a value in pieces; lines after the first are indented by `margin`."""
    inner = f"{margin} "
    if isinstance(value, Table):
        yield from _bracketed("[]", _rows(value, inner), margin)
    elif isinstance(value, dict):
        yield from _bracketed("{}", (_entry(*item, inner) for item in value.items()), margin)
    elif isinstance(value, list | tuple):
        yield from _bracketed("[]", (pieces(item, inner) for item in value), margin)
    else:
        yield _scalar(value)


def _entry(key: Any, value: Any, margin: str) -> Iterator[str]:
    yield f"{_text(str(key))}: "
    yield from pieces(value, margin)


def _bracketed(brackets: str, items: Iterable[Iterable[str]], margin: str) -> Iterator[str]:
    before = f"{brackets[0]}\n{margin} "
    for item in items:
        yield before
        yield from item
        before = f",\n{margin} "
    empty = before[0] == brackets[0]
    yield brackets if empty else f"\n{margin}{brackets[1]}"


def _rows(table: Table, margin: str) -> Iterator[tuple[str]]:
    """The rows as items of a list, many in one text, formatted column by column."""
    names = [column.name for column in table.columns]
    keys = [f"{_text(name)}: ".replace("%", "%%") + "%s" for name in names]
    row = "".join(_bracketed("{}", [[key] for key in keys], margin))
    for some in _parts(table):
        cells = zip(*(_cells(some, name) for name in names), strict=True)
        yield (f",\n{margin}".join([row % each for each in cells]),)


def _parts(table: Table) -> Iterator[Table]:
    if len(table) > _ROWS_AT_ONCE:
        for column in table.columns:
            if column.dtype == "text":
                # Decode texts once for the whole table, not once per part.
                _ = table.texts(column.name).values
    for first in range(0, len(table), _ROWS_AT_ONCE):
        yield table.take(np.arange(first, min(first + _ROWS_AT_ONCE, len(table))))


def _cells(table: Table, name: str) -> list[str]:
    """One column, each cell as JSON."""
    if table.column(name).dtype == "text":
        return _texts(table.texts(name))
    if table.column(name).dtype in ("bytes", "bool"):
        return [_scalar(cell) for cell in table.cells(name)]
    values: Array = table[name]
    absent = table.is_null(name)
    if values.dtype.kind == "f":
        absent = ~np.isfinite(values)
    cells = list(map(repr, values.tolist()))
    for row in np.flatnonzero(absent).tolist():
        cells[row] = "null"
    return cells


def _texts(texts: Texts) -> list[str]:
    used = groups.different(texts.codes[texts.codes >= 0])
    written = object_array(["null"] * (int(used[-1]) + 2 if len(used) else 1))
    written[used] = object_array([_text(text) for text in texts.values[used]])
    cells: list[str] = written[texts.codes].tolist()
    return cells


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return json.dumps(clean(value), allow_nan=False, default=_python_number)


def _text(value: str) -> str:
    # The function that json.dumps uses for strings, without the overhead of dumps.
    return encode_basestring_ascii(clean(value))


def _python_number(value: Any) -> int | bool:
    """The Python value of a numpy integer or boolean, which json cannot serialize."""
    if isinstance(value, np.integer | np.bool_):
        number: int | bool = value.item()
        return number
    raise TypeError(f"{type(value).__name__} is not a cell")


def clean(value: Any) -> Any:
    """Replace what JSON or UTF-8 cannot represent: NaN, infinities and lone surrogates."""
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
