"""Code inside sentences: commands, calls and options, marked up as such."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

_COMMAND = (
    r"\b(?:traceview|nsys) (?:record|report|compare|ptx|bench|doctor|export|profile|launch)\b"
    r"(?: (?:--[\w-]+(?:=[\w.,:/*-]*\w)?(?: (?!or\b|and\b|to\b|for\b|on\b|with\b)[a-z]\w*)?"
    r"|[A-Z]{3,}\b|\.\.\.))*"
)
_CODE = (
    r"--[a-z][\w-]+(?:[ =]'[^']*'|=[\w.,:/*-]*\w)?",  # an option
    r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*(?:=\w+)?",  # an environment variable
    r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\((?:[^()\s]*)\)",  # a call
    r"\b[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+(?::\d+)?",  # a dotted name, a file with its line
    r"\b[A-Za-z]\w*_[\w#/]*(?:=\w+)?",  # a name with an underscore, an argument
    r"\b(?:cuda|cu)[A-Z]\w+",  # a call of CUDA
    r"`[^`]+`",
)
_SPAN = re.compile(f"(?P<command>{_COMMAND})|(?P<code>{'|'.join(_CODE)})")
_LONGEST = 2_000


def coded(text: str) -> Markup:
    """The text, escaped, with its code in `<code>`; what is to be copied has `data-copy`."""
    if len(text) > _LONGEST:
        return escape(text)
    return Markup("").join(_pieces(text))


def _pieces(text: str) -> Iterator[Markup]:
    end = 0
    for span in _SPAN.finditer(text):
        yield escape(text[end : span.start()])
        if span["command"]:
            yield Markup("<code data-copy>{}</code>").format(span[0])
        else:
            yield Markup("<code>{}</code>").format(span[0])
        end = span.end()
    yield escape(text[end:])
