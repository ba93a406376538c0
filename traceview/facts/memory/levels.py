"""The device memory that is allocated at each moment: a running sum of allocations and releases."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.selection import issued_ns, selected, selected_operations
from traceview.records import record
from traceview.tables import Array, Integers, Mask, Table
from traceview.trace import Trace, fact

STATIC = "device static"
"""Memory of the code and variables of a module, allocated when the module is loaded."""
ON_DEVICE = ("device", STATIC, "array")
"""Kinds of memory that lie on the GPU. Managed memory may lie on either side."""


@record
class Level:
    """Allocated bytes of one device after each of its events, in order of time.

    `events` are rows of memory_events. `before_bytes` is the memory that was allocated before the
    recording began, the least that keeps the level from going below zero.
    """

    events: Integers
    time_ns: Integers
    bytes: Integers
    before_bytes: int

    def at(self, time: Integers) -> Integers:
        """The level at these times, in bytes."""
        number = np.searchsorted(self.time_ns, time, side="right")
        result: Integers = np.append(self.before_bytes, self.bytes)[number]
        return result

    def most_within(self, edges: Integers) -> Integers:
        """The highest level in each [edges[i], edges[i + 1]), in bytes."""
        highest = self.at(edges[:-1])
        slot = np.searchsorted(edges, self.time_ns, side="right") - 1
        inside = (slot >= 0) & (slot < len(highest))
        np.maximum.at(highest, slot[inside], self.bytes[inside])
        return highest


def running_level(events: Integers, time: Integers, change: Integers) -> Level:
    """The level from the changes in bytes (positive for allocations) of rows `events`."""
    order = np.argsort(time, kind="stable")
    level = np.cumsum(change[order])
    before = max(-int(level.min(initial=0)), 0)
    return Level(events[order], time[order], level + before, before)


def signed_bytes(events: Table) -> Integers:
    """Bytes of each event: positive for an allocation, negative for a release."""
    released = events.texts("operation").isin(["release"])
    result: Integers = np.where(released, -events["bytes"], events["bytes"])
    return result


def on_device(events: Table) -> Mask:
    """True for the events of memory that lies on a GPU."""
    return events.texts("memory").isin(ON_DEVICE)


@fact
def levels(trace: Trace) -> dict[int, Level]:
    """The level of each device with events, by row in devices; processes add up."""
    events = trace.recorded("memory_events")
    counted, change = on_device(events), signed_bytes(events)
    result = {}
    for device in groups.different(events["device"][counted]).tolist():
        rows = np.flatnonzero(counted & (events["device"] == device))
        result[device] = running_level(rows, events["time_ns"][rows], change[rows])
    return result


def selected_events(trace: Trace) -> Mask:
    """True for the selected rows of memory_events."""
    events = trace.recorded("memory_events")
    return selected(trace, events["process"], events["time_ns"])


def moments(trace: Trace, device: int) -> Integers:
    """Times at which the level counts: selected events and launches of selected operations.

    What was allocated before a selected range is in use there, so launches count, too.
    """
    level = levels(trace)[device]
    at_events = level.time_ns[selected_events(trace)[level.events]]
    if not trace.selection:
        return at_events
    ops = operations(trace)
    launches = issued_ns(trace)[selected_operations(trace) & (ops.device == device)]
    return np.sort(np.concatenate((at_events, launches)))


def processes_of(trace: Trace, device: int) -> Array:
    """The processes that allocated memory of a device, as rows of processes."""
    events = trace.recorded("memory_events")
    return groups.different(events["process"][levels(trace)[device].events])
