"""Triton's intermediate code as lines, each with the source line that it comes from.

TTIR and TTGIR end a line with the name of its location, LLIR with that of its debug metadata; both
name locations apart from the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from traceview.base.records import record
from traceview.kernels.ptx.model import SourceLine, source_path
from traceview.kernels.ptx.ttgir.parser import Places

STAGES = ("ttir", "ttgir", "llir")
"""In compilation order."""

_LOCATION = re.compile(r"^#loc(?P<name>\d*) = loc\((?P<text>.*)\)$", re.MULTILINE)
_AT = re.compile(r"\s*loc\(#loc(\d*)\)")
_PARAMETER_AT = re.compile(r'\s*loc\("[^"]*"\(#loc\d*\)\)')
_DEBUG = re.compile(r",? !dbg !(\d+)")
_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!DI(\w+)\((.*)\)$", re.MULTILINE)
_REFERENCE = re.compile(r"(scope|inlinedAt|file): !(\d+)")
_LINE = re.compile(r"\bline: (\d{1,9})\b")
_FILE = re.compile(r'filename: "([^"]*)"(?:, directory: "([^"]*)")?')
_DEEPEST = 100


@record
class StageLine:
    """A line of code. `number` is its line number in the stage's text, from 1."""

    text: str
    number: int
    source: SourceLine | None


def stage_lines(stage: str, text: str) -> tuple[StageLine, ...]:
    """The code of a stage (ttir, ttgir, llir), without its tables of locations and metadata."""
    return tuple(_llir(text) if stage == "llir" else _mlir(text))


def _mlir(text: str) -> Iterator[StageLine]:
    places = Places({match["name"]: match["text"] for match in _LOCATION.finditer(text)})
    known: dict[str, SourceLine | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#loc"):
            continue
        names = _AT.findall(line)
        name = names[-1] if names else None
        if name is not None and name not in known:
            known[name] = places.line(name)
        code = _PARAMETER_AT.sub("", _AT.sub("", line))
        yield StageLine(code, number, known[name] if name is not None else None)


def _llir(text: str) -> Iterator[StageLine]:
    source_of = _debug_lines(text)
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        inside = inside or line.startswith("define ")
        if not inside or not line.strip():
            continue
        at = _DEBUG.search(line)
        is_head = line.startswith("define ")
        source = source_of(at[1]) if at and not is_head else None
        yield StageLine(_DEBUG.sub("", line).rstrip(), number, source)
        inside = not line.startswith("}")


def _debug_lines(text: str) -> Callable[[str], SourceLine | None]:
    """A function from a debug metadata number to the outermost line of its inlining chain."""
    nodes = {match[1]: (match[2], match[3]) for match in _METADATA.finditer(text)}
    known: dict[str, SourceLine | None] = {}

    def source_of(number: str) -> SourceLine | None:
        if number not in known:
            known[number] = _outermost(number, nodes)
        return known[number]

    return source_of


def _outermost(number: str, nodes: Mapping[str, tuple[str, str]]) -> SourceLine | None:
    for _ in range(_DEEPEST):
        kind, text = nodes.get(number, ("", ""))
        if kind != "Location":
            return None
        references = dict(_REFERENCE.findall(text))
        line = _LINE.search(text)
        if "inlinedAt" not in references:
            file = _file(references.get("scope", ""), nodes)
            return SourceLine(file, int(line[1])) if file and line and int(line[1]) else None
        number = references["inlinedAt"]
    return None


def _file(number: str, nodes: Mapping[str, tuple[str, str]]) -> str | None:
    """The file of a debug scope; if it has none, that of the scope around it."""
    for _ in range(_DEEPEST):
        kind, text = nodes.get(number, ("", ""))
        match = _FILE.search(text) if kind == "File" else None
        if match:
            return source_path(f"{match[2]}/{match[1]}" if match[2] else match[1])
        references = dict(_REFERENCE.findall(text))
        number = references.get("file") or references.get("scope", "")
        if not number:
            return None
    return None
