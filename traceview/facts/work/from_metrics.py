"""Bytes that kernels moved, from the sampled rates of device memory.

A sample speaks of the time from its time stamp to the next (as nsys 2025.3 writes them: with it,
the first and the last sample of a kernel fit its start and end to a few µs). Samples are whole per
cents of the peak rate, so a kernel must hold several; what it runs before the first and after the
last of these counts with the sample there, if no other work shares that, else at its mean rate.
Nothing is said of kernels that overlap other work on their GPU, nor of those that read and write at
less than LEAST_PCT of the peak rate: half a per cent of rounding is too much of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import kernel_operations, operations
from traceview.facts.work.estimate import Floats, Part
from traceview.facts.work.peaks import peaks
from traceview.tables import NULL, Integers, Mask
from traceview.trace import Trace, fact

LEAST_SAMPLES = 3
LEAST_PCT = 10
_GAP = 1.5


@dataclass(frozen=True)
class _Samples:
    """Samples of one GPU: from, to, bytes in that time; `rate` is the peak in bytes a second."""

    start: Integers
    end: Integers
    bytes: Floats
    rate: float

    def total(self, first: Integers, last: Integers) -> Floats:
        """Bytes of the samples from `first` up to `last`, the latter not among them."""
        running = np.concatenate(([0.0], np.cumsum(self.bytes)))
        result: Floats = running[last] - running[first]
        return result


def sampled(trace: Trace) -> Part | None:
    """What the table gpu_metrics says of each kernel; None without that table."""
    if not len(trace.recorded("gpu_metrics")):
        return None
    kernels = trace.recorded("kernels")
    part = Part.unknown(len(kernels))
    before, after = _neighbours(trace)
    for device in groups.different(kernels["device"]).tolist():
        samples = _samples(trace, device)
        if samples is not None:
            rows = np.flatnonzero(kernels["device"] == device)
            start, end = kernels["start_ns"][rows], kernels["end_ns"][rows]
            moved = _moved(samples, start, end, before[rows], after[rows])
            told = moved >= LEAST_PCT / 100 * samples.rate * (end - start) / 1e9
            part.bytes[rows] = np.where(alone(trace)[rows] & told, moved, np.nan)
    return part


@fact
def alone(trace: Trace) -> Mask:
    """True for the kernels that ran while nothing else did on their GPU."""
    kernels = trace.recorded("kernels")
    before, after = _neighbours(trace)
    result: Mask = (before <= kernels["start_ns"]) & (after >= kernels["end_ns"])
    return result


def _neighbours(trace: Trace) -> tuple[Integers, Integers]:
    """For each kernel, when all before it on its GPU had ended, and when the next began."""
    done = operations(trace)
    before = np.full(len(done), np.iinfo(np.int64).min)
    after = np.full(len(done), np.iinfo(np.int64).max)
    for device in groups.different(done.device):
        rows = np.flatnonzero(done.device == device)
        before[rows[1:]] = np.maximum.accumulate(done.end_ns[rows])[:-1]
        after[rows[:-1]] = done.start_ns[rows[1:]]
    mine = kernel_operations(trace)
    return before[mine], after[mine]


def _samples(trace: Trace, device: int) -> _Samples | None:
    """The samples of a GPU that has some of both metrics, and whose peak rate is known."""
    table = trace.table("gpu_metrics")
    mine = table["device"] == device
    ways = [mine & table.texts("metric").isin([name]) for name in ("dram-read", "dram-write")]
    read, written = (table["time_ns"][way] for way in ways)
    time = np.intersect1d(read, written)
    rate = _bandwidth(trace, device)
    if len(time) <= LEAST_SAMPLES or rate is None:
        return None
    parts = [_at(time, table["time_ns"][way], table["value_pct"][way]) for way in ways]
    lasted = np.diff(time)
    usual = int(np.median(lasted))
    # Where samples were lost, the one before speaks for its own time only.
    lasted = np.append(np.where(lasted > _GAP * usual, usual, lasted), usual)
    moved = (parts[0] + parts[1]) / 100 * rate * lasted / 1e9
    return _Samples(time, time + lasted, moved, rate)


def _at(time: Integers, sampled_at: Integers, value: Integers) -> Floats:
    result: Floats = value[np.searchsorted(sampled_at, time)].astype(np.float64)
    return result


def _bandwidth(trace: Trace, device: int) -> float | None:
    """What the per cents are of: the trace's own figure, whatever roof the user gives."""
    own = int(trace.devices["memory_bytes_per_s"][device])
    given = peaks(trace)[device].get("bandwidth")
    return float(own) if own != NULL else given.value if given else None


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
    whole = _gapless(samples, first, last)
    return np.where(enough & whole, inner + head + tail, np.nan)


def _gapless(samples: _Samples, first: Integers, last: Integers) -> Mask:
    """True where the samples follow each other without one being lost."""
    lost = np.concatenate(([0], np.cumsum(samples.start[1:] > samples.end[:-1])))
    result: Mask = lost[last - 1] == lost[first]
    return result


def _edge(
    samples: _Samples, at: Integers, lasted: Integers, rate: Floats, around: tuple[Integers, ...]
) -> Floats:
    """Bytes at an edge of a kernel that lasted so long: those of the sample, if nothing else ran.

    Never more than the memory can do in that time.
    """
    before, after = around
    place = at.clip(0, len(samples.start) - 1)
    own = (at == place) & (before <= samples.start[place]) & (after >= samples.end[place])
    most = samples.rate / 1e9 * lasted
    return np.where(own, np.minimum(samples.bytes[place], most), rate * lasted)
