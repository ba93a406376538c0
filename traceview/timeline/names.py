"""The names of the rows of a timeline, each once, with the class that decides its colour."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview import groups
from traceview.tables import Array, Integers, RowNumbers, Texts, row_numbers

_LONGEST = 4_000


@dataclass
class RowNames:
    """Distinct names; a row refers to its name by number.

    `texts` are what to show, `classes` numbers of CLASSES, `whole` the full name where it differs
    (else empty). `launch` is the launch configuration of a kernel (see stream_lanes), −1 for none.
    """

    texts: list[str] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    launch: list[int] = field(default_factory=list)

    def add(
        self,
        texts: Texts,
        classes: Array | int,
        whole: Texts | None = None,
        launch: Integers | None = None,
    ) -> RowNumbers:
        """Add the names of rows and return the number of each row's name."""
        classes = np.broadcast_to(np.asarray(classes, np.int64), len(texts))
        parts = [texts.codes, classes]
        parts += [whole.codes] if whole is not None else []
        parts += [launch] if launch is not None else []
        each = groups.group(*parts)
        offset = len(self.texts)
        self.texts += _bounded(texts.take(each.first))
        self.classes += classes[each.first].tolist()
        self.whole += _whole(whole, each.first)
        self.launch += [-1] * each.size if launch is None else launch[each.first].tolist()
        return row_numbers(each.ids + offset)

    def __len__(self) -> int:
        return len(self.texts)


def _whole(whole: Texts | None, first: Integers) -> list[str]:
    if whole is None:
        return [""] * len(first)
    return _bounded(whole.take(first))


def _bounded(texts: Texts) -> list[str]:
    """The names, without the middle of those so long that nobody reads them."""
    names: list[str] = texts.decode().tolist()
    if (texts.codes < 0).any():
        names = [name or "" for name in names]
    return names if max(map(len, names), default=0) <= _LONGEST else list(map(_clipped, names))


def _clipped(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
