"""Events of malformed JSON: libkineto does not escape what it writes.

Names with quotes, backslashes or control characters break the syntax, as do `nan` and bytes that
are not UTF-8. Each value of libkineto's is followed by the next key or by the end of its line,
which shows where a string ends.
"""

from __future__ import annotations

import re

# A value ends before the next key or the end of its object.
_TEXT = re.compile(
    r'(?P<key>"[A-Za-z][\w .%()/#-]{0,60}":\s*)"(?P<text>.*?)"'
    r'(?=\s*,\s*"[A-Za-z][\w .%()/#-]{0,60}":|\s*,?\s*\}|\s*,\s*\n\s*"|\s*\n\s*,)',
    re.DOTALL,
)
_NUMBER = re.compile(r'(":\s*)(?:-?nan|-?inf(?:inity)?)(?=\s*[,}\n])', re.IGNORECASE)
_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_QUOTE = re.compile(r'(?<!\\)"')
_CONTROL = re.compile(r"[\x00-\x1f]")


def repaired(event: bytes) -> bytes:
    """The text of one event with its strings escaped and its numbers made valid JSON."""
    text = event.decode("utf-8", "replace")
    text = _NUMBER.sub(r"\1null", text)
    return _TEXT.sub(_escaped, text).encode()


def _escaped(match: re.Match[str]) -> str:
    text = _BACKSLASH.sub(r"\\\\", match["text"])
    text = _QUOTE.sub(lambda _: chr(92) + chr(34), text)
    text = _CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", text)
    return f'{match["key"]}"{text}"'
