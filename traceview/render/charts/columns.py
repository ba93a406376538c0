"""The axis and the labels of upright columns.

One column that towers over the rest, such as a first step that loads code, would flatten all
others: the axis then ends a little above these, and the cut column has its height written on top.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_LABELS = 12
_ROOM, _TOWERING = 1.15, 2.5
_LONGEST_LABEL = 14


def reach_of(tops: npt.NDArray[np.float64]) -> float:
    """The end of the axis: above the highest column, or above most where a few are far higher."""
    highest, usual = float(tops.max()), float(np.percentile(tops, 75))
    towering = usual > 0 and highest > _TOWERING * usual
    return _ROOM * (float(tops[tops <= _TOWERING * usual].max()) if towering else highest)


def label_ending(label: str) -> str:
    """The end of a label, which is where the names of steps differ."""
    return label if len(label) <= _LONGEST_LABEL else f"…{label[1 - _LONGEST_LABEL :]}"
