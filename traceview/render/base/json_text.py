"""The JSON of a record, declared once for encoder and schema, and written column by column.

The text equals that of `json.dumps` with an indent of 1, which takes seconds for a million rows
because only its slow path indents.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np

from traceview.base import groups
from traceview.base.findings import Evidence, Finding
from traceview.base.records import record
from traceview.base.tables import Array, Column, Table, Texts, object_array

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
    return written[texts.codes].tolist()


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
        return value.item()
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


# The JSON of a record, declared once: the encoder and the schema read the same keys.
#
# Types become schemas (JSON Schema, draft 2020-12) from their hints, dataclasses from their
# fields and tables from their declared columns.

Schema: TypeAlias = dict[str, Any]
Get = Callable[[Any, Any], Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
YES_NO: Schema = {"type": "boolean"}
_PLAIN: dict[Any, Schema] = {
    str: TEXT,
    int: WHOLE,
    bool: YES_NO,
    Fraction: NUMBER,
    type(None): {"type": "null"},
}
_DTYPES = {"text": TEXT, "bool": YES_NO, "float64": NUMBER, "float32": NUMBER, "bytes": WHOLE}


@record
class JsonKey:
    """A key that is computed from the value and the whole document's `context`.

    `hint` is a type, a JsonShape, Maybe a JsonShape, or a list with the hint of its items. Where it
    is a function that returns a schema, the value is written as it is: tables by reference.
    An `optional` key is left out where its value is None.
    """

    name: str
    hint: Any
    get: Get
    optional: bool = False


@record
class Maybe:
    """An object of a shape, or null."""

    shape: JsonShape


@record
class Keys:
    """All keys of another shape, of the value that `get` returns."""

    shape: JsonShape
    get: Get


_Declared: TypeAlias = "str | JsonKey | Keys | JsonShape"


class JsonShape:
    """The keys of an object, in order: names of attributes, separated by spaces, computed ones, and
    those of other shapes.

    `*` are all fields, `key=path.to.attribute` renames; a path through None gives null. `meanings`
    describe keys in the schema. `context` replaces the context for the object.
    """

    def __init__(
        self, kind: type, *keys: _Declared, context: Get | None = None, **meanings: str
    ) -> None:
        self._kind, self._meanings, self._context = kind, meanings, context
        self._parts = [part for each in keys for part in self._declared(each)]

    def _declared(self, keys: _Declared) -> Iterable[JsonKey | Keys]:
        if isinstance(keys, JsonKey | Keys):
            return [keys]
        if isinstance(keys, JsonShape):
            return keys._parts
        all_fields = " ".join(field.name for field in fields(self._kind))
        pairs = [word.partition("=") for word in keys.replace("*", all_fields).split()]
        return [
            JsonKey(name, _Attribute(self._kind, path or name), _getter(path or name))
            for name, _, path in pairs
        ]

    def written(self, value: Any, context: Any = None) -> dict[str, Any]:
        """The object for the JSON writer."""
        if self._context:
            context = self._context(value, context)
        result: dict[str, Any] = {}
        for part in self._parts:
            given = part.get(value, context)
            if isinstance(part, Keys):
                result |= part.shape.written(given, context)
            elif given is not None or not part.optional:
                result[part.name] = _plain(given, part.hint, context)
        return result

    def _keys(self) -> dict[str, JsonKey]:
        """All keys; a later one takes the place of an earlier one of its name."""
        result: dict[str, JsonKey] = {}
        for part in self._parts:
            result |= part.shape._keys() if isinstance(part, Keys) else {part.name: part}
        return result

    def schema(self) -> Schema:
        """Its schema; annotations are read only now, which writing need not."""
        keys = self._keys()
        properties = {name: _schema(key.hint) for name, key in keys.items()}
        for name, meaning in self._meanings.items():
            properties[name] = described(properties[name], meaning)
        return required(properties, [name for name, key in keys.items() if key.optional])


def items_of(name: str, shape: JsonShape) -> JsonKey:
    """A list of objects, by the name of an attribute or as `key=path.to.attribute`."""
    key, _, path = name.partition("=")
    return JsonKey(key, [shape], _getter(path or key))


def object_of(name: str, shape: JsonShape) -> JsonKey:
    """An object or null, by the name of an attribute or as `key=path.to.attribute`."""
    key, _, path = name.partition("=")
    return JsonKey(key, Maybe(shape), _getter(path or key))


def document(shape: JsonShape, value: Any, version: str, context: Any = None) -> dict[str, Any]:
    """A whole output: the versions of its schema and of traceview, then the keys of a shape."""
    versions = {"schema_version": SCHEMA_VERSION, "traceview_version": version}
    return {**versions, **shape.written(value, context)}


def document_schema(shape: JsonShape) -> Schema:
    """The schema of a whole output."""
    schema = shape.schema()
    versions = {"schema_version": {"const": SCHEMA_VERSION}, "traceview_version": TEXT}
    schema["properties"] = {**versions, **schema["properties"]}
    schema["required"] = [*versions, *schema["required"]]
    return schema


def _getter(path: str) -> Get:
    names = path.split(".")

    def get(value: Any, _: Any) -> Any:
        for name in names:
            value = None if value is None else getattr(value, name)
        return value

    return get


@record
class _Attribute:
    """An attribute or a property, by its path from a class: its annotation is the hint."""

    kind: type
    path: str


def _annotation(attribute: _Attribute) -> Any:
    kind: Any = attribute.kind
    nullable = False
    for name in attribute.path.split("."):
        if types.NoneType in get_args(kind):
            nullable = True
            [kind] = (each for each in get_args(kind) if each is not types.NoneType)
        member = getattr(kind, name, None)
        getter = getattr(member, "fget", None) or getattr(member, "func", None)
        kind = get_type_hints(getter or kind)["return" if getter else name]
    return Union[kind, None] if nullable else kind  # noqa: UP007 - of values


def _schema(hint: Any) -> Schema:
    if isinstance(hint, Maybe):
        return maybe(hint.shape.schema())
    if isinstance(hint, JsonShape):
        return hint.schema()
    if isinstance(hint, list):
        return many(_schema(hint[0]))
    if isinstance(hint, _Attribute):
        return of(_annotation(hint))
    return hint() if isinstance(hint, types.FunctionType) else of(hint)


def _plain(value: Any, hint: Any, context: Any) -> Any:
    """A value as the JSON writer takes it: objects as dictionaries, fractions as numbers."""
    if value is None or isinstance(hint, types.FunctionType):
        return value
    if isinstance(hint, JsonShape | Maybe):
        shape = hint.shape if isinstance(hint, Maybe) else hint
        return shape.written(value, context)
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, Mapping):
        return {key: _plain(each, None, context) for key, each in value.items()}
    if isinstance(value, list | tuple):
        inner = hint[0] if isinstance(hint, list) else None
        return [_plain(each, inner, context) for each in value]
    if is_dataclass(value):
        names = (field.name for field in fields(value))
        return {name: _plain(getattr(value, name), None, context) for name in names}
    return value


def required(properties: Mapping[str, Schema], optional: Sequence[str] = ()) -> Schema:
    """An object with these keys, all required but the `optional` ones. More may be added later."""
    names = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": names}


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
    return required({column.name: _cell(column) for column in columns})


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
        hints = get_type_hints(hint)
        return required({field.name: of(hints[field.name]) for field in fields(hint)})
    return {}


_EVIDENCE = JsonShape(
    Evidence,
    JsonKey("analysis", str | None, lambda _, context: getattr(context, "analysis", None)),
    "table row start_ns end_ns",
    JsonKey("basis", str | None, lambda evidence, _: evidence.basis or None),
    "values",
)
FINDING = JsonShape(
    Finding,
    "severity message action time_at_stake_ns share_of_step_pct subject",
    JsonKey("evidence", _EVIDENCE, lambda finding, _: finding.evidence),
)
"""A finding of a trace, with its RankedFinding as context, or of a kernel."""
