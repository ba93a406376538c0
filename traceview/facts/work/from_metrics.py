"""Bytes that kernels moved, from sampled rates of device memory.

A sample covers the time from its time stamp to the next one. (So nsys 2025.3 writes them: the first
and last sample of a kernel fit its start and end within a few µs.) Samples are whole percentages of
the peak rate, so a kernel must span several. Its time before the first and after the last of these
counts at the rate of the sample there if no other work shares that sample, else at its mean rate.
Left out are kernels that overlap other work on their GPU, and those below LEAST_PCT of the peak
rate, where rounding by half a percent weighs too much.
"""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import (
    kernel_operations,
    operations,
    operations_by_device,
)
from traceview.facts.work.estimate import Floats, WorkEstimate
from traceview.facts.work.peaks import peaks
from traceview.records import record
from traceview.tables import NULL, Integers, Mask, picked, unbroken
from traceview.trace import Trace, fact

LEAST_SAMPLES = 3
LEAST_PCT = 10
_GAP = 1.5


@record
class _Samples:
    """Samples of one GPU: start, end and bytes of each; `rate` is the peak in bytes per second."""

    start: Integers
    end: Integers
    bytes: Floats
    rate: float

    def total(self, first: Integers, last: Integers) -> Floats:
        """Bytes of the samples from `first` up to, but not including, `last`."""
        running = np.concatenate(([0.0], np.cumsum(self.bytes)))
        result: Floats = running[last] - running[first]
        return result


def from_metrics(trace: Trace) -> WorkEstimate | None:
    """The bytes of each kernel by the table gpu_metrics; None without that table."""
    if not len(trace.recorded("gpu_metrics")):
        return None
    kernels = trace.recorded("kernels")
    estimate = WorkEstimate.unknown(len(kernels))
    before, after = _neighbours(trace)
    for device in groups.different(kernels["device"]).tolist():
        samples = _samples(trace, device)
        if samples is not None:
            rows = np.flatnonzero(kernels["device"] == device)
            start, end = kernels["start_ns"][rows], kernels["end_ns"][rows]
            moved = _moved(samples, start, end, before[rows], after[rows])
            enough = moved >= LEAST_PCT / 100 * samples.rate * (end - start) / 1e9
            estimate.bytes[rows] = np.where(alone(trace)[rows] & enough, moved, np.nan)
    return estimate


@fact
def alone(trace: Trace) -> Mask:
    """True for the kernels that ran alone on their GPU."""
    kernels = trace.recorded("kernels")
    before, after = _neighbours(trace)
    result: Mask = (before <= kernels["start_ns"]) & (after >= kernels["end_ns"])
    return result


def _neighbours(trace: Trace) -> tuple[Integers, Integers]:
    """For each kernel, when all earlier work on its GPU had ended and when the next began."""
    ops = operations(trace)
    before = np.full(len(ops), np.iinfo(np.int64).min)
    after = np.full(len(ops), np.iinfo(np.int64).max)
    for rows in operations_by_device(trace).values():
        later, earlier = unbroken(rows[1:]), unbroken(rows[:-1])
        before[later] = np.maximum.accumulate(picked(ops.end_ns, earlier))
        after[earlier] = picked(ops.start_ns, later)
    kernels = unbroken(kernel_operations(trace))
    return before[kernels], after[kernels]


def _samples(trace: Trace, device: int) -> _Samples | None:
    """The samples of a GPU; None without both metrics, enough samples and a known peak rate."""
    table = trace.table("gpu_metrics")
    here, metric = table["device"] == device, table.texts("metric")
    ways = [np.flatnonzero(here & metric.isin([name])) for name in ("dram-read", "dram-write")]
    reading, writing = (table["time_ns"][way] for way in ways)
    time = np.intersect1d(reading, writing)
    # The rate that the percentages refer to: the trace's own figure, else that of `peaks`.
    recorded, peak = trace.devices["memory_bytes_per_s"][device], peaks(trace)[device]
    if len(time) <= LEAST_SAMPLES or (recorded == NULL and "bandwidth" not in peak):
        return None
    rate = float(recorded) if recorded != NULL else peak["bandwidth"].value
    read, written = (
        table["value_pct"][way[np.searchsorted(table["time_ns"][way], time)]].astype(np.float64)
        for way in ways
    )
    lasted = np.diff(time)
    usual = int(np.median(lasted))
    # Where samples were lost, the one before speaks for its own time only.
    lasted = np.append(np.where(lasted > _GAP * usual, usual, lasted), usual)
    moved = (read + written) / 100 * rate * lasted / 1e9
    return _Samples(time, time + lasted, moved, rate)


def _moved(
    samples: _Samples, start: Integers, end: Integers, before: Integers, after: Integers
) -> Floats:
    first = np.searchsorted(samples.start, start)
    last = np.searchsorted(samples.end, end, side="right")
    enough = last - first >= LEAST_SAMPLES
    first, last = np.where(enough, first, 0), np.where(enough, last, LEAST_SAMPLES)
    inner = samples.total(first, last)
    rate = inner / (samples.end[last - 1] - samples.start[first])
    around = (before, after)
    head = _edge(samples, first - 1, samples.start[first] - start, rate, around)
    tail = _edge(samples, last, end - samples.end[last - 1], rate, around)
    lost = np.concatenate(([0], np.cumsum(samples.start[1:] > samples.end[:-1])))
    whole = lost[last - 1] == lost[first]
    return np.where(enough & whole, inner + head + tail, np.nan)


def _edge(
    samples: _Samples, at: Integers, lasted: Integers, rate: Floats, around: tuple[Integers, ...]
) -> Floats:
    """Bytes at an edge of a kernel, `lasted` ns long: those of the sample, if nothing else ran.

    Never more than the peak rate allows in that time.
    """
    before, after = around
    place = at.clip(0, len(samples.start) - 1)
    own = (at == place) & (before <= samples.start[place]) & (after >= samples.end[place])
    most = samples.rate / 1e9 * lasted
    return np.where(own, np.minimum(samples.bytes[place], most), rate * lasted)
