"""Bytes and FLOP of each kernel, from the best source; bytes from sampled memory rates.

Sources by precedence, for bytes and for FLOP each: counters of Nsight Compute, sampled GPU metrics,
declarations of the program, shapes of tensors, counts in the code.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Mask, Table, constant, picked, unbroken
from traceview.traces.facts.operations import kernel_operations, operations, operations_by_device
from traceview.traces.facts.work.from_ranges import Passages, from_declared, from_shapes
from traceview.traces.facts.work.peaks import KINDS, Floats, WorkEstimate, peaks
from traceview.traces.trace import Trace, fact, ncu

# Bytes that kernels moved, from sampled rates of device memory.
#
# A sample covers the time from its time stamp to the next one. (So nsys 2025.3 writes them: the
# first and last sample of a kernel fit its start and end within a few µs.) Samples are whole
# percentages of the peak rate, so a kernel must span several. Its time before the first and after
# the last of these counts at the rate of the sample there if no other work shares that sample,
# else at its mean rate. Left out are kernels that overlap other work on their GPU, and those
# below LEAST_PCT of the peak rate, where rounding by half a percent weighs too much.

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
        return running[last] - running[first]


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
    return (before <= kernels["start_ns"]) & (after >= kernels["end_ns"])


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


SOURCES = ("counters (ncu)", "counters (GPU metrics)", "declared", "tensor shapes", "PTX")
PTX = SOURCES.index("PTX")
DECLARED = SOURCES.index("declared")
MEASURED = SOURCES.index("counters (GPU metrics)")
"""The last source that measures; later ones state what should be moved."""


@record
class KernelWork:
    """The work of each kernel; `bytes_from` and `flop_from` are indices into SOURCES, -1 for none.

    `passages` have the work that several kernels did together; these have none of their own.
    """

    estimate: WorkEstimate
    bytes_from: Integers
    flop_from: Integers
    passages: Passages | None

    @property
    def is_unknown(self) -> bool:
        """Whether no source knows any work."""
        known = (self.bytes_from >= 0).any() or (self.flop_from >= 0).any()
        return not known and (self.passages is None or not self.passages.name)


@fact
def kernel_work(trace: Trace) -> KernelWork:
    """The work of every kernel of the trace, selected or not."""
    declared, passages = from_declared(trace) or (None, None)
    counted = None
    if "kernel_code" in trace.tables and len(trace.tables["kernel_code"]):
        # What reads code takes long to import, and most traces hold none.
        from traceview.traces.facts.work.from_code import from_code

        counted = from_code(trace)
    estimates = (from_counters(trace), from_metrics(trace), declared, from_shapes(trace), counted)
    total = len(trace.recorded("kernels"))
    if all(estimate is None for estimate in estimates):
        nowhere = constant(-1, total, np.int64)
        return KernelWork(WorkEstimate.absent(total), nowhere, nowhere, passages)
    work = KernelWork(WorkEstimate.unknown(total), np.full(total, -1), np.full(total, -1), passages)
    for number, estimate in enumerate(estimates):
        if estimate is not None:
            # What no earlier source knew.
            new = np.isnan(work.estimate.bytes) & ~np.isnan(estimate.bytes)
            work.estimate.bytes[new], work.bytes_from[new] = estimate.bytes[new], number
            new = np.isnan(work.estimate.flop) & ~np.isnan(estimate.flop)
            work.estimate.flop[new], work.flop_from[new] = estimate.flop[new], number
            work.estimate.kind[new] = estimate.kind[new]
    # Count each kernel by itself or in a passage, not both; counters take precedence.
    passages = work.passages
    if passages is None or not len(passages.name):
        return work
    alone = (work.bytes_from >= 0) & (work.bytes_from < DECLARED)
    alone |= (work.flop_from >= 0) & (work.flop_from < DECLARED)
    touched = np.zeros(len(passages.name), bool)
    touched[passages.of[alone & (passages.of >= 0)]] = True
    of = np.where((passages.of >= 0) & ~touched[passages.of], passages.of, -1)
    inside = of >= 0
    for values in (work.estimate.bytes, work.estimate.flop):
        values[inside] = np.nan
    work.bytes_from[inside] = work.flop_from[inside] = -1
    return replace(work, passages=replace(passages, of=of))


# Bytes and FLOP counted by Nsight Compute, assigned to the kernels of the trace.
#
# The counts come from another run of the program. Launches match by base name, grid and block.
# Where both runs have equally many of these, in one process each, they match in order; else every
# launch gets the mean.

_AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def from_counters(trace: Trace) -> WorkEstimate | None:
    """The work of each kernel by the table kernel_counters; None without that table."""
    if "kernel_counters" not in trace.tables:
        return None
    kernels, counters = trace.recorded("kernels"), trace.table("kernel_counters")
    estimate = WorkEstimate.unknown(len(kernels))
    names, axes = kernels.texts("short_name"), [kernels[axis] for axis in _AXES]
    launches = ncu.launches_of(counters)
    for rows in groups.rows_of(groups.group(names.codes, *axes).ids).values():
        counted = launches.get((names[rows[0]], *(int(axis[rows[0]]) for axis in axes)))
        if counted:
            _assign(estimate, rows, np.array(counted), counters, kernels)
    return estimate


def _assign(
    estimate: WorkEstimate, rows: Array, counted: Integers, counters: Table, kernels: Table
) -> None:
    """Fill in these rows of kernels from rows of counters."""
    processes = (
        groups.different(kernels["process"][rows]),
        groups.different(counters["process_id"][counted]),
    )
    paired = len(rows) == len(counted) and all(len(process) == 1 for process in processes)
    for into, name in ((estimate.bytes, "bytes"), (estimate.flop, "flop")):
        values = counters[name][counted]
        present = values[~np.isnan(values)]
        mean = float(present.mean()) if len(present) else np.nan
        into[rows] = values if paired else mean
    kinds = counters.texts("flop_kind")
    numbers = [
        KINDS.index(kind) if (kind := kinds[row]) in KINDS else -1 for row in counted.tolist()
    ]
    estimate.kind[rows] = numbers if paired else max(numbers, key=numbers.count)
