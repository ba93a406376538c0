"""Code on pages: lines and blocks for the templates, their colours, and code inside sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from traceview.records import record


@record
class CodeLink:
    """A link to the page element with the id `target`; plain text if that is empty."""

    text: str
    target: str


@record
class CodeLine:
    """A line of code. `mark` is a CSS class shared by all code from one source line."""

    text: str
    margin: str
    narrow: bool
    id: str | None = None
    mark: str | None = None
    links: tuple[CodeLink, ...] = ()
    number: int | None = None
    after_gap: bool = False


@record
class CodeBlock:
    """A source file or listing, its lines called `unit`; `missing` is the reason if it is empty."""

    title: str
    lines: tuple[CodeLine, ...] = ()
    missing: str = ""
    left_out: int = 0
    unit: str = "instructions"


_PYTHON = (
    "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global"
    "|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False"
)
_CUDA = (
    "auto|bool|char|const|constexpr|do|double|extern|float|inline|int|long|namespace|new|restrict"
    "|short|signed|sizeof|static|struct|switch|template|typename|union|unsigned|using|void|volatile"
    "|__device__|__global__|__shared__|__restrict__|__launch_bounds__"
)
_SOURCE = re.compile(
    r"(?P<comment>\#(?!include|define|pragma|if|else|endif).*|//.*|/\*.*?\*/)"
    r"|(?P<string>\"[^\"]*\"|'[^']*')"
    rf"|(?P<keyword>\b(?:{_PYTHON}|{_CUDA})\b|@[\w.]+|#\w+)"
    r"|(?P<number>\b\d[\w.]*\b)"
)
_LISTING = re.compile(r"^(?P<space>\s*)(?P<guard>@\S+ )?(?P<opcode>[A-Za-z][\w.:]*)")


def colored(text: str, is_listing: bool) -> Markup:
    """A line of a file or listing, escaped, with its tokens in `<b>` elements with classes.

    Each line is coloured on its own, even within a docstring of several lines.
    """
    if is_listing:
        return _listing_line(text)
    return Markup("").join(_tokens(text))


def _tokens(text: str) -> Iterator[Markup]:
    end = 0
    for token in _SOURCE.finditer(text):
        yield escape(text[end : token.start()])
        yield Markup('<b class="{}">{}</b>').format(token.lastgroup, token[0])
        end = token.end()
    yield escape(text[end:])


def _listing_line(text: str) -> Markup:
    match = _LISTING.match(text)
    if not match:
        return escape(text)
    guard = Markup('<b class="string">{}</b>').format(match["guard"]) if match["guard"] else ""
    opcode = Markup('<b class="keyword">{}</b>').format(match["opcode"])
    return escape(match["space"]) + guard + opcode + escape(text[match.end() :])


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
