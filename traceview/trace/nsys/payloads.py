"""Extended NVTX payloads: structures of integers that a library attaches to its ranges.

nsys exports the structures of a range as JSON (`nsys export --include-json=true`), or as they were
in memory (`--include-blobs=true`): a header with their number and the schema, size and offset of
each, then the bytes. NVTX_PAYLOAD_SCHEMA_ENTRIES lists the fields. Only the first structure is
read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from traceview.records import record
from traceview.tables import NULL, Integers, object_array
from traceview.trace.sqlite.file import Database
from traceview.trace.staged import INT32

ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
FIRST_STATIC_ID = 1 << 24
"""Ids of schemas that a library numbers itself count from here (nvToolsExtPayload.h)."""
HEADER = np.dtype([(name, "<u8") for name in ("count", "schema", "size", "offset")])
# Bytes of the integer types of nvToolsExtPayload.h, as on 64-bit Linux: int, unsigned, long,
# unsigned long and long long, the types of fixed width, size_t.
_WIDTHS = {5: 4, 6: 4, 7: 8, 8: 8, 9: 8, 10: 8, 15: 4, 16: 4, 17: 8, 18: 8, 22: 8}
_LARGEST = 1 << 16


@record
class Field:
    """An integer of a structure: its first byte, and its size in bytes."""

    offset: int
    size: int


Schemas = Mapping[int, Mapping[str, Field]]
"""Map of schema id to the fields by name."""


def schemas_of(database: Database) -> Mapping[int, Schemas]:
    """The integer fields of every schema that the export describes, by domain id."""
    names = ("domainId", "schemaId", "type", "offset", "name")
    found: dict[int, dict[int, dict[str, Field]]] = {}
    for *numbers, name in database.lines(ENTRIES, names):
        # nsys leaves the offset of the first field NULL.
        place = [0 if number is None else number for number in numbers]
        if not isinstance(name, str) or not all(isinstance(number, int) for number in place):
            continue
        domain, schema, kind, offset = (int(str(number)) for number in place)
        if kind in _WIDTHS and 0 <= offset <= _LARGEST:
            schemas = found.setdefault(domain, {})
            schemas.setdefault(schema, {})[name] = Field(offset, _WIDTHS[kind])
    return found


def decoded(blobs: Sequence[object], schemas: Schemas, names: Sequence[str]) -> dict[str, Integers]:
    """The named fields of each structure, NULL where it lacks one or is damaged.

    Unsigned numbers from 2^63 on wrap.
    """
    result = {name: np.full(len(blobs), NULL) for name in names}
    lengths = np.array([len(b) if isinstance(b, bytes) else -1 for b in blobs], np.int64)
    cells = object_array(blobs)
    for length in np.unique(lengths[(lengths >= HEADER.itemsize) & (lengths <= _LARGEST)]).tolist():
        rows = np.flatnonzero(lengths == length)
        raw = np.frombuffer(b"".join(cells[rows]), np.uint8).reshape(-1, length)
        header = raw[:, : HEADER.itemsize].copy().view(HEADER)[:, 0]
        for schema, offset in np.unique(header[["schema", "offset"]]).tolist():
            own = (header["schema"] == schema) & (header["offset"] == offset)
            for name, field in schemas.get(schema, {}).items():
                if name in result and offset + field.offset + field.size <= length:
                    field_bytes = raw[own, offset + field.offset :][:, : field.size]
                    numbers = field_bytes.copy().view("<i8" if field_bytes.shape[1] == 8 else "<i4")
                    result[name][rows[own]] = numbers[:, 0].astype(np.int64)
    return result


def masked(blob: object, schemas: Schemas, names: Sequence[str]) -> bytes | None:
    """A structure with all bytes 0 but its header and the named fields; None if damaged."""
    if not isinstance(blob, bytes) or not HEADER.itemsize <= len(blob) <= _LARGEST:
        return None
    count, schema, size, offset = np.frombuffer(blob, HEADER, 1)[0].tolist()
    if schema not in schemas or max(count, size, offset) > _LARGEST:
        return None
    result = bytearray(len(blob))
    result[: HEADER.itemsize] = blob[: HEADER.itemsize]
    for name, field in schemas[schema].items():
        start = offset + field.offset
        if name in names and start + field.size <= len(blob):
            result[start : start + field.size] = blob[start : start + field.size]
    return bytes(result)


def parsed(texts: Sequence[object], names: Sequence[str]) -> dict[str, Integers]:
    """As `decoded`, from the JSON of the structures. Equal texts are parsed once."""
    result = {name: np.full(len(texts), NULL) for name in names}
    known: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        if isinstance(text, str):
            if text not in known:
                known[text] = _parsed(text, names)
            for name, value in zip(names, known[text], strict=True):
                result[name][row] = value
    return result


def _parsed(text: str, names: Sequence[str]) -> list[int]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [NULL] * len(names)
    parsed: dict[str, object] = {}
    # The structure is the whole text, or the value of its schema's name.
    for level in (whole, *(whole.values() if isinstance(whole, dict) else ())):
        parsed |= level if isinstance(level, dict) else {}
    return [_integer(parsed.get(name)) for name in names]


def _integer(value: object) -> int:
    """An integer, which JSON may hold as text, wrapped from 2^63 on as in `decoded`; or NULL."""
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**64:
        return NULL
    return value - 2**64 if value >= 2**63 else value


def bounded(values: Integers, most: int = int(INT32.max)) -> Integers:
    """The values from 0 to `most`, NULL for the others."""
    return np.where((values >= 0) & (values <= most), values, NULL)
