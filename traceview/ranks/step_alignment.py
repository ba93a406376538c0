"""Alignment of the ranks' steps to one sequence, by the collectives that they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.ranks.figures import RankFigures
from traceview.ranks.job import MatchedCommunicator
from traceview.ranks.waits import column_of
from traceview.records import record
from traceview.tables import Integers, Mask


@record
class CommonSteps:
    """The steps of all ranks by number in the job.

    `row` is each step's row in the RankSteps of each rank, −1 where the rank lacks it; shape
    (ranks, steps). `steady` is True for steps that are warm-up on no rank. `shift`, by rank, is the
    number of a step in the job minus its row in RankSteps.
    """

    names: tuple[str, ...]
    row: Integers
    steady: Mask
    shift: Integers

    def of_rows(self, rank: int, step: Integers) -> Integers:
        """The numbers in the job of rows in a rank's RankSteps; −1 stays −1."""
        return np.where(step >= 0, step + self.shift[rank], -1)


def common_steps(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator]
) -> CommonSteps:
    """Align the steps of the ranks by their collectives, else by their numbers."""
    counts = np.array([len(each.steps) for each in ranks], np.int64)
    if not counts.any():
        none = np.zeros((len(ranks), 0), np.int64)
        return CommonSteps((), none, np.zeros(0, bool), np.zeros(len(ranks), np.int64))
    shift = _shifts(ranks, matched, counts)
    shift -= shift[counts > 0].min()
    total = int((counts + shift)[counts > 0].max())
    number = np.arange(total)
    row = number[None, :] - shift[:, None]
    row = np.where((row >= 0) & (row < counts[:, None]), row, -1)
    return CommonSteps(_names(ranks, row), row, _steady(ranks, row), shift)


def _shifts(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], counts: Integers
) -> Integers:
    """The number in the job of the first step of each rank, relative to the first rank's."""
    reference = int(np.argmax(counts > 0))
    shift = np.array([_by_number(ranks[reference], each) for each in ranks], np.int64)
    known = {reference}
    waiting = list(matched)
    while waiting:
        ready = [each for each in waiting if known & set(each.ranks)]
        if not ready:
            break
        for each in ready:
            waiting.remove(each)
            leader = next(rank for rank in each.ranks if rank in known)
            for rank, apart in _apart(ranks, each, leader):
                if rank not in known:
                    shift[rank] = shift[leader] + apart
                    known.add(rank)
    return shift


def _by_number(reference: RankFigures, other: RankFigures) -> int:
    """The shift of `other` to `reference`, by the numbers of their first steps."""
    if not len(other.steps):
        return 0
    return int(other.steps.number[0] - reference.steps.number[0])


def _apart(
    ranks: Sequence[RankFigures], each: MatchedCommunicator, leader: int
) -> list[tuple[int, int]]:
    """For each rank of a communicator, the most common step difference to the leader's."""
    step = column_of(ranks, each.ranks, each.rows, "step")
    own = step[each.ranks.index(leader)]
    offsets = []
    for place, rank in enumerate(each.ranks):
        both = (own >= 0) & (step[place] >= 0)
        if both.any():
            values, times = np.unique(own[both] - step[place][both], return_counts=True)
            offsets.append((rank, int(values[np.argmax(times)])))
    return offsets


def _names(ranks: Sequence[RankFigures], row: Integers) -> tuple[str, ...]:
    first = (row >= 0).argmax(axis=0)
    return tuple(
        ranks[rank].steps.names[int(row[rank, number])]
        for number, rank in enumerate(first.tolist())
    )


def _steady(ranks: Sequence[RankFigures], row: Integers) -> Mask:
    warm = np.zeros(row.shape[1], bool)
    for place, each in enumerate(ranks):
        present = row[place] >= 0
        warm[present] |= each.steps.warm_up[row[place, present]]
    return ~warm
