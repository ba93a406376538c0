"""Parts of a JSON Schema (draft 2020-12), from type hints, dataclasses and declared columns."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from traceview.render.base.json_text import SCHEMA_VERSION
from traceview.tables import Column

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
YES_NO: Schema = {"type": "boolean"}
SCALAR: Schema = {"type": ["number", "boolean", "string", "null"]}
_PLAIN: dict[Any, Schema] = {
    str: TEXT,
    int: WHOLE,
    bool: YES_NO,
    Fraction: NUMBER,
    type(None): {"type": "null"},
}
_DTYPES = {"text": TEXT, "bool": YES_NO, "float64": NUMBER, "float32": NUMBER, "bytes": WHOLE}


def record(optional: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """An object with these keys, all required but the `optional` ones. More may be added later."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def document(optional: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """A whole JSON output; it begins with the versions of its schema and of traceview."""
    versions = {"schema_version": {"const": SCHEMA_VERSION}, "traceview_version": TEXT}
    return record(optional, **versions, **properties)


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def maybe(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def described(schema: Schema, meaning: str) -> Schema:
    return {**schema, "description": meaning}


def row(columns: Sequence[Column]) -> Schema:
    """One row of a table, from its declared columns."""
    return record(**{column.name: _cell(column) for column in columns})


def _cell(column: Column) -> Schema:
    schema = _DTYPES.get(column.dtype, WHOLE)
    # JSON has no NaN, so any fraction may be null.
    absent = column.nullable or column.dtype.startswith("float") or column.dtype == "text"
    return described(maybe(schema) if absent else schema, column.meaning)


def of(hint: Any) -> Schema:
    """The schema of a Python type: a scalar, a sequence, a mapping, a dataclass, or a union."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint is float:
        return maybe(NUMBER)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [of(each) for each in arguments]}
    if origin in (tuple, list, Sequence) or origin is Sequence:
        return many(of(arguments[0])) if arguments else {"type": "array"}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return mapping(of(arguments[1]))
    if is_dataclass(hint):
        return fields_of(hint)
    return {}


def fields_of(kind: Any, *, without: Sequence[str] = ()) -> Schema:
    """A dataclass as `asdict` writes it."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name not in without]
    return record(**{name: of(hints[name]) for name in names})
