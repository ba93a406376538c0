"""Whose fault a late arrival is: the rank's own work and idle time since the collective before.

A rank that arrives after the median rank is late. It is to blame only as far as it worked or idled
longer than the median rank since its own last collective: one that a collective of another group
kept waiting arrives late and is not at fault. Nor is one to blame for more than it worked and idled
longer than the median rank in the whole step, which also says why: between two collectives a rank
whose CPU was late has run more kernels as well, those that the others ran meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from traceview.facts.idle.causes import CAUSES
from traceview.ranks.figures import POINT_TO_POINT, RankFigures
from traceview.ranks.job import MatchedCommunicator
from traceview.ranks.step_alignment import CommonSteps
from traceview.ranks.waits import column_of
from traceview.tables import Array, Integers, Mask

GPU_WORK = "gpu-work"
LATE_CAUSES = (GPU_WORK, *CAUSES)
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LateRows:
    """The late arrivals of a communicator, one row each.

    `rank` is a place in the list of ranks, `row` that in its RankCollectives, `column` the
    collective. `blame_ns` is how long the median rank waited for it by its own fault, `parts_ns`
    splits that by LATE_CAUSES. `step` is the number of the step in the job, −1 outside.
    """

    rank: Integers
    row: Integers
    column: Integers
    step: Integers
    blame_ns: Integers
    parts_ns: Reals


@dataclass(frozen=True)
class Lateness:
    """Lateness by rank and step of the job.

    `late_ns` is the time by which each rank is late through its own fault, shape (ranks, steps);
    the steps are the steady ones, or a single one for all collectives without steps. `rows` are the
    late arrivals by communicator, in the order of `matched`.
    """

    late_ns: Integers
    steps: Integers
    rows: tuple[LateRows, ...]


def lateness(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], steps: CommonSteps
) -> Lateness:
    """The late arrivals of all ranks in steady steps."""
    numbers = np.flatnonzero(steps.steady)
    rows = _of_steps(
        tuple(_late_rows(ranks, each, steps) for each in matched), step_excess(ranks, steps)
    )
    late = np.zeros((len(ranks), max(len(numbers), 1)), np.int64)
    place = np.full(len(steps.steady) + 1, -1 if len(numbers) else 0, np.int64)
    place[numbers] = np.arange(len(numbers))
    for each in rows:
        at = place[each.step]
        np.add.at(late, (each.rank[at >= 0], at[at >= 0]), each.blame_ns[at >= 0])
    return Lateness(late, numbers, rows)


def _late_rows(
    ranks: Sequence[RankFigures], of: MatchedCommunicator, steps: CommonSteps
) -> LateRows:
    columns = np.flatnonzero(of.last >= 0)
    rows, wait = of.rows[:, columns], of.wait_ns[:, columns]
    there = (rows >= 0) & (wait >= 0)
    own = own_time(ranks, of.ranks, rows)
    # What came before the first collective of a recording is not in it.
    late = excess(wait.max(axis=0) - wait, there)
    extra = excess(own.sum(axis=2), there)
    # What a stage does before a message is not what its neighbour does: its step tells.
    extra = np.where(np.isin(of.kind[columns], POINT_TO_POINT), late, extra)
    blame = np.where(there & (rows > 0), np.clip(np.minimum(late, extra), 0, None), 0)
    rank, column = np.nonzero(blame > 0)
    return LateRows(
        rank=np.array(of.ranks, np.int64)[rank],
        row=rows[rank, column],
        column=columns[column],
        step=_steps_of(ranks, of, rows, rank, column, steps),
        blame_ns=blame[rank, column].astype(np.int64),
        parts_ns=_parts(own, there, blame, rank, column),
    )


def step_excess(ranks: Sequence[RankFigures], steps: CommonSteps) -> Reals:
    """How much longer each rank worked and idled in a step than the median rank, by LATE_CAUSES.

    Shape (ranks, steps, LATE_CAUSES); 0 where it did not.
    """
    shape = (*steps.row.shape, len(LATE_CAUSES))
    own, there = np.zeros(shape), steps.row >= 0
    for place, rank in enumerate(ranks):
        row = steps.row[place, there[place]]
        own[place, there[place], 0] = rank.steps.compute_ns[row] + rank.steps.copies_ns[row]
        own[place, there[place], 1:] = rank.steps.idle_ns[row]
    result = np.zeros(shape)
    for cause in range(len(LATE_CAUSES)):
        if own[:, :, cause].any():
            result[:, :, cause] = excess(own[:, :, cause], there)
    return np.clip(result, 0, None)


def _of_steps(rows: tuple[LateRows, ...], more: Reals) -> tuple[LateRows, ...]:
    """The same with blame no larger in a step than what the rank did more in it, and why."""
    if not more.shape[1]:
        return rows
    total = np.zeros(more.shape[:2])
    for each in rows:
        known = each.step >= 0
        np.add.at(total, (each.rank[known], each.step[known]), each.blame_ns[known])
    most = more.sum(axis=2)
    fraction = np.minimum(most / np.maximum(total, 1), 1.0)
    share = more / np.maximum(most, 1)[:, :, None]
    return tuple(_scaled(each, fraction, share) for each in rows)


def _scaled(rows: LateRows, fraction: Reals, share: Reals) -> LateRows:
    known = rows.step >= 0
    at = rows.rank[known], rows.step[known]
    blame, parts = rows.blame_ns.copy(), rows.parts_ns.copy()
    blame[known] = (blame[known] * fraction[at]).astype(np.int64)
    parts[known] = share[at] * blame[known][:, None]
    return replace(rows, blame_ns=blame, parts_ns=parts)


def own_time(ranks: Sequence[RankFigures], members: Sequence[int], rows: Integers) -> Integers:
    """Work and idle time by cause before each collective; (ranks, collectives, LATE_CAUSES)."""
    own = np.zeros((*rows.shape, len(LATE_CAUSES)), np.int64)
    for place, rank in enumerate(members):
        there, found = rows[place] >= 0, ranks[rank].collectives
        own[place, there, 0] = found.work_ns[rows[place, there]]
        own[place, there, 1:] = found.idle_ns[rows[place, there]]
    return own


def excess(values: Array, there: Mask) -> Reals:
    """How much each value exceeds the median of its column; of two, how much the other one.

    Columns are of shape (ranks, collectives, …); `there` marks the values that count.
    """
    known = np.where(there, values, np.nan)
    two = there.sum(axis=0) == 2
    with np.errstate(all="ignore"):
        middle = np.median(known, axis=0) if there.all() else _nan_median(known)
        result: Reals = known - middle
    # The median of two is half way: the other one is as far again.
    result[:, two] *= 2
    return np.where(there, result, 0.0)


def _nan_median(values: Reals) -> Reals:
    """The median of each column without NaN; NaN where there is nothing else."""
    ordered, count = np.sort(values, axis=0), (~np.isnan(values)).sum(axis=0)
    at = np.arange(values.shape[1])
    low, high = (ordered[np.maximum(place, 0), at] for place in ((count - 1) // 2, count // 2))
    high = np.where(count > 0, high, np.nan)
    middle: Reals = (low + high) / 2
    return middle


def _steps_of(
    ranks: Sequence[RankFigures],
    of: MatchedCommunicator,
    rows: Integers,
    rank: Integers,
    column: Integers,
    steps: CommonSteps,
) -> Integers:
    step = column_of(ranks, of.ranks, rows, "step")
    shift = steps.shift[list(of.ranks)][:, None]
    common: Integers = np.where(step >= 0, step + shift, -1)[rank, column]
    return common


def _parts(own: Integers, there: Mask, blame: Reals, rank: Integers, column: Integers) -> Reals:
    """The blame divided among what took longer than on the median rank, in proportion."""
    result = np.zeros((len(rank), len(LATE_CAUSES)))
    used, place = np.unique(column, return_inverse=True)
    for cause in range(len(LATE_CAUSES)) if len(used) else ():
        part = own[:, used, cause]
        if part.any():
            result[:, cause] = excess(part, there[:, used])[rank, place]
    result = np.clip(result, 0, None)
    total = result.sum(axis=1, keepdims=True)
    result /= np.where(total > 0, total, 1.0)
    return result * blame[rank, column][:, None]
