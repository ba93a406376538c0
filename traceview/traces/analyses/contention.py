"""What overlap costs: the same kernel beside communication or a copy, and without one.

A collective takes SMs, memory bandwidth and cache from the kernels that run beside it. Launches of
one kernel with one grid and block are compared on a GPU: each that ran wholly beside a transfer
with the median of those that ran alone. Those beside kernels of other streams are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import LostTime
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Integers, Mask, RowNumbers, row_numbers
from traceview.traces.facts.idle.gaps import steady_span_ns, steady_spans_ns
from traceview.traces.facts.kernel_classes import communication_kernels, communication_operations
from traceview.traces.facts.operations import Kind, gpu_cells, operations
from traceview.traces.facts.steps.steps import steady_kernels
from traceview.traces.facts.work.peaks import bytes_per_s, peaks
from traceview.traces.rules import FindingRule, TimeClaim, gpu_name, gpu_subject
from traceview.traces.trace import Trace

_BESIDE, _ALONE = 0.9, 0.05
_LEAST_CALLS, _LEAST_KERNELS = 5, 2
_LEAST_NS = 10_000
"""Shorter kernels differ by more than a transfer beside them does."""
_ALIKE = 1.2
"""Launches of one grid that run alone differ by less, from the 10th to the 90th percentile, where
they do the same work. Other sizes of a product hide behind one grid."""
_SLOWER, _MOSTLY = 1.1, 0.7
"""Kernels that take so many times as long beside a transfer, in this part of their time."""
_LEAST_OF_LINK, _SLOWEST_LINK = 1 - 1 / _SLOWER, 16e9
"""A copy that leaves a kernel more than 1 ÷ 1.1 of the bandwidth makes it no 1.1 times as long, and
nothing that they share is slower than the link of the GPU: PCIe 3 where it is not known."""


@record
class Contended:
    """Rows of kernels of a GPU beside a transfer, and what each took beyond the median alone."""

    rows: RowNumbers
    more_ns: Integers

    @property
    def lost_ns(self) -> int:
        return int(self.more_ns.sum())


def _transfers(trace: Trace, device: int) -> tuple[Intervals, Intervals]:
    """When a GPU communicates, and when it copies fast enough to slow a kernel down."""
    ops, moves = operations(trace), communication_operations(trace)
    own = ops.device == device
    copies = np.flatnonzero(own & (ops.kind == Kind.COPY) & ~moves)
    size = trace.recorded("copies")["bytes"][ops.row[copies]]
    rate = bytes_per_s(size, ops.end_ns[copies] - ops.start_ns[copies])
    link = peaks(trace)[device].get("link")
    fast = copies[rate >= _LEAST_OF_LINK * (link.value if link else _SLOWEST_LINK)]
    return intervals.covered(ops, own & moves), intervals.covered(ops, fast)


def contended(trace: Trace, device: int, beside: Intervals, neither: Intervals) -> Contended | None:
    """Kernels of a GPU that take longer `beside` transfers; alone are those with `neither`."""
    kernels = trace.recorded("kernels")
    chosen = steady_kernels(trace) & (kernels["device"] == device) & ~communication_kernels(trace)
    chosen &= kernels.duration_ns >= _LEAST_NS
    # When kernels of several streams run on a GPU; those of one stream may overlap at their ends.
    #
    # Communication is none of them.
    ops = operations(trace)
    computes = (ops.kind == Kind.KERNEL) | (ops.kind == Kind.GRAPH)
    computes &= (ops.device == device) & ~communication_operations(trace)
    lane = np.where(computes, ops.stream, -1)
    each, _ = intervals.union_on_lanes(lane, ops.start_ns, ops.end_ns, len(ops.streams))
    twice = intervals.overlap(
        intervals.covered_twice(each.start, each.end), kernels["start_ns"], kernels["end_ns"]
    )
    rows = row_numbers(np.flatnonzero(chosen & (twice <= _ALONE * kernels.duration_ns)))
    start, end = kernels["start_ns"][rows], kernels["end_ns"][rows]
    shared = intervals.overlap(beside, start, end) / (end - start)
    alone = intervals.overlap(neither, start, end) <= _ALONE * (end - start)
    sides = [kernels[f"{what}_{axis}"][rows] for what in ("grid", "block") for axis in "xyz"]
    alike = groups.group(kernels.texts("name").codes[rows], *sides)
    return _slower(rows, end - start, alike, shared >= _BESIDE, alone)


def _slower(
    rows: RowNumbers, took_ns: Integers, alike: groups.Groups, beside: Mask, alone: Mask
) -> Contended | None:
    more, compared = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    judged_ns, slower_ns, kernels = 0, 0, 0
    for number in np.flatnonzero(groups.count(alike, beside) >= _LEAST_CALLS).tolist():
        own = np.flatnonzero(alike.ids == number)
        free, held = own[alone[own]], own[beside[own]]
        if len(free) < _LEAST_CALLS:
            continue
        low, usual, high = np.quantile(took_ns[free], (0.1, 0.5, 0.9))
        if high > _ALIKE * low:
            continue
        more[held], compared[held] = took_ns[held] - round(float(usual)), True
        judged_ns += int(took_ns[held].sum())
        if np.median(took_ns[held]) >= _SLOWER * usual:
            slower_ns, kernels = slower_ns + int(took_ns[held].sum()), kernels + 1
    if kernels < _LEAST_KERNELS or slower_ns < _MOSTLY * judged_ns:
        return None
    return Contended(rows[compared], more[compared])


_WITH_COLLECTIVES = (
    "Where communication ends long before it is needed, give it fewer SMs (NCCL_MAX_NCHANNELS or "
    "NCCL_MAX_CTAS), or none: use copy-engine or symmetric-memory collectives. Or order work so "
    "that memory-bound kernels run without it."
)
_WITH_COPIES = "Start these copies beside compute-bound kernels, or copy fewer bytes."


def _contention(trace: Trace) -> Iterator[TimeClaim]:
    """The GPU whose kernels lose most time beside transfers."""
    claims = []
    for device in steady_spans_ns(trace):
        communicates, copies = _transfers(trace, device)
        both = intervals.union(
            *(np.concatenate(side) for side in zip(communicates, copies, strict=True))
        )
        for what, beside in (("communication", communicates), ("copies", copies)):
            found = contended(trace, device, beside, both) if len(beside.start) else None
            if found is not None and found.lost_ns > 0:
                claims.append((found.lost_ns, device, what, found))
    if not claims:
        return
    lost_ns, device, what, found = max(claims, key=lambda each: each[0])
    kernels = trace.recorded("kernels")
    took_ns = int(kernels.duration_ns[found.rows].sum())
    longest = int(found.rows[np.argmax(found.more_ns)])
    yield TimeClaim(
        gpu_subject(trace, device),
        {
            "gpu": gpu_name(trace, device),
            "calls": len(found.rows),
            "kernels": len(groups.different(kernels.texts("name").codes[found.rows])),
            "beside": what,
            "took_ns": took_ns,
            "alone_ns": took_ns - lost_ns,
            "slowdown_factor": took_ns / max(took_ns - lost_ns, 1),
        },
        "ranks" if what == "communication" else None,
        gpu_cells(trace, device) if what == "communication" else {},
        lost_ns,
        span_ns=steady_span_ns(trace),
        window=(int(kernels["start_ns"][longest]), int(kernels["end_ns"][longest])),
        work=LostTime(device, intervals.covered(kernels, found.rows)),
        remedy=_WITH_COLLECTIVES if what == "communication" else _WITH_COPIES,
        # What runs beside it may have to run at some time.
        saving="at-most",
        # How much of it any order or fewer channels win is not measured.
        at_most="medium",
        cause="contention",
    )


CONTENTION = FindingRule(
    _contention,
    "{calls:launch|launches} of {kernels:kernel} take {took_ns} beside {beside}. At the median of "
    "launches of the same size that run alone, they would take {alone_ns}. They are slowed down "
    "{slowdown_factor}, yet one after the other both would take up to {alone_ns} longer.",
)
