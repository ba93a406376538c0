"""The steady time of one device, divided by class of work and by cause of idle time.

The parts add up to the steady time exactly: of work that runs at once, that counts which started
first. Communication counts where nothing computes, copies where neither runs, as in the verdict.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from traceview import groups, intervals
from traceview.analyses.verdict.parts import steady_operations
from traceview.facts.idle.gaps import device_work, gaps, steady_spans_ns
from traceview.facts.operations.kernel_classes import (
    KernelClass,
    communication_operations,
    kernel_classes,
)
from traceview.facts.operations.operations import Kind, operations
from traceview.records import record
from traceview.tables import Integers
from traceview.trace import Trace, fact
from traceview.vocabulary.causes import CAUSE_NAMES

WHOLE_GRAPH, COPY, MEMSET = "graph", "copy", "memset"
_GRAPH = len(KernelClass)


@record
class TimePart:
    """Time of one kind. `name` is a class of kernels, graph, copy, memset, or a cause of idle."""

    kind: Literal["busy", "idle"]
    name: str
    time_ns: int


@record
class RunTime:
    """The time of one GPU after warm-up: `parts` add up to `steady_ns`.

    Busy parts come first, each kind in descending order. `run_ns` is the whole run, from the first
    start to the last end of anything recorded; `devices` counts the GPUs with steady time.
    """

    device_id: int
    devices: int
    run_ns: int
    steady_ns: int
    parts: tuple[TimePart, ...]


def run_time(trace: Trace, run_ns: int) -> RunTime | None:
    """The time of the device with the longest steady span; None where no GPU work is selected.

    `run_ns` is the duration of the recording.
    """
    of_gpu = _longest_steady(trace)
    return replace(of_gpu, run_ns=run_ns) if of_gpu else None


@fact
def _longest_steady(trace: Trace) -> RunTime | None:
    """`run_time`, of a run of unknown duration."""
    spans = steady_spans_ns(trace)
    if not spans:
        return None
    work = device_work(trace)
    device = max(spans, key=lambda each: (spans[each], work[each].steady_ns))
    busy = [TimePart("busy", *part) for part in _busy_ns(trace, device).items()]
    idle = [TimePart("idle", *part) for part in _idle_ns(trace, device).items()]
    ordered = sorted(busy + idle, key=lambda part: (part.kind, -part.time_ns))
    device_id = int(trace.devices["device_id"][device])
    parts = tuple(part for part in ordered if part.time_ns)
    return RunTime(device_id, len(spans), 0, spans[device], parts)


def _busy_ns(trace: Trace, device: int) -> dict[str, int]:
    """Steady busy time by kind of work; the sum is that of their union."""
    ops, rows = operations(trace), steady_operations(trace, device)
    communicating = communication_operations(trace)[rows]
    copying = (ops.kind[rows] == Kind.COPY) & ~communicating
    setting = (ops.kind[rows] == Kind.SET) & ~communicating
    chosen = ~(communicating | copying | setting)
    times = _computing_ns(trace, rows[chosen])
    covered_ns = sum(times.values())
    added = ((KernelClass.COMMUNICATION.label, communicating), (COPY, copying), (MEMSET, setting))
    for name, more in added:
        chosen |= more
        if more.any():
            union = intervals.union(ops.start_ns[rows[chosen]], ops.end_ns[rows[chosen]])
            times[name] = union.total() - covered_ns
            covered_ns = union.total()
    return times


def _computing_ns(trace: Trace, rows: Integers) -> dict[str, int]:
    """Time of kernels by class, and of whole graphs; what started first counts."""
    ops = operations(trace)
    labels = np.full(len(rows), _GRAPH)
    kernels = ops.kind[rows] == Kind.KERNEL
    labels[kernels] = kernel_classes(trace)[ops.row[rows[kernels]]]
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    reached = np.maximum.accumulate(end) if len(end) else end
    own = end - start
    own[1:] = np.maximum(end[1:] - np.maximum(start[1:], reached[:-1]), 0)
    sums = groups.added(labels, own, _GRAPH + 1)
    names = [*(kind.label for kind in KernelClass), WHOLE_GRAPH]
    return dict(zip(names, sums.tolist(), strict=True))


def _idle_ns(trace: Trace, device: int) -> dict[str, int]:
    every = gaps(trace)
    steady = (every.device == device) & ~every.one_time
    sums = groups.added(every.cause[steady], every.idle_ns[steady], len(CAUSE_NAMES))
    return dict(zip(CAUSE_NAMES, sums.tolist(), strict=True))
