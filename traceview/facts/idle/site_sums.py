"""Sums of parts of gaps by site: their time, and the gaps that have some of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.compiled import library
from traceview.facts.idle.cpu_activity import CpuActivity
from traceview.groups import Groups
from traceview.tables import Integers, Mask


class SiteSums(NamedTuple):
    """One entry per site: gaps with a part there and their time, and the same of steady gaps."""

    gaps: Integers
    time_ns: Integers
    steady_gaps: Integers
    steady_ns: Integers


def site_sums(sites: Groups, parts: CpuActivity, steady: Mask) -> SiteSums:
    """Sum parts by site, the group of each part. The parts of one gap are adjacent.

    `steady` has an entry for every gap, also for those without parts.
    """
    sums = tuple(np.zeros(sites.size, np.int64) for _ in SiteSums._fields)
    last_gap = np.full(sites.size, -1, np.int32)
    given = (sites.ids, parts.gap, parts.start_ns, parts.end_ns, len(parts), steady, last_gap)
    library.call("traceview_sum_sites", *given, *sums)
    return SiteSums(*sums)
