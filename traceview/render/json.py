"""The JSON documents of all answers, and their schemas by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from traceview.base.errors import InputError, suggestion
from traceview.base.records import record
from traceview.render.base import json_text
from traceview.render.document import MOST_ROWS
from traceview.render.forms import JSON, function_at
from traceview.traces.recorders import MachineCheck
from traceview.trials.tryout.ledger import Row


@record
class _Doctor:
    checks: list[MachineCheck]


@record
class _Tried:
    tried: list[Row]


DOCTOR = json_text.JsonShape(_Doctor, "checks")
TRIED = json_text.JsonShape(_Tried, "tried")


def render_json(answer: Any, version: str, most_rows: int | None = MOST_ROWS) -> str:
    """An answer as one JSON document in ASCII, which survives any terminal and encoding.

    It has at most `most_rows` rows of each table of a recording or job, all if that is None.
    `version` is traceview's own.
    """
    return "".join(json_pieces(answer, version, most_rows))


def json_pieces(
    answer: Any, version: str, most_rows: int | None = MOST_ROWS, only: Sequence[str] = ()
) -> Iterator[str]:
    """The JSON document in pieces: for a long recording it may not fit into memory."""
    shape = function_at(dict(JSON.values())[type(answer).__name__])
    yield from json_text.pieces(json_text.document(shape, answer, version, (most_rows, only)))
    yield "\n"


def schema(name: str) -> json_text.Schema:
    """The schema of the JSON output `name`. Raises InputError if there is none."""
    if name not in JSON:
        raise InputError(f"no JSON output is named {name!r}", suggestion(name, [*JSON]))
    title = f"traceview {name}, schema_version {json_text.SCHEMA_VERSION}"
    shape = function_at(JSON[name][1])
    return {"$schema": json_text.DRAFT, "title": title, **json_text.document_schema(shape)}
