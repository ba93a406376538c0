"""Bytes and FLOP of each kernel, from the best source available.

Sources by precedence, for bytes and for FLOP each: counters of Nsight Compute, sampled GPU metrics,
declarations of the program, shapes of tensors, counts in the code.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceview import groups
from traceview.facts.work.estimate import KINDS, WorkEstimate
from traceview.facts.work.from_metrics import from_metrics
from traceview.facts.work.from_ranges import Passages, from_declared, from_shapes
from traceview.records import record
from traceview.tables import Array, Integers, Table, constant
from traceview.trace import Trace, fact
from traceview.trace.ncu.counters import launches_of

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
        from traceview.facts.work.from_code import from_code

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
    return _counted_once(work)


def _counted_once(work: KernelWork) -> KernelWork:
    """Count each kernel by itself or in a passage, not both; counters take precedence."""
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
    launches = launches_of(counters)
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
