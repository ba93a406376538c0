"""Texts by form: those that differ in their numbers alone share one.

Digits between letters belong to a word, such as h2d or f8e4m3fn, and are no number. A program that
numbers its ranges has as many names as ranges. What a name means rarely hangs on its numbers, so it
is asked once per form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from traceview.tables import Integers, Mask, places_of

_ZEROES = bytes.maketrans(b"123456789", b"000000000")
# What stands between two texts while all are one; a text may hold some of these.
_SEPARATORS = ("\n", "\0", "\x1e", "\x1f")
_LAST_NUMBER = re.compile(rb"(\d+)[^\d]*$")
MOST_DIGITS = 15


@dataclass(frozen=True)
class TextForms:
    """`form` is the form of each of `texts`, and `first` the first text of each form."""

    texts: Sequence[str]
    form: Integers
    first: Integers

    @property
    def examples(self) -> list[str]:
        """A text of each form."""
        return [self.texts[place] for place in self.first.tolist()]

    def matching(self, rule: Callable[[str], object]) -> Mask:
        """Of each text, whether the rule holds. It must not hang on the values of numbers.

        One more entry, False, is for the code −1 of an absent text.
        """
        holds = np.array([bool(rule(text)) for text in self.examples], bool)
        result: Mask = np.append(holds[self.form], False)
        return result

    def last_numbers(self) -> Integers:
        """The last number of each text, −1 without one and for one of more than MOST_DIGITS."""
        result = np.full(len(self.texts), -1, np.int64)
        encoded = [text.encode("utf-8", "surrogatepass") for text in self.examples]
        found = [_LAST_NUMBER.search(text) for text in encoded]
        spans = np.array([each.span(1) if each else (0, 0) for each in found], np.int64)
        digits = spans.reshape(-1, 2)[:, 1] - spans.reshape(-1, 2)[:, 0]
        number = (digits > 0) & (digits <= MOST_DIGITS)
        rows = np.flatnonzero(number[self.form])
        if not len(rows):
            return result
        joined = "".join(map(self.texts.__getitem__, rows.tolist())).encode(
            "utf-8", "surrogatepass"
        )
        size = np.array([*map(len, encoded)], np.int64)[self.form[rows]]
        content = np.frombuffer(joined, np.uint8)
        at = np.cumsum(size) - size + spans[self.form[rows], 0]
        count, value = digits[self.form[rows]], np.zeros(len(rows), np.int64)
        for place in range(int(count.max())):
            more = place < count
            digit = content[np.minimum(at + place, len(content) - 1)].astype(np.int64) - ord("0")
            value = np.where(more, value * 10 + digit, value)
        result[rows] = value
        return result


def forms_of(texts: Sequence[str]) -> TextForms:
    """The forms of some texts, in order of appearance. Texts of one form are equally long."""
    for separator in _SEPARATORS:
        joined = separator.join(texts)
        if joined.count(separator) == max(len(texts) - 1, 0):
            zeroed = _zeroed(joined.encode("utf-8", "surrogatepass"))
            return _numbered(texts, zeroed.split(separator.encode()) if texts else [])
    return _numbered(texts, [_zeroed(each.encode("utf-8", "surrogatepass")) for each in texts])


def _zeroed(text: bytes) -> bytes:
    """The text with zeroes as the digits of its numbers."""
    content = np.frombuffer(text, np.uint8)
    digit, letter = content - ord("0") < 10, (content | 0x20) - ord("a") < 26
    begin = np.flatnonzero(digit[1:] & letter[:-1]) + 1
    if not len(begin):
        return text.translate(_ZEROES)
    other = np.append(np.flatnonzero(~digit), len(content))
    end = other[np.searchsorted(other, begin)]
    inside = np.append(letter, False)[end]
    begin, size = begin[inside], (end - begin)[inside]
    kept = np.repeat(begin - np.cumsum(size) + size, size) + np.arange(int(size.sum()))
    result = np.frombuffer(bytearray(text.translate(_ZEROES)), np.uint8)
    result[kept] = content[kept]
    return result.tobytes()


def _numbered(texts: Sequence[str], forms: Sequence[bytes]) -> TextForms:
    form = places_of(forms, dict.fromkeys(forms)).astype(np.int64)
    first = np.zeros(int(form.max(initial=-1)) + 1, np.int64)
    first[form[::-1]] = np.arange(len(form) - 1, -1, -1)
    return TextForms(texts, form, first)
