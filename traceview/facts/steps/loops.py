"""Loops of a series: where they begin, and which are compared together.

A loop ends with the range around it (`epoch_0` around `batch_#`), and where the numbers of its
steps restart (`step_0` after `step_2`). Similar loops, such as epochs, are compared with one
median. A sweep over sizes runs different loops one after the other, each with a median of its own.
Where numbers restart within similar loops, these count as one.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from traceview import groups
from traceview.records import record
from traceview.tables import Array, Integers, Mask, Texts
from traceview.vocabulary.amounts import DEVIATIONS_PER_MAD

# Warm-up steps and outliers of each loop, by the durations of its steps.

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
    # The last quarter may have much shorter steps than the quarter before it.
    quarter = place * 4 // size[loop]
    third, fourth = (_limits(duration_ns, loop, quarter == number)[0] for number in (2, 3))
    shrinks |= (third > _SHRINKS * fourth) & (size >= _LEAST_SHRINKING)
    early = np.where(shrinks, 0, early)
    later = place >= early[loop]
    median, limit = _limits(duration_ns, loop, later)
    comparable = (size - early >= COMPARABLE_STEPS) & ~shrinks
    outlier = later & comparable[loop] & (duration_ns > limit[loop])
    return StepClasses(~later, outlier, median, limit)


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
    return np.rint(median).astype(np.int64), np.rint(median + excess).astype(np.int64)


_LEADING_ZEROS = re.compile(r"0(?<!\d0)0*(?=\d)")
ALIKE, MOST_LOOPS = 0.10, 0.90
"""Loops are similar where nine in ten of their medians differ from the median of these by no more
than a tenth of it, or than the steps of one loop differ among themselves (a standard deviation)."""


def numbers(names: Texts) -> Array:
    """An integer for each name, equal for names that differ in leading zeros only (007 and 7)."""
    by_name = groups.group(names.codes)
    texts = names.take(by_name.first[names.codes[by_name.first] >= 0]).decode()
    if not any(map(_LEADING_ZEROS.search, texts)):
        return names.codes
    shortened = Texts.of([_LEADING_ZEROS.sub("", text) for text in texts]).codes
    # The group of absent names comes first.
    return np.append(np.full(by_name.size - len(texts), -1, np.int32), shortened)[by_name.ids]


def enters(series: Array, around: Array) -> Mask:
    """True for the first step of a series, or within each enclosing range."""
    return groups.opens(series, around)


def restarts(series: Array, number: Array) -> Mask:
    """True for the steps that repeat the number of the first one of their series."""
    begins = groups.opens(series)
    first = number[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    result: Mask = (number == first) & groups.opens(series, number)
    return result


def are_alike(duration_ns: Integers, loop: Integers, series: Array) -> Mask:
    """True for the steps whose series has similar loops, to be compared together.

    `loop` and `series` are the numbers of each step's loop and series, ascending. Loops of a single
    step cannot be compared; a series with most of its steps in such loops is one loop.
    """
    size, count = np.bincount(loop), int(series.max(initial=-1)) + 1
    several = size > 1
    of = series[np.flatnonzero(groups.opens(loop))]
    in_several = np.bincount(series[several[loop]], minlength=count)
    undecided = (2 * in_several > np.bincount(series, minlength=count)) & (np.bincount(of) > 1)
    result = ~undecided
    rows = np.flatnonzero(undecided[series] & several[loop])
    loops = np.flatnonzero(undecided[of] & several)
    near = _near(duration_ns[rows], loop[rows], series[rows], loops, of[loops])
    hits, every = (np.bincount(own, minlength=count) for own in (of[loops[near]], of[loops]))
    result[undecided] = hits[undecided] / every[undecided] >= MOST_LOOPS
    return result[series]


def _near(duration_ns: Integers, loop: Integers, series: Array, loops: Integers, of: Array) -> Mask:
    """True for the loops whose median is close to the median of all loops of their series.

    `duration_ns`, `loop` and `series` have one entry per step of these loops; `of` is the series of
    each loop.
    """
    number = np.searchsorted(loops, loop)
    median = groups.medians(number, len(loops), duration_ns)
    count = int(of.max(initial=-1)) + 1
    off = groups.doubled_deviation(median[number], duration_ns)
    within = DEVIATIONS_PER_MAD * groups.medians(series, count, off) / 2
    middle = groups.medians(of, count, (2 * median).astype(np.int64)) / 2
    result: Mask = np.abs(median - middle[of]) <= np.maximum(ALIKE * middle, within)[of]
    return result
