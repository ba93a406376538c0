"""Pinning of host memory that takes longer than the copies which it makes faster."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceview.base.findings import RECORDING
from traceview.traces.facts.operations import api_calls, operations
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.rules import FindingRule, TimeClaim
from traceview.traces.trace import Trace

_PINS = re.compile(
    r"cuda(HostAlloc|MallocHost|HostRegister)|cuMem(HostAlloc|AllocHost|HostRegister)"
)
_FREES = re.compile(r"cuda(FreeHost|HostUnregister)|cuMem(FreeHost|HostUnregister)")
_LEAST, _TIMES = 0.1, 2
"""The part of the run, and the times of the copies, from which on pinning does not pay: copies of
pinned memory are some two times as fast as others. 839 ms of 1.86 s pin and free 1.2 GB, which is
copied once in 92 ms (a public recording)."""


def of_pinning(trace: Trace) -> Iterator[TimeClaim]:
    """Host memory that is pinned before all GPU work and freed after it."""
    ops, calls, copies = operations(trace), api_calls(trace), trace.recorded("copies")
    if trace.selection or not len(ops):
        return
    names, took_ns = trace.recorded("api_calls").texts("name"), calls.end_ns - calls.start_ns
    beside = (calls.end_ns <= ops.start_ns.min()) | (calls.start_ns >= ops.end_ns.max())
    pins, frees = (beside & names.matching(each.match) for each in (_PINS, _FREES))
    each_ns = np.sort(took_ns[pins])
    if len(each_ns) < 2:
        return
    # The first call of CUDA also starts it, which the median leaves out.
    usual_ns = int(each_ns[(len(each_ns) - 1) // 2])
    pinned_ns = len(each_ns) * usual_ns + int(took_ns[frees].sum())
    start, end = recorded_span(trace)
    used = [copies.texts(each).isin(["pinned"]) for each in ("source_memory", "destination_memory")]
    copied_ns = int(copies.duration_ns[used[0] | used[1]].sum())
    if pinned_ns < max(_LEAST * (end - start), _TIMES * copied_ns):
        return
    values = {"pinned_ns": pinned_ns, "run_ns": end - start, "copied_ns": copied_ns}
    values["calls"] = int(np.count_nonzero(pins | frees))
    yield TimeClaim(RECORDING, values, None, {}, saved_ns=pinned_ns, severity="medium")


RULE = FindingRule(
    of_pinning,
    "Pinning host memory takes {pinned_ns} of the {run_ns} recorded ({calls:call}, besides the "
    "start of CUDA), the copies of it {copied_ns}.",
    "Pin it once and use it for many copies. For data that is copied once, pin a small buffer and "
    "copy the data through it in parts, or leave it pageable.",
)
