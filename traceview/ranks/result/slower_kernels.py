"""The kernels of a late rank that take longer than on the other ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.ranks.lateness import GPU_WORK
from traceview.ranks.result.facts import JobFacts
from traceview.ranks.stragglers import Straggler

_LEAST_OF_WORK = 0.05
_ALL_ALIKE = 0.05
_SLOWER = 1.03
_COMMUNICATION = "communication"


class LongerClass(NamedTuple):
    """The class of kernels with most extra time per step against the median other rank.

    `more_ns` is its extra time, `whole_ns` the extra time of all classes; `factor` and
    `calls_factor` are the ratios of its time and its calls. `all_slower` is True if every class
    that matters takes longer by the same factor with equally many calls: the GPU then runs at a
    lower clock, whatever the kernels.
    """

    kind: str
    more_ns: int
    whole_ns: int
    factor: float
    calls_factor: float
    all_slower: bool


class _Compared(NamedTuple):
    """Time and calls per step of a class of kernels, own and of the median other rank."""

    kind: str
    time: float
    calls: float
    usual: float
    usual_calls: float


def longer_class(job: JobFacts, straggler: Straggler) -> LongerClass | None:
    """The class of kernels that slows a straggler; None if GPU work is not its cause."""
    rows = _compared(job, straggler.rank) if straggler.cause == GPU_WORK else []
    most = max(rows, key=lambda row: row.time - row.usual, default=None)
    if most is None or most.time <= most.usual:
        return None
    whole = sum(row.usual for row in rows)
    factors = [row.time / row.usual for row in rows if row.usual > _LEAST_OF_WORK * whole]
    counts = [row.calls / row.usual_calls for row in rows if row.usual_calls]
    alike = len(factors) > 1 and max(factors) - min(factors) <= _ALL_ALIKE * min(factors)
    same_calls = all(abs(each - 1) <= _ALL_ALIKE for each in counts)
    return LongerClass(
        most.kind,
        round(most.time - most.usual),
        round(sum(row.time - row.usual for row in rows)),
        most.time / most.usual if most.usual else float("inf"),
        most.calls / most.usual_calls if most.usual_calls else float("inf"),
        alike and same_calls and min(factors) >= _SLOWER,
    )


def _compared(job: JobFacts, rank: int) -> list[_Compared]:
    late = {each.rank for each in job.stragglers}
    own = _per_step(job, rank)
    others = [_per_step(job, place) for place in range(len(job.ranks)) if place not in late]
    if not others:
        return []
    compared = []
    for kind, (time, calls) in own.items():
        usual = np.median([each.get(kind, (0.0, 0.0)) for each in others], axis=0).tolist()
        compared.append(_Compared(kind, time, calls, usual[0], usual[1]))
    return compared


def _per_step(job: JobFacts, rank: int) -> dict[str, tuple[float, float]]:
    """Time and calls per step by class, without communication."""
    figures = job.ranks[rank]
    steps = job.steady_count(rank)
    return {
        each.kind: (each.time_ns / steps, each.calls / steps)
        for each in figures.work
        if each.kind != _COMMUNICATION
    }
