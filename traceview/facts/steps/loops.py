"""Loops of a series: where they begin, and which are compared together.

A loop ends with the range around it (`epoch_0` around `batch_#`), and where the numbers of its
steps restart (`step_0` after `step_2`). Similar loops, such as epochs, are compared with one
median. A sweep over sizes runs different loops one after the other, each with a median of its own.
Where numbers restart within similar loops, these count as one.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.tables import Array, Integers, Mask, Texts
from traceview.vocabulary.amounts import DEVIATIONS_PER_MAD

_LEADING_ZEROS = re.compile(r"0(?<!\d0)0*(?=\d)")
ALIKE, MOST_LOOPS = 0.10, 0.90
"""Loops are similar where nine in ten of their medians differ from the median of these by no more
than a tenth of it, or than the steps of one loop differ among themselves (a standard deviation)."""


def numbers(names: Texts) -> Array:
    """An integer for each name, equal for names that differ in leading zeros only (007 and 7)."""
    each = groups.group(names.codes)
    texts = names.take(each.first[names.codes[each.first] >= 0]).decode()
    if not any(map(_LEADING_ZEROS.search, texts)):
        return names.codes
    shortened = Texts.of([_LEADING_ZEROS.sub("", text) for text in texts]).codes
    # The group of absent names comes first.
    return np.append(np.full(each.size - len(texts), -1, np.int32), shortened)[each.ids]


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
    hits, every = (np.bincount(each, minlength=count) for each in (of[loops[near]], of[loops]))
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
