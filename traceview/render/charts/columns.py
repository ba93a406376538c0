"""The axis and the labels of upright columns.

One column that towers over the rest, such as a first step that loads code, would flatten all
others. The axis then ends a little above the others, and the cut column has its height written on
top. Series that stay high for long, or on one level, such as memory in use, are not cut.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_LABELS = 12
_ROOM, _TOWERING, _LONGEST_RUN = 1.15, 2.5, 3
_LONGEST_LABEL = 14


def reach_of(tops: npt.NDArray[np.float64]) -> float:
    """The end of the axis: above the highest column, or above most if a few tower over them."""
    usual = float(np.interp(0.75 * (len(tops) - 1), np.arange(len(tops)), np.sort(tops)))
    towers = tops > _TOWERING * usual
    is_level = (towers[1:] & (tops[1:] == tops[:-1])).any()
    if usual <= 0 or is_level or _longest_run(towers) > max(_LONGEST_RUN, len(tops) // MOST_LABELS):
        towers[:] = False
    return _ROOM * float(tops[~towers].max())


def _longest_run(flags: npt.NDArray[np.bool_]) -> int:
    """The length of the longest run of set flags."""
    ends = np.flatnonzero(~np.concatenate(([False], flags, [False])))
    return int(np.diff(ends).max()) - 1


def cut_columns(tops: npt.NDArray[np.float64], reach: float) -> list[int]:
    """The cut columns to label with their height: of close neighbours, the highest."""
    beyond = np.flatnonzero(tops > reach)
    shown: list[int] = []
    for row in beyond[np.argsort(-tops[beyond], kind="stable")].tolist():
        if all(abs(row - other) * MOST_LABELS >= len(tops) for other in shown):
            shown.append(row)
    return sorted(shown)


def label_ending(label: str) -> str:
    """The end of a label, where step names differ; for a path, from a slash on."""
    if len(label) <= _LONGEST_LABEL:
        return label
    end = label[1 - _LONGEST_LABEL :]
    return f"…{end[max(end.find('/'), 0) :]}"
