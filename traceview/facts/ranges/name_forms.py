"""Forms of texts: texts that differ in their numbers alone share a form.

Digits between letters belong to a word, such as h2d or f8e4m3fn, and are not numbers. A program
that numbers its ranges has as many names as ranges. What a name means rarely depends on its
numbers, so it is looked up once per form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from ctypes import c_int64
from functools import cached_property

import numpy as np

from traceview import groups
from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.compiled.packed_texts import Bytes, PackedTexts
from traceview.compiled.text_numbers import (
    CollidingTextsError,
    TextDictionary,
    TextNumbers,
    text_numbers,
)
from traceview.records import record
from traceview.tables import Integers, Mask

_ZEROES = bytes.maketrans(b"123456789", b"000000000")
# Texts whose forms are made at once: they stay in the CPU cache.
_TEXTS_EACH = 1 << 14
MOST_DIGITS = 15


@record
class TextForms:
    """`form` is the form of each of `texts`, and `first` the first text of each form."""

    texts: PackedTexts
    form: Integers
    first: Integers

    @cached_property
    def examples(self) -> list[str]:
        """A text of each form."""
        texts: list[str] = self._examples.every.tolist()
        return texts

    @cached_property
    def _examples(self) -> PackedTexts:
        return self.texts.picked(self.first)

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """Whether each text begins with the pattern, which must not depend on values of numbers.

        A final entry, False, serves the code −1 of an absent text.
        """
        begins = re.compile(f"\n(?={pattern.pattern})", pattern.flags | re.MULTILINE)
        return self.meeting(pattern.match, begins)

    def meeting(self, rule: Callable[[str], object], near: re.Pattern[str]) -> Mask:
        """As `matching`, for texts that meet a rule.

        Only texts in which `near` occurs are asked, as names may differ in more than numbers and
        most meet no rule. It is searched in all texts at once, each of them after a line break,
        and should run on to the end of the line, so that each text has few matches.
        """
        places = np.fromiter((each.start() for each in near.finditer(self._lines)), np.int64)
        forms = groups.different(np.searchsorted(self._line_breaks, places, side="right") - 1)
        holds, examples = np.zeros(len(self.first), bool), self.examples
        holds[forms] = [bool(rule(examples[form])) for form in forms.tolist()]
        result: Mask = np.append(holds[self.form], False)
        return result

    @cached_property
    def _lines(self) -> str:
        return "\n".join(("", *self.examples))

    @cached_property
    def _line_breaks(self) -> Integers:
        """Where in `_lines` each example has its line break."""
        sizes = np.fromiter(map(len, self.examples), np.int64, len(self.examples)) + 1
        return np.cumsum(sizes) - sizes

    def last_numbers(self) -> Integers:
        """The last number of each text, −1 if there is none or it has over MOST_DIGITS digits."""
        result = np.full(len(self.texts), -1, np.int64)
        begin, digits = _last_digits(self._examples)
        digits[digits > MOST_DIGITS] = 0
        if library.has("traceview_read_numbers"):
            self._read_numbers(begin, digits, result)
            return result
        rows = np.flatnonzero(digits[self.form])
        if not len(rows):
            return result
        content = self.texts.content
        at = self.texts.starts[rows] + begin[self.form[rows]]
        count, value = digits[self.form[rows]], np.zeros(len(rows), np.int64)
        for place in range(int(count.max())):
            more = place < count
            digit = content[np.minimum(at + place, len(content) - 1)].astype(np.int64) - ord("0")
            value = np.where(more, value * 10 + digit, value)
        result[rows] = value
        return result

    def _read_numbers(self, begin: Integers, digits: Integers, result: Integers) -> None:
        """Write the number of each text whose form has one, of these digits from there on."""
        content = np.ascontiguousarray(self.texts.content, np.uint8)
        starts, form, begin, digits = (
            np.ascontiguousarray(each, np.int64)
            for each in (self.texts.starts, self.form, begin, digits)
        )
        library.call(
            "traceview_read_numbers",
            pointer(content),
            pointer(starts),
            pointer(form),
            c_int64(len(form)),
            pointer(begin),
            pointer(digits),
            pointer(result),
        )


def _last_digits(texts: PackedTexts) -> tuple[Integers, Integers]:
    """Where the last number of each text begins, and its count of digits, 0 without a number."""
    is_digit = texts.content - ord("0") < 10
    bounds = np.flatnonzero(np.diff(is_digit, prepend=False))
    # A NUL follows each text, so that every run of digits ends.
    begins, ends = bounds[::2], bounds[1::2]
    place = np.searchsorted(begins, texts.starts + texts.sizes) - 1
    begin, end = (np.append(each, -1)[place] for each in (begins, ends))
    digits = np.where(begin >= texts.starts, end - begin, 0)
    return begin - texts.starts, digits


def forms_of(texts: PackedTexts) -> TextForms:
    """The forms of texts, in order of appearance. Texts of one form are equally long."""
    try:
        form = _numbered(texts, text_numbers())
    except CollidingTextsError:
        form = _numbered(texts, TextDictionary())
    first = np.zeros(int(form.max(initial=-1)) + 1, np.int64)
    first[form[::-1]] = np.arange(len(form) - 1, -1, -1)
    return TextForms(texts, form, first)


def _numbered(texts: PackedTexts, numbers: TextNumbers) -> Integers:
    numbered = [numbers.of(part) for part in _zeroed_parts(texts)]
    return np.concatenate([np.empty(0, np.int64), *numbered])


def _zeroed_parts(texts: PackedTexts) -> Iterator[PackedTexts]:
    """Yield the texts in batches, with the digits of their numbers replaced by zeroes."""
    for begin in range(0, len(texts), _TEXTS_EACH):
        part = texts.slice(slice(begin, begin + _TEXTS_EACH))
        # The NUL between two texts keeps the digits of one from the letters of the next.
        first, end = int(part.starts[0]), int(part.starts[-1] + part.sizes[-1])
        yield PackedTexts(_zeroed(texts.content[first:end]), part.starts - first, part.sizes)


def _zeroed(content: Bytes) -> Bytes:
    """The bytes, with the digits of numbers replaced by zeroes."""
    if library.has("traceview_zero_numbers"):
        result = content.copy()
        library.call("traceview_zero_numbers", pointer(result), c_int64(len(result)))
        return result
    result = np.frombuffer(bytearray(content.tobytes().translate(_ZEROES)), np.uint8)
    digit, letter = content - ord("0") < 10, (content | 0x20) - ord("a") < 26
    begin = np.flatnonzero(digit[1:] & letter[:-1]) + 1
    if not len(begin):
        return result
    other = np.append(np.flatnonzero(~digit), len(content))
    end = other[np.searchsorted(other, begin)]
    inside = np.append(letter, False)[end]
    begin, size = begin[inside], (end - begin)[inside]
    kept = np.repeat(begin - np.cumsum(size) + size, size) + np.arange(int(size.sum()))
    result[kept] = content[kept]
    return result
