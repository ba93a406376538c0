"""Estimate of what recording ranges cost the program.

The recorder lists its own start-up and flushes, and not what each range costs the thread that opens
and closes it. With `--pytorch=autograd-nvtx` a GPT step of 12.4 ms on an H200 was recorded as
23.2 ms: 10.8 ms for 4,360 ranges, 2.5 µs each. A plain range costs less, so this is an upper bound.
"""

from __future__ import annotations

import numpy as np

from traceview.analyses.trace_health.checks import Check
from traceview.facts.operations.operations import operations
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.trace import Trace

RANGE_NS = 2_500
"""Cost of one range, measured with the names, shapes and sequence numbers that autograd adds."""
NOTABLE_PCT = 10.0


def range_cost(trace: Trace) -> list[Check]:
    """The estimated cost of ranges after warm-up, on the thread with most of them."""
    ops, ranges = operations(trace), trace.recorded("ranges")
    if not len(ops) or not len(ranges):
        return []
    first = max(int(ops.start_ns[0]), warm_up_end_ns(trace))
    last = int(ops.end_ns.max())
    rows = (ranges["start_ns"] >= first) & (ranges["start_ns"] < last)
    number = int(np.bincount(ranges["thread"][rows]).max(initial=0))
    share_pct = 100.0 * number * RANGE_NS / max(last - first, 1)
    if share_pct < NOTABLE_PCT:
        return []
    template = (
        "Recording {ranges:range} on one thread cost it up to {cost_ns}, {cost_pct} of that time "
        "(estimate: {each_ns} per range). Steps are shorter without them."
    )
    values = {
        "ranges": number,
        "cost_ns": number * RANGE_NS,
        "cost_pct": min(share_pct, 100.0),
        "each_ns": RANGE_NS,
    }
    remedy = (
        "Record without the ranges of single operators (no --pytorch=autograd-nvtx, no "
        "emit_nvtx), or only a few steps with them."
    )
    return [Check("cost of ranges", "warning", template, remedy, values)]
