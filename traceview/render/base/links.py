"""Links in a terminal (OSC 8) from a source line to its file.

A file name in a trace is hostile text. Rich writes the address of a link to the terminal unescaped,
so the address is percent-encoded, and only files on this machine are linked.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from urllib.parse import quote

from rich.text import Text

_LONGEST = 1_000


def linked(text: Text, file: str | None, line: int | None) -> Text:
    """The text, with a link on each `name.py:31` that names this line of this file."""
    address = address_of(file)
    if address and file:
        words = f"{PurePath(file).name}:{line}" if line else PurePath(file).name
        start = text.plain.find(words)
        while words and start >= 0:
            text.stylize(f"link {address}", start, start + len(words))
            start = text.plain.find(words, start + len(words))
    return text


def address_of(file: str | None) -> str:
    """The `file://` address of a file on this machine; empty for any other name."""
    if not file or len(file) > _LONGEST or "\0" in file:
        return ""
    path = Path(file)
    try:
        return f"file://{quote(str(path.absolute()))}" if path.is_file() else ""
    except (OSError, ValueError):
        return ""
