"""Sums of parts of gaps by site: their time, and the gaps that have some of it."""

from __future__ import annotations

from ctypes import c_int64
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.compiled import library
from traceview.compiled.library import pointer
from traceview.facts.idle.cpu_activity import CpuActivity
from traceview.groups import Groups
from traceview.tables import Integers, Mask

_FUNCTION = "traceview_sum_sites"


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
    if not library.has(_FUNCTION):
        return _site_sums(sites, parts, steady)
    gaps, time_ns, steady_gaps, steady_ns = (np.zeros(sites.size, np.int64) for _ in range(4))
    last_gap, gap = np.full(sites.size, -1, np.int32), np.ascontiguousarray(parts.gap, np.int32)
    site, start, end = (
        np.ascontiguousarray(each, np.int64) for each in (sites.ids, parts.start_ns, parts.end_ns)
    )
    steady = np.ascontiguousarray(steady)
    library.call(
        _FUNCTION,
        pointer(site),
        pointer(gap),
        pointer(start),
        pointer(end),
        c_int64(len(parts)),
        pointer(steady),
        pointer(last_gap),
        *map(pointer, (gaps, time_ns, steady_gaps, steady_ns)),
    )
    return SiteSums(gaps, time_ns, steady_gaps, steady_ns)


def _site_sums(sites: Groups, parts: CpuActivity, steady: Mask) -> SiteSums:
    order = groups.order_of(sites.ids)
    site, gap = sites.ids[order], parts.gap[order]
    first = groups.opens(site) | groups.opens(gap)
    often = steady[parts.gap]
    return SiteSums(
        gaps=groups.frequencies(site[first], sites.size),
        time_ns=groups.sums(sites, parts.duration_ns),
        steady_gaps=groups.frequencies(site[first & steady[gap]], sites.size),
        steady_ns=groups.sums(sites, np.where(often, parts.duration_ns, 0)),
    )
