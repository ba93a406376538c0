"""The pattern of late steps in words: every step, every third step, one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.tables import Integers, Mask

_EVERY, _PERIODS, _LEAST_HITS = 0.8, range(2, 11), 3


def pattern_of(late: Mask, names: Sequence[str]) -> str:
    """The late steps in words: `every step`, `every third step`, `step 17`, `5 of 40 steps`."""
    rows = np.flatnonzero(late)
    if not len(names):
        return ""
    if len(rows) >= _EVERY * len(late):
        return "every step"
    period = next(_fitting(rows, len(late)), None)
    if period:
        return f"every {_ORDINALS[period]} step"
    if len(rows) <= 2:
        return " and ".join(names[row] for row in rows.tolist())
    return f"{len(rows)} of {len(late)} steps"


_ORDINALS = ("", "", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
             "tenth")  # fmt: skip


def _fitting(rows: Integers, count: int) -> Iterator[int]:
    """The periods at which the steps `rows` recur."""
    for period in _PERIODS:
        phase = int(np.bincount(rows % period).argmax())
        hits = int((rows % period == phase).sum())
        possible = len(range(phase, count, period))
        if hits >= max(_LEAST_HITS, _EVERY * len(rows), _EVERY * possible):
            yield period
