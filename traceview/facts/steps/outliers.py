"""Warm-up steps and outliers of each loop, by the durations of its steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.records import record
from traceview.tables import Integers, Mask
from traceview.vocabulary.amounts import DEVIATIONS_PER_MAD

WARMED_UP_STEPS = 3
"""From so many steps on, the first one counts as warm-up, and warm-up can be recognized."""
COMPARABLE_STEPS = 5
"""From so many steps after warm-up on, one of them can be an outlier."""
MANY_DEVIATIONS, LEAST_EXCESS = 5.0, 0.10
"""An outlier exceeds the median by five standard deviations, estimated from the median absolute
deviation (MAD), and by a tenth."""

_SHRINKS, _LEVELS_OFF, _LEAST_SHRINKING = 1.25, 1.05, 16


@record
class StepClasses:
    """`warm_up` and `outlier` of each step; `median_ns` and `limit_ns` of each loop.

    The median is that of the steps after warm-up; an outlier exceeds the limit.
    """

    warm_up: Mask
    outlier: Mask
    median_ns: Integers
    limit_ns: Integers


def classify(duration_ns: Integers, loop: Integers) -> StepClasses:
    """Classify the steps of all loops by duration; `loop` is the loop of each step, ascending.

    The later half of a loop shows how long warm steps take; only steps of the first half can be
    warm-up. Where the steps of the later half, or those that would be warm-up, take ever less time,
    the work itself shrinks, as in an elimination: the loop has no warm-up and no outliers.
    """
    size = np.bincount(loop)
    first = np.cumsum(size) - size
    place = np.arange(len(duration_ns)) - first[loop]
    half = size[loop] // 2
    _, limit = _limits(duration_ns, loop, place >= half)
    like = (duration_ns <= limit[loop]) | (place >= half) | (size[loop] < WARMED_UP_STEPS)
    early = (
        np.minimum.reduceat(np.where(like, place, len(duration_ns)), first)
        if len(duration_ns)
        else size
    )
    shrinks = _level_off(duration_ns, loop, place, early)
    shrinks |= _shrinking(duration_ns, loop, place * 4 // size[loop])
    early = np.where(shrinks, 0, early)
    later = place >= early[loop]
    median, limit = _limits(duration_ns, loop, later)
    comparable = (size - early >= COMPARABLE_STEPS) & ~shrinks
    outlier = later & comparable[loop] & (duration_ns > limit[loop])
    return StepClasses(~later, outlier, median, limit)


def _shrinking(duration_ns: Integers, loop: Integers, quarter: Integers) -> Mask:
    """Whether the last quarter of each loop has much shorter steps than the quarter before it."""
    third, fourth = (_limits(duration_ns, loop, quarter == number)[0] for number in (2, 3))
    mask: Mask = (third > _SHRINKS * fourth) & (np.bincount(loop) >= _LEAST_SHRINKING)
    return mask


def _level_off(duration_ns: Integers, loop: Integers, place: Integers, early: Integers) -> Mask:
    """Whether each quarter of the early steps of each loop has shorter steps than the one before.

    Warm-up has fewer such steps, or steps of similar length.
    """
    mask: Mask = early >= _LEAST_SHRINKING
    quarter = place * 4 // np.maximum(early, 1)[loop]
    medians = [_limits(duration_ns, loop, quarter == number)[0] for number in range(4)]
    for one, following in pairwise(medians):
        mask &= one > _LEVELS_OFF * following
    return mask


def _limits(duration_ns: Integers, loop: Integers, counted: Mask) -> tuple[Integers, Integers]:
    """The median of the counted steps of each loop, and the limit that an outlier exceeds."""
    took, of, loops = duration_ns[counted], loop[counted], int(loop.max(initial=-1)) + 1
    median = groups.medians(of, loops, took)
    off = groups.doubled_deviation(median[of], took)
    deviation = DEVIATIONS_PER_MAD * (groups.medians(of, loops, off) / 2)
    excess = np.maximum(MANY_DEVIATIONS * deviation, LEAST_EXCESS * median)
    return _rounded(median), _rounded(median + excess)


def _rounded(values: npt.NDArray[np.float64]) -> Integers:
    return np.rint(values).astype(np.int64)
