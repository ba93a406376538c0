"""The time that each rank needs for a step itself: of its CPU, and of its GPU without waits.

A step lasts as long as the slower of the two on the slowest rank. A CPU that runs ahead evens out
steps of different length, and a rank that fell behind once stays behind: who waits in a step need
not be who lost the time in it. So lost time is looked for in what ranks need, not in who waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.facts.idle.causes import DEPENDENCY
from traceview.ranks.figures import RankFigures
from traceview.ranks.job import MatchedCommunicator
from traceview.ranks.step_alignment import CommonSteps
from traceview.ranks.waits import Reals, column_of, exposed_waits
from traceview.records import record
from traceview.tables import Integers

_LAUNCH_BOUND = 0.9


@record
class Needs:
    """Needs by rank and steady step of the job, NaN where a rank has no such step; in ns.

    `gpu_ns` is work, transfers without waits that compute does not hide, and waits for other
    streams; `cpu_ns` the time outside of waits for the GPU. `duration_ns` is how long the step
    took.
    """

    cpu_ns: Reals
    gpu_ns: Reals
    duration_ns: Reals

    @property
    def launch_bound(self) -> bool:
        """Whether the CPU of some rank needs about all of its time for itself.

        Then it runs free: what it loses once is not made up. A CPU that waits for the GPU in each
        step loses time on top of that of the GPU.
        """
        cpu, whole = self.mean_ns(self.cpu_ns), self.mean_ns(self.duration_ns)
        return bool((cpu >= _LAUNCH_BOUND * whole).any())

    def mean_ns(self, values: Reals) -> Reals:
        """The mean over the steps of each rank; NaN where it has none."""
        there = ~np.isnan(values)
        total = np.where(there, values, 0.0).sum(axis=1)
        return np.where(there.any(axis=1), total / np.maximum(there.sum(axis=1), 1), np.nan)

    @property
    def pace_ns(self) -> Reals:
        """The mean time that each rank needs for a step: a CPU that runs ahead evens out steps."""
        return np.fmax(self.mean_ns(self.cpu_ns), self.mean_ns(self.gpu_ns))


def needs_of(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], steps: CommonSteps
) -> Needs | None:
    """The needs of all ranks; None without common steps, or where the CPU was not recorded."""
    numbers = np.flatnonzero(steps.steady)
    stepping = [each for each in ranks if len(each.steps)]
    if not len(numbers) or any(each.steps.cpu_ns is None for each in stepping):
        return None
    waited = _waited(ranks, matched)
    row = steps.row[:, numbers]
    cpu, gpu, duration = (np.full(row.shape, np.nan) for _ in range(3))
    for place, each in enumerate(ranks):
        at = np.flatnonzero(row[place] >= 0)
        own, found = row[place, at], each.steps
        transfers = np.maximum(found.exposed_ns - waited[place, : len(found)], 0)
        needed = found.compute_ns + found.copies_ns + transfers + found.idle_ns[:, DEPENDENCY]
        gpu[place, at], duration[place, at] = needed[own], found.duration_ns[own]
        if found.cpu_ns is not None:
            cpu[place, at] = found.cpu_ns[own]
    return Needs(cpu, gpu, duration)


def _waited(ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator]) -> Integers:
    """The time that each rank waited in each of its own steps without computing meanwhile."""
    most = max((len(each.steps) for each in ranks), default=0)
    result = np.zeros((len(ranks), most), np.int64)
    for of in matched:
        step = column_of(ranks, of.ranks, of.rows, "step")
        wait = np.maximum(exposed_waits(ranks, of), 0)
        member, column = np.nonzero(step >= 0)
        rank = np.array(of.ranks, np.int64)[member]
        cell = rank * most + step[member, column]
        total = np.bincount(cell, wait[member, column], minlength=result.size)
        result += total.astype(np.int64).reshape(result.shape)
    return result
