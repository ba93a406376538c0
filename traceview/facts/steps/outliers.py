"""Which steps of a loop are warm-up, and which later ones are unlike the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.steps.loops import DEVIATIONS_PER_MAD
from traceview.tables import Integers, Mask

WARMED_UP_STEPS = 3
"""With so many steps the first one counts as set-up, and warm-up can be told from the rest."""
COMPARABLE_STEPS = 5
"""Of so many steps after warm-up one can be called unlike the others."""
MANY_DEVIATIONS, LEAST_EXCESS = 5.0, 0.10
"""A step is unlike the others if it exceeds their median by five standard deviations, estimated
from the median absolute deviation (MAD), and by a tenth."""


@dataclass(frozen=True)
class Judged:
    """`warm_up` and `outlier` of each step, `median_ns` and `limit_ns` of each loop."""

    warm_up: Mask
    outlier: Mask
    median_ns: Integers
    limit_ns: Integers


def judge(took: Integers, loop: Integers) -> Judged:
    """Judges the steps of all loops by their durations; `loop` numbers that of each, ascending.

    The later half is what steps are when warm; only steps of the first half can be warm-up.
    """
    size = np.bincount(loop)
    first = np.cumsum(size) - size
    place = np.arange(len(took)) - first[loop]
    half = size[loop] // 2
    _, limit = _limits(took, loop, place >= half)
    like = (took <= limit[loop]) | (place >= half) | (size[loop] < WARMED_UP_STEPS)
    early = np.minimum.reduceat(np.where(like, place, len(took)), first) if len(took) else size
    later = place >= early[loop]
    median, limit = _limits(took, loop, later)
    comparable = size - early >= COMPARABLE_STEPS
    outlier = later & comparable[loop] & (took > limit[loop])
    return Judged(~later, outlier, median, limit)


def _limits(took: Integers, loop: Integers, counted: Mask) -> tuple[Integers, Integers]:
    """Median of the counted steps of each loop, and what a like one does not exceed."""
    took, of, loops = took[counted], loop[counted], int(loop.max(initial=-1)) + 1
    median = groups.medians(of, loops, took)
    off = groups.twice_off(median[of], took)
    deviation = DEVIATIONS_PER_MAD * (groups.medians(of, loops, off) / 2)
    excess = np.maximum(MANY_DEVIATIONS * deviation, LEAST_EXCESS * median)
    return _rounded(median), _rounded(median + excess)


def _rounded(values: npt.NDArray[np.float64]) -> Integers:
    return np.rint(values).astype(np.int64)
