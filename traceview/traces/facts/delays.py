"""Kernels that may only wait, as a program launches them to show what overlaps."""

from __future__ import annotations

import re

import numpy as np

from traceview.base import intervals
from traceview.base.tables import RowNumbers
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.traces.facts.operations import kernel_operations, operations
from traceview.traces.trace import Trace

_NAMES = re.compile(r"(?i)delay|spin|sleep|busy_?wait|clock_?block")


def beside_others_ns(trace: Trace, rows: RowNumbers) -> int:
    """The time of these launches of a kernel in which other work runs, if that is most of it."""
    kernels, ops = trace.recorded("kernels"), operations(trace)
    others = ops.device == kernels["device"][rows[0]]
    others[kernel_operations(trace)[rows]] = False
    start, end = kernels["start_ns"][rows], kernels["end_ns"][rows]
    beside_ns = int(intervals.overlap(intervals.covered(ops, others), start, end).sum())
    return beside_ns if 2 * beside_ns > int((end - start).sum()) else 0


def may_delay(trace: Trace, rows: RowNumbers) -> bool:
    """Whether these launches of a kernel are of one warp, and beside others or named for a delay.

    A public recording has one that takes 1.8 of 2 s, beside which all else runs as intended.
    """
    kernels = trace.recorded("kernels")
    threads = np.ones(len(rows))
    for axis in "xyz":
        threads *= kernels[f"grid_{axis}"][rows].astype(float) * kernels[f"block_{axis}"][rows]
    if not len(rows) or (threads > WARP_THREADS).any():
        return False
    named = _NAMES.search(str(kernels.texts("short_name")[int(rows[0])]))
    return bool(named) or beside_others_ns(trace, rows) > 0
