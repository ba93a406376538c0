"""JSON text of documents that hold tables: column by column, each distinct text once.

The text is that of `json.dumps` with an indent of 1, which takes seconds for a million rows: it
has no fast way to indent.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from traceview import groups
from traceview.tables import Array, Table, Texts, object_array

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def written(value: Any, margin: str = "") -> str:
    """A value in ASCII, its lines after the first behind a margin. Tables are lists of rows."""
    inner = f"{margin} "
    if isinstance(value, Table):
        return _bracketed("[]", _rows(value, inner), margin)
    if isinstance(value, dict):
        lines = [f"{_text(key)}: {written(item, inner)}" for key, item in value.items()]
        return _bracketed("{}", lines, margin)
    if isinstance(value, list | tuple):
        return _bracketed("[]", [written(item, inner) for item in value], margin)
    return _scalar(value)


def _bracketed(brackets: str, items: list[str], margin: str) -> str:
    if not items:
        return brackets
    between = f",\n{margin} "
    return f"{brackets[0]}\n{margin} {between.join(items)}\n{margin}{brackets[1]}"


def _rows(table: Table, margin: str) -> list[str]:
    names = [column.name for column in table.columns]
    keys = [f"{_text(name)}: ".replace("%", "%%") + "%s" for name in names]
    row = _bracketed("{}", keys, margin)
    return [row % cells for cells in zip(*(_cells(table, name) for name in names), strict=True)]


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
    said = object_array(["null"] * (int(used[-1]) + 2 if len(used) else 1))
    said[used] = object_array([_text(text) for text in texts.values[used]])
    cells: list[str] = said[texts.codes].tolist()
    return cells


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return json.dumps(clean(value), allow_nan=False, default=_python_number)


def _text(value: Any) -> str:
    return json.dumps(clean(value))


def _python_number(value: Any) -> int | bool:
    """What json asks for a type that it does not know: numpy's integers and booleans."""
    if isinstance(value, np.integer | np.bool_):
        number: int | bool = value.item()
        return number
    raise TypeError(f"{type(value).__name__} is not a cell")


def clean(value: Any) -> Any:
    """The same value with nothing in it that JSON or UTF-8 cannot hold."""
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
