"""Code inside sentences: commands, calls and options, marked up as such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

_COMMAND = (
    r"\b(?:traceview|nsys) (?:record|report|compare|ptx|bench|doctor|export|profile|launch)\b"
    r"(?: (?:--[\w-]+(?:=[\w.,:/*-]*\w)?(?: (?!or\b|and\b|to\b|for\b|on\b|with\b)[a-z]\w*)?"
    r"|[A-Z]{3,}\b(?:\.[a-z]+\b)?|\.\.\.))*"
)
_FILE = r"(?:py|pyx|cu|cuh|c|cc|cpp|h|hpp)"
_CODE = (
    rf"(?<![\w./~-])(?:~?/)?(?:[\w.+-]+/)*[\w.+-]*\w\.{_FILE}(?::\d+)?(?![\w/])",  # a file, a line
    r"--[a-z][\w-]+(?:[ =]'[^']*'|=[\w.,:/*-]*\w)?",  # an option
    r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*(?:=\w+)?",  # an environment variable
    r"(?:\b[A-Za-z_]\w*|(?<!\w)(?=\.))(?:\.[A-Za-z_]\w*)*\((?:[^()\s]*)\)",  # a call
    r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+",  # a dotted name
    r"\b[A-Za-z](?=[\w#/]*_)[\w#/]*(?:::[\w:]*\w)?(?:=[\w#]+)?",  # a name, a path, an argument
    r"\bcu(?:da)?[A-Z][a-z]\w+",  # a call of CUDA
)
_SPAN = re.compile(f"`(?P<quoted>[^`]+)`|(?P<command>{_COMMAND})|(?P<code>{'|'.join(_CODE)})")
_LONGEST = 2_000
_COMPLETE = ("traceview doctor",)
"""Commands worth copying without arguments; other verbs need some."""


class Span(NamedTuple):
    """A part of a sentence; quoted code comes without its backticks."""

    text: str
    kind: Literal["prose", "code", "command"]


def code_spans(text: str) -> Iterator[Span]:
    """Split a sentence into prose, code and commands; a very long text is prose as a whole."""
    end = 0
    for match in _SPAN.finditer(text) if len(text) <= _LONGEST else ():
        yield Span(text[end : match.start()], "prose")
        whole = match["quoted"] or match[0]
        is_command = match["command"] and (" " in whole.partition(" ")[2] or whole in _COMPLETE)
        yield Span(whole, "command" if is_command else "code")
        end = match.end()
    yield Span(text[end:], "prose")


def coded(text: str) -> Markup:
    """The text, escaped, with code in `<code>` elements; commands to copy have `data-copy`."""
    return Markup("").join(_marked(span) for span in code_spans(text))


def _marked(span: Span) -> Markup:
    if span.kind == "prose":
        return escape(span.text)
    if span.kind == "command":
        return Markup("<code data-copy>{}</code>").format(span.text)
    return Markup("<code>{}</code>").format(span.text)
