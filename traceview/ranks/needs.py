"""The time that each rank itself needs for a step: CPU time, and GPU time without waits.

A step lasts as long as the slower of the two on the slowest rank. A CPU that runs ahead evens out
steps of different length, and a rank that fell behind once stays behind, so the ranks that wait in
a step do not show which rank lost time in it. Lost time is therefore sought in the needs of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview import groups
from traceview.ranks.figures import RankFigures
from traceview.ranks.job import MatchedCommunicator
from traceview.ranks.step_alignment import CommonSteps
from traceview.ranks.waits import Reals, column_of, exposed_waits
from traceview.records import record
from traceview.tables import Integers
from traceview.vocabulary.causes import DEPENDENCY

_MOST_OF_STEP = 0.9


@record
class Needs:
    """Needs in ns by rank and steady step of the job, NaN where a rank lacks the step.

    `gpu_ns` is work, exposed transfers without waits, and waits for other streams; `cpu_ns` is the
    CPU's time outside of waits for the GPU. `duration_ns` is the duration of the step.
    """

    cpu_ns: Reals
    gpu_ns: Reals
    duration_ns: Reals

    @property
    def launch_bound(self) -> bool:
        """Whether the CPU of some rank is busy for nearly all of the step, and the GPU of none is.

        Such a CPU runs free: time lost once is not made up. A CPU that waits for the GPU in each
        step loses time on top of the GPU's, and a busy CPU costs nothing where a GPU, or one that
        its own GPU waits for in a collective, is as busy.
        """
        nearly_all = _MOST_OF_STEP * self.mean_ns(self.duration_ns)
        cpu, gpu = (self.mean_ns(needed) >= nearly_all for needed in (self.cpu_ns, self.gpu_ns))
        return bool(cpu.any() and not gpu.any())

    def mean_ns(self, values: Reals) -> Reals:
        """The mean over the steps of each rank; NaN for a rank without steps."""
        there = ~np.isnan(values)
        total = np.where(there, values, 0.0).sum(axis=1)
        return np.where(there.any(axis=1), total / np.maximum(there.sum(axis=1), 1), np.nan)

    @property
    def pace_ns(self) -> Reals:
        """The longer of the mean CPU and GPU needs of each rank: running ahead evens out steps."""
        return np.fmax(self.mean_ns(self.cpu_ns), self.mean_ns(self.gpu_ns))


def needs_of(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], steps: CommonSteps
) -> Needs | None:
    """The needs of all ranks; None without common steps, or where the CPU was not recorded."""
    numbers = np.flatnonzero(steps.steady)
    recorded = (figures.steps.cpu_ns is not None for figures in ranks if len(figures.steps))
    if not len(numbers) or not all(recorded):
        return None
    waited = _waited(ranks, matched)
    row = steps.row[:, numbers]
    cpu, gpu, duration = (np.full(row.shape, np.nan) for _ in range(3))
    for place, figures in enumerate(ranks):
        at, steps_of = np.flatnonzero(row[place] >= 0), figures.steps
        transfers = np.maximum(steps_of.exposed_ns - waited[place, : len(steps_of)], 0)
        needed = steps_of.compute_ns + steps_of.copies_ns + transfers
        needed += steps_of.idle_ns[:, DEPENDENCY]
        present = row[place, at]
        gpu[place, at], duration[place, at] = needed[present], steps_of.duration_ns[present]
        if steps_of.cpu_ns is not None:
            cpu[place, at] = steps_of.cpu_ns[present]
    return Needs(cpu, gpu, duration)


def _waited(ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator]) -> Integers:
    """The time that each rank waited in each of its own steps without computing meanwhile."""
    most = max((len(figures.steps) for figures in ranks), default=0)
    result = np.zeros((len(ranks), most), np.int64)
    for of in matched:
        step = column_of(ranks, of.ranks, of.rows, "step")
        wait = np.maximum(exposed_waits(ranks, of), 0)
        for rank, steps, waits in zip(of.ranks, step, wait, strict=True):
            result[rank] += groups.added(steps, waits, most)
    return result
