"""Sentences that stand whole in one place, with what depends on their figures marked in them.

`{gaps:gap}` and `{idle_ns}` are fields of a finding's template (see `findings.Finding`). Two more
forms are settled before, so that no sentence is put together elsewhere: `{calls?takes|take}` is the
first word for one and the second for any other number, and `[ of {dimension}]` is said only where
all that it names is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from traceview.findings import field_names
from traceview.records import record
from traceview.units import Value

_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_BY_NUMBER = re.compile(r"\{(\w+)\?([^{}|]*)\|([^{}]*)\}")


@record
class Clause:
    """A sentence that is said where its figures are known.

    With `least`, only where the first of them is at least that fraction of `of_ns`, a time that
    the claim has measured.
    """

    text: str
    least: float = 0.0
    of_ns: str = "total_ns"

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether to say it, by the figures of a claim."""
        names = field_names(_OPTIONAL.sub("", self.text))
        first, whole = (values.get(name) or 0 for name in (names[0], self.of_ns))
        if not self.least:
            return all(values.get(name) for name in names)
        enough = self.least * float(whole)
        return all(values.get(name) for name in names) and float(first) >= enough


def sentence(text: str, values: Mapping[str, Value]) -> str:
    """The template of a finding: `text` with its optional parts and words of number settled."""

    def part(match: re.Match[str]) -> str:
        return match[1] if all(values.get(name) for name in field_names(match[1])) else ""

    def word(match: re.Match[str]) -> str:
        return match[2] if values[match[1]] == 1 else match[3]

    return _BY_NUMBER.sub(word, _OPTIONAL.sub(part, text))
