"""Forms of texts: texts that differ in their numbers alone share a form.

Digits between letters belong to a word, such as h2d or f8e4m3fn, and are not numbers. A program
that numbers its ranges has as many names as ranges. What a name means rarely depends on its
numbers, so it is looked up once per form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from traceview import groups
from traceview.compiled import library
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.tables.packed_texts import Bytes, CollidingTextsError, PackedTexts, TextNumbers

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
        texts, content = len(self.form), self.texts.content
        given = (content, self.texts.starts, self.form, texts, begin, digits, result)
        library.call("traceview_read_numbers", *given)
        return result


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
    numbers = TextNumbers()
    try:
        parts = [numbers.of(part) for part in _zeroed_parts(texts)]
    except CollidingTextsError:
        index: dict[bytes, int] = {}
        every = (raw for part in _zeroed_parts(texts) for raw in part)
        parts = [np.array([index.setdefault(raw, len(index)) for raw in every])]
    form = np.concatenate([np.empty(0, np.int64), *parts])
    first = np.zeros(int(form.max(initial=-1)) + 1, np.int64)
    first[form[::-1]] = np.arange(len(form) - 1, -1, -1)
    return TextForms(texts, form, first)


def _zeroed_parts(texts: PackedTexts) -> Iterator[PackedTexts]:
    """Yield the texts in batches, with the digits of their numbers replaced by zeroes."""
    for begin in range(0, len(texts), _TEXTS_EACH):
        part = texts.slice(slice(begin, begin + _TEXTS_EACH))
        # The NUL between two texts keeps the digits of one from the letters of the next.
        first, end = int(part.starts[0]), int(part.starts[-1] + part.sizes[-1])
        yield PackedTexts(_zeroed(texts.content[first:end]), part.starts - first, part.sizes)


def _zeroed(content: Bytes) -> Bytes:
    """The bytes, with the digits of numbers replaced by zeroes."""
    result = content.copy()
    library.call("traceview_zero_numbers", result, len(result))
    return result
