"""The reference, read from the code: commands with their options, Python names, JSON Schemas."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

import traceview
from traceview.cli import VERBS, group
from traceview.render.forms import JSON
from traceview.render.json import schema
from website.pages import Page, opened

_WIDTH = 88
_ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)
_SPECIAL = re.compile(r"[*_<\[\]#|]")


def reference_pages() -> Iterator[Page]:
    yield Page.of("reference/commands.md", _commands())
    yield Page.of("reference/python-api.md", _names())
    yield Page.of("reference/json-schemas.md", _schemas())
    for output in JSON:
        text = json.dumps(schema(output), indent=1) + "\n"
        yield Page.of(f"_static/schemas/{output}.schema.json", text)


def _commands() -> str:
    lines = ["# Commands", "", "What `traceview --help` and `traceview VERB --help` print.", ""]
    context = click.Context(group, info_name="traceview", terminal_width=_WIDTH)
    lines += ["## traceview", "", *_fenced("text", group.get_help(context))]
    for verb in VERBS:
        command = group.get_command(context, verb)
        assert command is not None
        own = click.Context(command, context, info_name=verb, terminal_width=_WIDTH)
        lines += [f"## traceview {verb}", "", *_fenced("text", command.get_help(own))]
    return "\n".join(lines)


def _names() -> str:
    lines = [
        "# Python names",
        "",
        "What `import traceview` offers: [how to use it](../python.md).",
        "",
    ]
    for name in sorted(traceview.__all__, key=lambda each: (each[0].isupper(), each)):
        value = getattr(traceview, name)
        if not callable(value):
            continue
        kind = "class" if inspect.isclass(value) else "def"
        lines += [f"## {name}", "", *_fenced("python", f"{kind} {name}{_signature(value)}")]
        lines += _prose(inspect.getdoc(value) or "")
        for method, documented in _methods(value):
            lines += [f"### {name}.{method}", "", *_prose(documented)]
    return "\n".join(lines)


def _signature(value: object) -> str:
    """Its parameters with their types as written in the code, one per line where they are many."""
    try:
        whole = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    plain = whole.replace(
        parameters=[
            each.replace(annotation=_as_written(each.annotation), default=_default(each.default))
            for each in whole.parameters.values()
        ],
        return_annotation=_as_written(whole.return_annotation),
    )
    text = str(plain)
    return text if len(text) < _WIDTH else _one_per_line(plain)


def _one_per_line(signature: inspect.Signature) -> str:
    lines = []
    starred = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            lines.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        lines.append(str(each))
    end = str(signature.replace(parameters=()))
    return "(\n" + "".join(f"    {line},\n" for line in lines) + end[1:]


@dataclass(frozen=True)
class _Written:
    """A type as text: `inspect` prints what is not a type by its `repr`."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _as_written(annotation: object) -> object:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _default(value: object) -> object:
    """A default; a function has no text but its address."""
    return _Written("...") if inspect.isfunction(value) else value


def _methods(value: object) -> Iterator[tuple[str, str]]:
    """Public methods and properties of a class that have a docstring of their own."""
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    for name, member in vars(value).items():
        documented = inspect.getdoc(member)
        if not name.startswith("_") and documented and (callable(member) or _is_property(member)):
            yield name, documented


def _is_property(member: object) -> bool:
    return isinstance(member, (property, classmethod, staticmethod))


def _schemas() -> str:
    lines = [
        "# JSON Schemas",
        "",
        "What each command writes with `--json` ([in words](../json.md)); `traceview schema NAME` "
        "prints it.",
        "",
        "| schema | of | version | keys |",
        "| --- | --- | --- | --- |",
    ]
    lines += [_schema_row(output) for output in JSON]
    return "\n".join([*lines, ""])


_WRITTEN_BY = {
    "ranks": "traceview report` of several ranks",
    "ptx-diff": "traceview ptx --diff`",
    "ptx-triton": "traceview ptx --triton`",
    "ptx-configs": "traceview ptx --configs`",
    "bench-program": "traceview bench` of a whole program",
}


def _schema_row(output: str) -> str:
    """A schema, the command whose output it is of, its version and the keys at the top."""
    document = schema(output)
    keys = document["properties"]
    assert isinstance(keys, dict)
    link = opened(output, f"../_static/schemas/{output}.schema.json")
    by = _WRITTEN_BY.get(output, f"traceview {output}`")
    names = ", ".join(f"`{key}`" for key in keys)
    return f"| {link} | `{by} | {keys['schema_version']['const']} | {names} |"


def _prose(text: str) -> list[str]:
    """A docstring as text of Markdown: what it quotes is code, its arguments are a list."""
    parts = _ARGUMENT.sub(r"- `\1`: ", text).replace("Arguments:\n", "").split("`")
    parts[::2] = [_SPECIAL.sub(r"\\\g<0>", part) for part in parts[::2]]
    return ["`".join(parts), ""]


def _fenced(language: str, text: str) -> list[str]:
    return [f"```{language}", text.replace("```", "'''"), "```", ""]
