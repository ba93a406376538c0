"""The time of findings on idle gaps, by which a report sees that two of them speak of the same."""

from __future__ import annotations

import numpy as np

from traceview import intervals
from traceview.facts.idle.gaps import Gaps
from traceview.findings import LostTime
from traceview.tables import Mask


def lost_in(every: Gaps, chosen: Mask) -> LostTime | None:
    """The chosen gaps of the device that idled longest in them; None without any."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return None
    device = int(np.argmax(np.bincount(every.device[rows], every.idle_ns[rows])))
    rows = rows[every.device[rows] == device]
    return LostTime(device, intervals.union(every.start_ns[rows], every.end_ns[rows]))
