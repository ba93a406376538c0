"""Blocking calls: when the CPU stood in one, and on which device it waited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations.cuda_api import Does, what_calls_do
from traceview.facts.operations.operations import Kind, operations
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact


@dataclass(frozen=True)
class Waits:
    """One row a blocking call, in order of start. `call` is its row in api_calls.

    `device` is the device it waited for, −1 where a process uses several and the trace does not
    say which.
    """

    call: Integers
    does: Array
    start_ns: Integers
    end_ns: Integers
    process: Array
    thread: Array
    device: Integers

    def __len__(self) -> int:
        return len(self.call)


@fact
def waits(trace: Trace) -> Waits:
    """Synchronizations, copies, allocations and code loads that hold the calling thread."""
    calls = trace.recorded("api_calls")
    does = what_calls_do(trace)
    blocking = np.isin(does, [Does.SYNCHRONIZE, Does.COPY, Does.ALLOCATE, Does.LOAD, Does.LOOK_UP])
    blocking |= _copies_pageable(trace) & (does == Does.COPY_ASYNC)
    rows = np.flatnonzero(blocking)
    rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
    process = calls["process"][rows]
    return Waits(
        call=rows,
        does=does[rows],
        start_ns=calls["start_ns"][rows],
        end_ns=calls["end_ns"][rows],
        process=process,
        thread=calls["thread"][rows],
        device=_devices(trace, rows, process),
    )


def _copies_pageable(trace: Trace) -> Mask:
    """True for the API calls that copied pageable host memory: CUDA makes these wait."""
    done = operations(trace)
    copies = trace.recorded("copies")
    pageable = copies.texts("source_memory").isin(["pageable"])
    pageable |= copies.texts("destination_memory").isin(["pageable"])
    mine = (done.kind == Kind.COPY) & done.launched
    mine[mine] = pageable[done.row[mine]]
    result = np.zeros(len(trace.recorded("api_calls")), bool)
    result[done.call[mine]] = True
    return result


def _devices(trace: Trace, call: Integers, process: Array) -> Integers:
    """The device a call waits for: the only one its process uses, else that of its context."""
    done = operations(trace)
    device = np.full(len(call), -1, np.int64)
    several = np.zeros(len(call), bool)
    for number in groups.different(process).tolist():
        used = groups.different(done.device[done.process == number])
        if len(used) == 1:
            device[process == number] = used[0]
        several |= (process == number) & (len(used) > 1)
    asked = np.flatnonzero(several)
    device[asked] = _device_of_context(trace, call[asked])
    return device


def _device_of_context(trace: Trace, call: Integers) -> Integers:
    """Device of the context in which each call waited, −1 where the trace does not say."""
    calls, seen = trace.recorded("api_calls"), trace.recorded("synchronizations")
    keyed = ~calls.is_null("correlation_id")[call]
    process = calls["process"][call]
    found = groups.match(
        seen["process"], seen["correlation_id"], process, calls["correlation_id"][call], keyed
    )
    if not len(seen):
        return found
    streams = operations(trace).streams
    context = seen["context_id"][np.maximum(found, 0)]
    home = groups.match(streams[:, 0], streams[:, 2], process, context, found >= 0)
    return np.where(home >= 0, streams[:, 1][np.maximum(home, 0)], -1)
