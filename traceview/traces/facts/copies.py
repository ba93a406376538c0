"""Copies by direction and host memory, and the time of operations that other work hides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.groups import Groups
from traceview.base.intervals import Intervals
from traceview.base.tables import Array, Integers, Mask, Table, picked
from traceview.traces.facts import kernel_classes, operations
from traceview.traces.trace import Trace, fact_without_ranges

# Copies by direction and by the host memory they use, as masks over the operations.
#
# CUDA cannot read pageable memory from the GPU: the CPU first moves the bytes through pinned
# memory of CUDA's own. The call returns only after that, so even an Async copy blocks the CPU.

_ENDS = ("source", "destination")


@fact_without_ranges
def uploads(trace: Trace) -> Mask:
    """True for the operations that copy from the host to a GPU."""
    return among_operations(operations.operations(trace), is_upload(trace.recorded("copies")))


@fact_without_ranges
def downloads(trace: Trace) -> Mask:
    """True for the operations that copy from a GPU to the host."""
    return among_operations(
        operations.operations(trace), trace.recorded("copies").texts("direction").isin(["D2H"])
    )


@fact_without_ranges
def between_memories(trace: Trace) -> Mask:
    """True for the operations that copy from one memory to another, not within that of a GPU."""
    copies = trace.recorded("copies")
    return among_operations(operations.operations(trace), ~copies.texts("direction").isin(["D2D"]))


@fact_without_ranges
def pageable_uploads(trace: Trace) -> Mask:
    """True for the operations that copy from pageable host memory to a GPU."""
    return uploads(trace) & pageable_copies(trace)


@fact_without_ranges
def pageable_copies(trace: Trace) -> Mask:
    """True for the operations that copy from or to pageable host memory."""
    return among_operations(operations.operations(trace), is_pageable(trace.recorded("copies")))


@fact_without_ranges
def uses_managed_memory(trace: Trace) -> bool:
    """Whether pages of managed memory moved, or such memory was allocated or copied."""
    copies, events = trace.recorded("copies"), trace.recorded("memory_events")
    texts = (events.texts("memory"), *(copies.texts(f"{end}_memory") for end in _ENDS))
    return bool(
        operations.migrations(trace).any() or any(each.isin(["managed"]).any() for each in texts)
    )


def is_pageable(copies: Table) -> Mask:
    """True for the rows of copies with pageable host memory at either end."""
    source, destination = (copies.texts(f"{end}_memory") for end in _ENDS)
    return source.isin(["pageable"]) | destination.isin(["pageable"])


def is_upload(copies: Table) -> Mask:
    """True for the rows of copies that go from the host to a GPU."""
    return copies.texts("direction").isin(["H2D"])


def among_operations(ops: operations.Operations, copies: Mask) -> Mask:
    """True for the operations that are one of these copies, a mask over the rows of copies."""
    result: Mask = ops.kind == operations.Kind.COPY
    result[result] = copies[ops.row[result]]
    return result


# Pages of unified memory that move before the first or after the last work of their GPU.


@fact_without_ranges
def outer_migrations(trace: Trace) -> Mask:
    """True for the rows of copies that migrate pages while their GPU has no work at all.

    Programs fill their data on the CPU before the GPU's work and read results there after it.
    """
    copies, ops, limits = trace.recorded("copies"), operations.operations(trace), np.iinfo(np.int64)
    first, last = (np.full(len(trace.devices), limit) for limit in (limits.max, limits.min))
    np.minimum.at(first, ops.device, ops.start_ns)
    np.maximum.at(last, ops.device, ops.end_ns)
    device = copies["device"]
    outside = (copies["end_ns"] <= first[device]) | (copies["start_ns"] >= last[device])
    return operations.migrations(trace) & outside & (first < last)[device]


@fact_without_ranges
def outer_migration_time(trace: Trace) -> dict[int, Intervals]:
    """Time of the outer migrations of each device that has some, by row in devices."""
    copies, outer = trace.recorded("copies"), outer_migrations(trace)
    times = {}
    for device in groups.different(copies["device"][outer]).tolist():
        there = outer & (copies["device"] == device)
        times[device] = intervals.covered(copies, there)
    return times


@fact_without_ranges
def compute_time(trace: Trace) -> dict[int, Intervals]:
    """Union of the kernels of each device, by row in devices, without communication.

    A graph recorded whole is taken to compute all the time. The selection does not matter: work
    outside it hides as well.
    """
    ops = operations.operations(trace)
    computes = (ops.kind == operations.Kind.KERNEL) | (ops.kind == operations.Kind.GRAPH)
    kernels = np.flatnonzero(ops.kind == operations.Kind.KERNEL)
    computes[kernels] = ~picked(kernel_classes.communication_kernels(trace), ops.row[kernels])
    result = {}
    for device, rows in operations.operations_by_device(trace).items():
        rows = rows[picked(computes, rows)]
        result[device] = intervals.union(picked(ops.start_ns, rows), picked(ops.end_ns, rows))
    return result


class Exposure(NamedTuple):
    """Time covered by each group of operations, in ns: the sum of its unions on each device."""

    hidden_ns: Integers
    """Time during which the same device computes."""
    exposed_ns: Integers
    """Time during which it does not."""


def exposure(trace: Trace, device: Array, start: Integers, end: Integers, by: Groups) -> Exposure:
    """Hidden and exposed time of intervals, summed by the groups `by`.

    `device`, `start` and `end` have one entry per interval; `device` has rows of devices. The times
    of several devices in one group add up.
    """
    hidden, exposed = (np.zeros(by.size, np.int64) for _ in range(2))
    pairs = groups.group(by.ids, device)
    order = groups.order_of(pairs.ids)
    edges = np.searchsorted(pairs.ids[order], np.arange(pairs.size + 1))
    for pair, row in enumerate(pairs.first.tolist()):
        rows = order[edges[pair] : edges[pair + 1]]
        covered = intervals.union(start[rows], end[rows])
        compute = compute_time(trace).get(int(device[row]), intervals.EMPTY)
        under = int(intervals.overlap(compute, covered.start, covered.end).sum())
        hidden[by.ids[row]] += under
        exposed[by.ids[row]] += covered.total() - under
    return Exposure(hidden, exposed)


@fact_without_ranges
def shared_ns(trace: Trace) -> Integers:
    """Time of each row of kernels during which another kernel, or a graph, ran on its GPU."""
    ops, kernels = operations.operations(trace), trace.recorded("kernels")
    # A graph recorded whole is taken to run kernels all the time. Copies take no SM.
    computes = (ops.kind == operations.Kind.KERNEL) | (ops.kind == operations.Kind.GRAPH)
    result = np.zeros(len(kernels), np.int64)
    for device, rows in groups.rows_of(kernels["device"]).items():
        on_device = operations.operations_by_device(trace)[device]
        on_device = on_device[picked(computes, on_device)]
        start, end = picked(ops.start_ns, on_device), picked(ops.end_ns, on_device)
        busy_twice = intervals.covered_twice(start, end)
        start, end = picked(kernels["start_ns"], rows), picked(kernels["end_ns"], rows)
        result[rows] = intervals.overlap(busy_twice, start, end)
    return result


_MOST_BLOCKS = 512
"""More than any GPU has SMs: with so many blocks beside a kernel none is left."""


@fact_without_ranges
def blocks_beside(trace: Trace) -> Integers:
    """Blocks of other kernels that run during each row of kernels, on average over its time."""
    ops, kernels = operations.operations(trace), trace.recorded("kernels")
    result = np.zeros(len(kernels), np.int64)
    if not shared_ns(trace).any():
        return result
    sides = (np.clip(kernels[f"grid_{axis}"], 1, _MOST_BLOCKS).astype(np.int64) for axis in "xyz")
    of_kernel = np.minimum(np.multiply.reduce([*sides]), _MOST_BLOCKS)
    is_kernel = ops.kind == operations.Kind.KERNEL
    blocks = np.where(is_kernel | (ops.kind == operations.Kind.GRAPH), _MOST_BLOCKS, 0)
    blocks[is_kernel] = of_kernel[ops.row[is_kernel]]
    for device, rows in groups.rows_of(kernels["device"]).items():
        own = operations.operations_by_device(trace)[device]
        own = own[picked(blocks, own) > 0]
        at = np.concatenate([picked(ops.start_ns, own), picked(ops.end_ns, own)])
        order = np.argsort(at, kind="stable")
        at = at[order]
        running = np.cumsum(np.concatenate([blocks[own], -blocks[own]])[order])
        # Blocks times ns since the first operation.
        passed = np.append(0, np.cumsum(running[:-1] * np.diff(at)))
        start, end = picked(kernels["start_ns"], rows), picked(kernels["end_ns"], rows)
        until, since = (np.searchsorted(at, each, side="left") for each in (end, start))
        all_blocks = (passed[until] - passed[since]) / np.maximum(end - start, 1)
        result[rows] = np.rint(all_blocks - of_kernel[rows]).clip(0)
    return result
