"""Colours of source code: keywords, strings, comments, numbers, and the opcodes of listings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

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
