"""Quantiles of arrays, by partition.

numpy's import its masked arrays at the first call, which takes 30 ms.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from traceview.tables.arrays import Array


def quantile(values: Array, share: float) -> float:
    """The quantile of some values, interpolated linearly as by `np.quantile`.

    `values` has shape (n,), n > 0; `share` is 0 to 1.
    """
    place = (len(values) - 1) * share
    low = int(place)
    high = min(low + 1, len(values) - 1)
    middle = np.partition(values, (low, high))
    one, other = middle[low].item(), middle[high].item()
    part = place - low
    return float(one + (other - one) * part if part < 0.5 else other - (other - one) * (1 - part))


def median(values: Array) -> float:
    """`np.median` of all values, of any shape and without NaN; NaN if there are none."""
    return float(medians(values.reshape(-1))) if values.size else math.nan


def medians(values: Array, axis: int = -1) -> npt.NDArray[np.float64]:
    """`np.median` along an axis of values without NaN, which has at least one row."""
    count = values.shape[axis]
    low, high = (count - 1) // 2, count // 2
    ranked = np.partition(values, (low, high), axis)
    middle = np.take(ranked, (low, high), axis)
    return np.asarray(middle.mean(axis), np.float64)
