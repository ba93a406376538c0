"""Rates of columns: bytes per second."""

from __future__ import annotations

import numpy as np

from traceview.tables import Integers

_MOST_RATE = float(1 << 62)


def bytes_per_s(size: Integers, time_ns: Integers) -> Integers:
    """Bytes per second, 0 where no time passed."""
    rate = np.where(time_ns > 0, np.maximum(size, 0) / np.maximum(time_ns, 1) * 1e9, 0)
    # Damaged sizes and times make rates that no integer holds.
    return np.rint(np.minimum(rate, _MOST_RATE)).astype(np.int64)
