"""Text from a trace made safe to show, bounded and on one line, and links to source lines.

Names come from untrusted programs. They hold terminal escapes, newlines, marks that reverse the
reading direction, and megabytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from os.path import commonprefix
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from rich.text import Text

MOST = 400
"""The most characters of a name that are shown in full anywhere."""

_ELLIPSIS = "…"
_CONTEXT = 3
_AT_ONCE = 1 << 12


def visible(text: str, most: int = MOST) -> str:
    """The text on one line, with every unprintable character written as an escape.

    A text of more than `most` characters first loses its middle: escaping ten megabytes to show
    one line of them would take seconds.
    """
    clipped = _clipped(text, most)
    if clipped.isprintable():
        return clipped
    return "".join(c if c.isprintable() else _escaped(c) for c in clipped)


def all_visible(texts: Sequence[str], most: int = MOST) -> list[str]:
    """`visible` of each text, fast if most need no change, as with a million range names."""
    result: list[str] = []
    for first in range(0, len(texts), _AT_ONCE):
        some = texts[first : first + _AT_ONCE]
        as_they_are = "".join(some).isprintable() and max(map(len, some)) <= most
        result += some if as_they_are else [visible(text, most) for text in some]
    return result


def shortened(text: str, width: int) -> str:
    """The text in at most `width` terminal cells, with … in place of its middle if too long."""
    if _width(text) <= width:
        return text
    if width < 3:
        return _head(text, width)
    tail = (width - 1) // 2
    first, last = _head(text, width - 1 - tail), _head(text[::-1], tail)[::-1]
    # A text that was shortened before keeps a single ellipsis.
    return first.removesuffix(_ELLIPSIS) + _ELLIPSIS + last.removeprefix(_ELLIPSIS)


def shortened_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each name in at most `width` cells; different names stay different where possible.

    Kernels of one family may differ in the middle alone, which is what shortening leaves out. Such
    names are shown from a little before the first difference.
    """
    if all(_width(text) <= width for text in texts):
        return list(texts)
    alike: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        alike[shortened(text, width)].add(text)
    shown: dict[str, str] = {}
    for short, same in alike.items():
        difference = len(commonprefix(list(same))) if len(same) > 1 else 0  # noqa: RUF071
        start = difference - _CONTEXT
        shown |= {text: _from(text, start, width) if start > 0 else short for text in same}
    return [shown[text] for text in texts]


def cells_of(texts: Sequence[str], width: int, prose: bool) -> list[str]:
    """Texts for a table's column: names in at most `width` terminal cells, prose left whole."""
    return list(texts) if prose else shortened_apart(texts, width)


def _from(text: str, start: int, width: int) -> str:
    """The text from `start` on, after as much of its beginning as fits."""
    rest = _ELLIPSIS + text[start:]
    return _head(text, max(width - _width(rest), 0)) + shortened(rest, width)


def _clipped(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return text[: most - 1 - tail] + _ELLIPSIS + text[len(text) - tail :]


def _width(text: str) -> int:
    """Terminal cells of a text: fast for ASCII, where they equal the characters."""
    if text.isascii() and text.isprintable():
        return len(text)
    # Documents are written without it.
    from rich.cells import cell_len

    return cell_len(text)


def _escaped(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        return "\N{REPLACEMENT CHARACTER}"
    return character.encode("unicode_escape").decode("ascii")


def _head(text: str, width: int) -> str:
    """As much of the beginning as fits; a wide character that would fit only half is dropped."""
    start = text[:width]
    if start.isascii() and start.isprintable():
        return start
    ends = accumulate(_width(character) for character in text)
    return text[: sum(1 for end in ends if end <= width)]


# Links in a terminal (OSC 8) from a source line to its file.
#
# A file name in a trace is hostile text. Rich writes the address of a link to the terminal
# unescaped, so the address is percent-encoded, and only files on this machine are linked.

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
