"""Sentences cut to a number of lines, and lists cut to a width, for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len, chop_cells

_ELLIPSIS = "…"
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_UNITS = frozenset(("%", "ns", "µs", "ms", "s", *_SIZES, *(f"{size}/s" for size in _SIZES)))
_SEPARATOR = " · "
_LONGEST_PART = 30
_LEAST_END = 12
"""Least cells of a last line; a shorter one gets words from the lines before."""
_LAST_CLAUSE = 0.75
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")


def wrapped(text: str, width: int, most: int) -> list[str]:
    """The text in at most `most` lines of `width` cells.

    Text that does not fit is cut at the end: to whole sentences if one fits, else to words and an
    ellipsis.
    """
    if whole := whole_sentences(text, width, most):
        return whole
    lines = _lines(text, width)
    kept = lines[:most]
    return [*kept[:-1], cut(f"{kept[-1]} {lines[most]}", width)]


def whole_sentences(text: str, width: int, most: int) -> list[str]:
    """As many whole sentences as fit in `most` lines of `width` cells, from the first one."""
    sentences = _SENTENCE_END.split(text) if text else []
    for count in range(len(sentences), 0, -1):
        lines = _lines(" ".join(sentences[:count]), width)
        if len(lines) <= most:
            return lines
    return []


def cut(text: str, width: int) -> str:
    """The text in one line of `width` cells, with an ellipsis for the words left out."""
    if cell_len(text) <= width:
        return text
    head = chop_cells(text, max(width - 1, 1))[0]
    shorter = head.rpartition(" ")[0]
    # Cut a name without spaces at the end of the line, a sentence before a clause just begun.
    kept = shorter if cell_len(shorter) > width // 2 else head
    before = kept.rpartition(", ")[0]
    kept = before if cell_len(before) > _LAST_CLAUSE * width else kept
    return f"{kept.rstrip(' ,;:')}{_ELLIPSIS}"


def joined_within(parts: Iterable[str], separator: str, width: int) -> str:
    """As many of the parts as fit in `width` cells, in order; a part that does not fit is skipped.

    The first one is always there, cut to the width.
    """
    present = [part for part in parts if part]
    text = cut(present[0], width) if present else ""
    for part in present[1:]:
        if cell_len(f"{text}{separator}{part}") <= width:
            text = f"{text}{separator}{part}"
    return text


def _lines(text: str, width: int) -> list[str]:
    """The words of the text in lines of at most `width` cells; a longer word is split."""
    words = _words(text)
    lines = _filled(words, width)
    if len(lines) > 1 and cell_len(lines[-1]) < _LEAST_END:
        # No narrower than the longest word: it would be split for the sake of the last line.
        narrowest = max(3 * width // 4 + 1, *map(cell_len, words))
        for narrower in range(width - 1, narrowest - 1, -1):
            other = _filled(words, narrower)
            if len(other) > len(lines):
                break
            if cell_len(other[-1]) >= _LEAST_END:
                return other
    return lines


def _filled(words: Iterable[str], width: int) -> list[str]:
    """The words in lines, filled greedily."""
    lines, line = [], ""
    for word in words:
        for piece in _pieces(word, width):
            longer = f"{line} {piece}" if line else piece
            if cell_len(longer) <= width:
                line = longer
            else:
                lines.append(line)
                line = piece
    return [*lines, line] if line or not lines else lines


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces of at most `width` cells, split after slashes where it has them."""
    pieces = []
    while cell_len(word) > width:
        head = chop_cells(word[:width], width)[0] or word[0]
        head = head[: head.rfind("/") + 1] or head
        pieces.append(head)
        word = word[len(head) :]
    return [*pieces, word]


def _words(text: str) -> list[str]:
    """Unbreakable pieces: words, numbers with their units, short parts of a list."""
    parts = text.split(_SEPARATOR)
    last = len(parts) - 1
    words: list[str] = []
    for number, part in enumerate(parts):
        short = len(parts) > 1 and cell_len(part) <= _LONGEST_PART
        words += [" ".join(part.split())] if short else _measured(part.split())
        if number < last and words:
            words[-1] += _SEPARATOR.rstrip()
    return [word for word in words if word]


def _measured(texts: Iterable[str]) -> list[str]:
    """The words, with a number and its unit joined."""
    words: list[str] = []
    for word in texts:
        if words and word.rstrip(".,;:)") in _UNITS and words[-1][-1].isdigit():
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words
