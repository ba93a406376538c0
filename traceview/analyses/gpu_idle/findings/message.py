"""Message and action of a finding while they are put together."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceview import units
from traceview.tables import Cell

_LEAST_PART = 0.02


@dataclass
class Wording:
    """Message and action of a finding while they are put together, with their evidence values."""

    template: str
    remedy: str
    values: dict[str, Cell] = field(default_factory=dict)
    names_part: bool = False
    """Whether a sentence names less than all of the idle time: "of that" would refer to it."""

    def add(self, sentence: str, **values: Cell) -> None:
        """Append a sentence, which starts with a blank, and its values."""
        self.template += sentence
        self.values.update(values)

    def add_part(self, name: str, part_ns: int, rest: str, **values: Cell) -> None:
        """Append a sentence on a part of the idle time: `147 ms of that` and the rest.

        Words replace the number where it would read the same as the whole. A part that is too small
        is left out.
        """
        whole = self.values["idle_ns"]
        if part_ns < _LEAST_PART * int(whole or 0):
            return
        self.names_part |= part_ns != whole
        what = f"{{{name}}} of that"
        if part_ns == whole:
            what = "All of it"
        elif units.quantity(name, part_ns) == units.quantity(name, whole):
            what = "Nearly all of it"
        self.add(f" {what} {rest}", **{name: part_ns}, **values)
