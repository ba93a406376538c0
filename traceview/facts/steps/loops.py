"""Where one loop of a series ends and the next begins, and which loops are judged together.

A loop ends with the range around it (`epoch_0` around `batch_#`), and where the numbers of its
steps start again (`step_0` after `step_2`). Loops that are alike, such as epochs, are judged
together, by one median; a sweep over sizes runs other loops one after the other, and each is
judged by its own. Numbers that start again within alike loops tell nothing: that is one loop.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.tables import Array, Integers, Mask, Texts

_LEADING_ZEROS = re.compile(r"0(?<!\d0)0*(?=\d)")
ALIKE, MOST_LOOPS = 0.10, 0.90
"""Loops are alike where nine in ten of their medians differ from the middle one of them by no more
than a tenth of it, or than the steps of one loop differ among themselves (a standard deviation)."""
DEVIATIONS_PER_MAD = 1.4826
"""Of a normal distribution: a standard deviation in median absolute deviations (MAD)."""


def numbers(names: Texts) -> Array:
    """An integer for each name. Names that differ in leading zeros only have the same: 007 is 7."""
    values = names.values
    if not any(map(_LEADING_ZEROS.search, values)):
        return names.codes
    return names.map([_LEADING_ZEROS.sub("", str(name)) for name in values]).codes


def enters(series: Array, around: Array) -> Mask:
    """True for the steps that begin a loop because another range is around them, or a series."""
    return groups.opens(series, around)


def restarts(series: Array, number: Array) -> Mask:
    """True for the steps whose number is that of the first one of their series, after others."""
    begins = groups.opens(series)
    first = number[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    result: Mask = (number == first) & groups.opens(series, number)
    return result


def are_alike(took: Integers, loop: Integers, series: Array) -> Mask:
    """For each step whether the loops of its series are to be judged together.

    `loop` and `series` number those of each step, ascending. Loops of one step tell nothing of each
    other; where most steps are in such, it is one loop.
    """
    size, count = np.bincount(loop), int(series.max(initial=-1)) + 1
    several = size > 1
    of = series[np.flatnonzero(groups.opens(loop))]
    telling = np.bincount(series[several[loop]], minlength=count)
    asked = (2 * telling > np.bincount(series, minlength=count)) & (np.bincount(of) > 1)
    result = ~asked
    rows = np.flatnonzero(asked[series] & several[loop])
    loops = np.flatnonzero(asked[of] & several)
    near = _near(took[rows], loop[rows], series[rows], loops, of[loops])
    hits, every = (np.bincount(each, minlength=count) for each in (of[loops[near]], of[loops]))
    result[asked] = hits[asked] / every[asked] >= MOST_LOOPS
    return result[series]


def _near(took: Integers, loop: Integers, series: Array, loops: Integers, of: Array) -> Mask:
    """True for those of some loops whose median is near the middle one of their series.

    `took`, `loop` and `series` are those of their steps, `of` is the series of each loop.
    """
    number = np.searchsorted(loops, loop)
    median = groups.medians(number, len(loops), took)
    count = int(of.max(initial=-1)) + 1
    off = groups.twice_off(median[number], took)
    within = DEVIATIONS_PER_MAD * groups.medians(series, count, off) / 2
    middle = groups.medians(of, count, (2 * median).astype(np.int64)) / 2
    result: Mask = np.abs(median - middle[of]) <= np.maximum(ALIKE * middle, within)[of]
    return result
