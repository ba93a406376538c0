"""Counters over time: queue depth, device memory, and sampled metrics of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.facts.memory.levels import levels
from traceview.facts.operations.cuda_api import api_calls
from traceview.facts.operations.operations import operations, operations_by_device
from traceview.records import record
from traceview.tables import Integers, picked
from traceview.trace import Trace

_METRICS = {"dram-read": "DRAM read", "dram-write": "DRAM write"}


@record
class Counter:
    """A value on a device (row in devices) that holds from each time to the next.

    `unit` is operations, bytes or pct.
    """

    title: str
    unit: str
    device: int
    time_ns: Integers
    value: Integers
    exact: bool = True
    """Whether every change is kept; False after `reduced`."""

    def reduced(self, most: int) -> Counter:
        """The counter in at most `most` points: the least and the greatest value per slot."""
        if len(self.time_ns) <= most:
            return self
        first = np.linspace(0, len(self.time_ns), max(most // 2, 1) + 1).astype(np.int64)[:-1]
        least = np.minimum.reduceat(self.value, first)
        greatest = np.maximum.reduceat(self.value, first)
        start = self.time_ns[first]
        middle = start + (np.append(start[1:], self.time_ns[-1]) - start) // 2
        return Counter(
            self.title,
            self.unit,
            self.device,
            np.stack((start, middle), 1).reshape(-1),
            np.stack((greatest, least), 1).reshape(-1),
            exact=False,
        )


def counters(trace: Trace) -> Iterator[Counter]:
    """All counters of the trace, by device."""
    yield from queue_depths(trace)
    for device, level in levels(trace).items():
        if len(level.time_ns):
            yield Counter("Memory", "bytes", device, level.time_ns, level.bytes)
    samples = trace.recorded("gpu_metrics")
    sampled = groups.group(samples["device"], samples.texts("metric").codes)
    for number, first in enumerate(sampled.first.tolist()):
        rows = np.flatnonzero(sampled.ids == number)
        rows = rows[np.argsort(samples["time_ns"][rows], kind="stable")]
        metric = str(samples.texts("metric")[first])
        value = samples["value_pct"][rows].astype(np.int64)
        title = _METRICS.get(metric, metric)
        yield Counter(title, "pct", int(samples["device"][first]), samples["time_ns"][rows], value)


def queue_depths(trace: Trace) -> Iterator[Counter]:
    """A counter per device: operations whose launch call has started and that have not ended."""
    ops, calls = operations(trace), api_calls(trace)
    for device, on_device in operations_by_device(trace).items():
        rows = on_device[picked(ops.call, on_device) >= 0]
        if not len(rows):
            continue
        launched = intervals.ascending(picked(calls.start_ns, picked(ops.call, rows)))
        ended = intervals.ascending(picked(ops.end_ns, rows))
        yield Counter("Queue depth", "operations", device, *intervals.running(launched, ended))
