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

    def of_collectives(
        self, ranks: Sequence[RankFigures], members: Sequence[int], rows: Integers
    ) -> Integers:
        """The number in the job of the step of each collective on each member, −1 for none.

        `rows` are rows of RankCollectives, shape (members, collectives).
        """
        step = column_of(ranks, members, rows, "step")
        return np.where(step >= 0, step + self.shift[list(members)][:, None], -1)


def common_steps(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator]
) -> CommonSteps:
    """Align the steps of the ranks by their collectives, else by their numbers."""
    counts = np.array([len(figures.steps) for figures in ranks], np.int64)
    if not counts.any():
        none = np.zeros((len(ranks), 0), np.int64)
        return CommonSteps((), none, np.zeros(0, bool), np.zeros(len(ranks), np.int64))
    shift = _shifts(ranks, matched, counts)
    shift -= shift[counts > 0].min()
    total = int((counts + shift)[counts > 0].max())
    number = np.arange(total)
    row = number[None, :] - shift[:, None]
    row = np.where((row >= 0) & (row < counts[:, None]), row, -1)
    first = zip((row >= 0).argmax(axis=0).tolist(), row.T, strict=True)
    names = tuple(ranks[rank].steps.names[int(rows[rank])] for rank, rows in first)
    warm = np.zeros(total, bool)
    for figures, rows in zip(ranks, row, strict=True):
        present = rows >= 0
        warm[present] |= figures.steps.warm_up[rows[present]]
    return CommonSteps(names, row, ~warm, shift)


def _shifts(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedCommunicator], counts: Integers
) -> Integers:
    """The number in the job of the first step of each rank, relative to the first rank's."""
    reference = int(np.argmax(counts > 0))
    first = [int(rank.steps.number[0]) if len(rank.steps) else None for rank in ranks]
    shift = np.array([0 if n is None else n - (first[reference] or 0) for n in first], np.int64)
    placed = {reference}
    waiting = list(matched)
    while ready := [of for of in waiting if placed & set(of.ranks)]:
        for of in ready:
            waiting.remove(of)
            leader = next(rank for rank in of.ranks if rank in placed)
            step = column_of(ranks, of.ranks, of.rows, "step")
            of_leader = step[of.ranks.index(leader)]
            for rank, of_rank in zip(of.ranks, step, strict=True):
                both = (of_leader >= 0) & (of_rank >= 0)
                if rank not in placed and both.any():
                    # The most common difference of steps.
                    apart, times = np.unique((of_leader - of_rank)[both], return_counts=True)
                    shift[rank] = shift[leader] + apart[np.argmax(times)]
                    placed.add(rank)
    return shift
