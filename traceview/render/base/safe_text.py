"""Text from a trace made fit to be shown: on one line, harmless, and of bounded length.

Names come from programs that nobody vouches for. They hold terminal escapes, newlines, marks that
turn the reading direction round, and megabytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from os.path import commonprefix

from rich.cells import cell_len

MOST = 400
"""How many characters of a name are worth showing in full anywhere."""

_ELLIPSIS = "…"
_CONTEXT = 3


def visible(text: str, most: int = MOST) -> str:
    """The text on one line with every character that does not print written as an escape.

    A text of more than `most` characters loses its middle, which happens first: escaping ten
    megabytes to show a line of them would take seconds.
    """
    clipped = _clipped(text, most)
    if clipped.isprintable():
        return clipped
    return "".join(c if c.isprintable() else _escaped(c) for c in clipped)


def shortened(text: str, width: int) -> str:
    """The text in at most `width` terminal cells; … stands for a middle left out."""
    if cell_len(text) <= width:
        return text
    if width < 3:
        return _head(text, width)
    tail = (width - 1) // 2
    return _head(text, width - 1 - tail) + _ELLIPSIS + _head(text[::-1], tail)[::-1]


def shortened_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each name in at most `width` cells, different ones kept different where that can be.

    Kernels of one family differ in the middle alone, which is what shortening leaves out: such
    names are then shown from a little before the place where they part.
    """
    alike: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        alike[shortened(text, width)].add(text)
    told_apart: dict[str, str] = {}
    for short, same in alike.items():
        parting = len(commonprefix(list(same))) if len(same) > 1 else 0  # noqa: RUF071
        for text in same:
            late = _from(text, parting - _CONTEXT, width)
            told_apart[text] = late if parting > _CONTEXT else short
    return [told_apart[text] for text in texts]


def cells_of(texts: Sequence[str], width: int, prose: bool) -> list[str]:
    """Texts for the cells of a table: names in at most `width` cells, prose left to be wrapped."""
    return list(texts) if prose else shortened_apart(texts, width)


def _from(text: str, start: int, width: int) -> str:
    """The text from `start` on, behind as much of its beginning as there is room for."""
    rest = _ELLIPSIS + text[start:]
    return _head(text, max(width - cell_len(rest), 0)) + shortened(rest, width)


def _clipped(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return text[: most - 1 - tail] + _ELLIPSIS + text[len(text) - tail :]


def _escaped(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        return "\N{REPLACEMENT CHARACTER}"
    return character.encode("unicode_escape").decode("ascii")


def _head(text: str, width: int) -> str:
    """As much of the beginning as fits; a wide character that would only half fit is left."""
    ends = accumulate(cell_len(character) for character in text)
    return text[: sum(1 for end in ends if end <= width)]
