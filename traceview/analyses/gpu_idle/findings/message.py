"""Message and action of a finding while they are put together."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceview.tables import Cell


@dataclass
class Wording:
    """Message and action of a finding while they are put together, with their evidence values."""

    template: str
    remedy: str
    values: dict[str, Cell] = field(default_factory=dict)

    def add(self, sentence: str, **values: Cell) -> None:
        """Append a sentence, which starts with a blank, and its values."""
        self.template += sentence
        self.values.update(values)
