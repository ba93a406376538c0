"""Validation against the shipped schemas, where a key that the schema does not know is an error."""

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from traceview.render.json import schema


def strict(part: Any) -> Any:
    """The schema with every object closed: users get it open, since keys may be added."""
    if isinstance(part, list):
        return [strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {key: strict(each) for key, each in part.items()}
    if part.get("type") == "object" and "additionalProperties" not in part:
        closed["additionalProperties"] = False
    return closed


@cache
def validator(name: str) -> Draft202012Validator:
    shape = strict(schema(name))
    Draft202012Validator.check_schema(shape)
    return Draft202012Validator(shape)
