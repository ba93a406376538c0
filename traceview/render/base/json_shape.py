"""The JSON of a record, declared once: the encoder and the schema read the same keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Any, get_type_hints

from traceview.records import record
from traceview.render.base.json_schema import TEXT, Schema, described, many, maybe, of
from traceview.render.base.json_schema import record as schema_of
from traceview.render.base.json_text import SCHEMA_VERSION

Get = Callable[[Any, Any], Any]


@record
class JsonKey:
    """A key that is computed from the value and the whole document's `context`.

    `hint` is a type, a JsonShape, Maybe a JsonShape, or a list with the JsonShape of its items.
    """

    name: str
    hint: Any
    get: Get


@record
class Maybe:
    """An object of a shape, or null."""

    shape: JsonShape


class JsonShape:
    """The keys of an object, in order: names of attributes, separated by spaces, and computed ones.

    `*` are all fields, `key=path.to.attribute` renames. `meanings` describe keys in the schema.
    """

    def __init__(self, kind: type, *keys: str | JsonKey, **meanings: str) -> None:
        self._kind, self._meanings = kind, meanings
        self._keys = [key for each in keys for key in self._declared(each)]

    def _declared(self, keys: str | JsonKey) -> list[JsonKey]:
        if isinstance(keys, JsonKey):
            return [keys]
        all_fields = " ".join(field.name for field in fields(self._kind))
        pairs = [word.partition("=") for word in keys.replace("*", all_fields).split()]
        return [_attribute(self._kind, name, path or name) for name, _, path in pairs]

    def written(self, value: Any, context: Any = None) -> dict[str, Any]:
        """The object for the JSON writer."""
        return {key.name: _plain(key.get(value, context), key.hint, context) for key in self._keys}

    def schema(self) -> Schema:
        """Its schema; annotations are read only now, which writing need not."""
        each = {key.name: _schema(key.hint) for key in self._keys}
        for name, meaning in self._meanings.items():
            each[name] = described(each[name], meaning)
        return schema_of(**each)


def document(shape: JsonShape, value: Any, version: str, context: Any = None) -> dict[str, Any]:
    """A whole output: the versions of its schema and of traceview, then the keys of a shape."""
    versions = {"schema_version": SCHEMA_VERSION, "traceview_version": version}
    return {**versions, **shape.written(value, context)}


def document_schema(shape: JsonShape) -> Schema:
    """The schema of a whole output."""
    versions = {"schema_version": {"const": SCHEMA_VERSION}, "traceview_version": TEXT}
    return schema_of(**versions, **shape.schema()["properties"])


def _attribute(kind: type, name: str, path: str) -> JsonKey:
    read = attrgetter(path)
    return JsonKey(name, _Attribute(kind, path), lambda value, _: read(value))


@record
class _Attribute:
    """An attribute or a property, by its path from a class: its annotation is the hint."""

    kind: type
    path: str


def _annotation(attribute: _Attribute) -> Any:
    kind: Any = attribute.kind
    for name in attribute.path.split("."):
        member = getattr(kind, name, None)
        hints = get_type_hints(member.fget if isinstance(member, property) else kind)
        kind = hints["return" if isinstance(member, property) else name]
    return kind


def _schema(hint: Any) -> Schema:
    if isinstance(hint, Maybe):
        return maybe(hint.shape.schema())
    if isinstance(hint, JsonShape):
        return hint.schema()
    if isinstance(hint, list):
        return many(_schema(hint[0]))
    if isinstance(hint, _Attribute):
        return of(_annotation(hint))
    return of(hint)


def _plain(value: Any, hint: Any, context: Any) -> Any:
    """A value as the JSON writer takes it: objects as dictionaries, fractions as numbers."""
    if value is None:
        return None
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
