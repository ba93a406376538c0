"""Events of malformed JSON: libkineto does not escape what it writes.

Names with quotes, backslashes or control characters break the syntax, as do `nan` and bytes that
are not UTF-8. Each value of libkineto's is followed by the next key or by the end of its line,
which shows where a string ends.
"""

from __future__ import annotations

import re

_NAME = rb'"[A-Za-z][\w .%()/#-]{0,60}":'
_VALUE = re.compile(_NAME + rb'\s*"')
# A value ends before the next key or the end of its object. Between two tokens is at most one
# unbounded repetition of white space, so that a search takes time in proportion to the text.
_END = re.compile(rb'"(?=\s*(?:\}|,\s*(?:\}|' + _NAME + rb'))|\s*,[^\S\n]*\n\s*"|[^\S\n]*\n\s*,)')
_NUMBER = re.compile(rb'(":\s*)(?:-?nan|-?inf(?:inity)?)(?=\s*[,}])', re.IGNORECASE)
_ESCAPE_OR_ODD = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\\x00-\x1f]')


def repaired(event: bytes) -> tuple[bytes, bool]:
    """The text of one event with its strings escaped and its numbers made valid JSON.

    Also whether the text ends inside of a string. Time and memory are linear in its length.
    """
    text = _NUMBER.sub(rb"\1null", event)
    parts, at = [], 0
    is_open = False
    while value := _VALUE.search(text, at):
        end = _END.search(text, value.end())
        if end is None:
            is_open = True
            break
        parts += [
            text[at : value.end()],
            _ESCAPE_OR_ODD.sub(_escape, text[value.end() : end.start()]),
        ]
        at = end.start()
        # The quote that ends a value begins no key.
        parts.append(text[at : at + 1])
        at += 1
    whole = b"".join([*parts, text[at:]])
    return whole.decode("utf-8", "replace").encode(), is_open


def _escape(match: re.Match[bytes]) -> bytes:
    odd = match[0]
    if len(odd) > 1:
        return odd
    return b"\\" + odd if odd in (b'"', b"\\") else b"\\u%04x" % odd[0]
