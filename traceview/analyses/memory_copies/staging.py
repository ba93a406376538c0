"""Idle time before uploads of pageable memory, while the CPU moves their bytes.

CUDA first moves the bytes through pinned memory of its own, so pinned memory saves this time, too.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.sync_stalls.call_sites import wait_sites
from traceview.analyses.sync_stalls.stalls import stalls
from traceview.facts.idle.gaps import every_gap
from traceview.findings import severity_of
from traceview.tables import Table
from traceview.trace import Trace
from traceview.vocabulary.causes import COPY_WAIT

_IDLES = "the GPU idles for {staging_ns} more while the CPU moves the bytes to pinned memory."
STAGING, STAGING_OF_ONE = f" Before them, {_IDLES}", f" Before it, {_IDLES}"


def staging_idle_ns(trace: Trace, uploads: Table, device: int, span_ns: int) -> int:
    """Steady idle time of a device that ended with these uploads, spent inside their calls.

    0 where it is too small for a finding. Time of calls that a mark of the program locates is left
    out, because `sync-stalls` reports it at their line.
    """
    every, wait = every_gap(trace), stalls(trace).wait
    located = np.append(wait_sites(trace).site.codes >= 0, False)[wait]
    staged = (every.cause == COPY_WAIT) & (wait >= 0) & ~located & ~every.one_time
    staged &= (every.device == device) & groups.isin(every.end_ns, uploads["start_ns"])
    idle_ns = int(every.idle_ns[staged].sum())
    return idle_ns if severity_of(idle_ns, span_ns) else 0
