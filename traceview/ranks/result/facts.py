"""The facts of a job, from which its tables and sentences are made."""

from __future__ import annotations

import numpy as np

from traceview.ranks.critical_path import CriticalPath
from traceview.ranks.figures import RankFigures
from traceview.ranks.job import Clocks, MatchedCommunicator
from traceview.ranks.lateness import Lateness
from traceview.ranks.matching import Inconsistency
from traceview.ranks.needs import Needs
from traceview.ranks.process_groups import ProcessGroups
from traceview.ranks.step_alignment import CommonSteps
from traceview.ranks.stragglers import Straggler
from traceview.records import record
from traceview.tables import Integers


@record
class JobFacts:
    """The ranks, by number, and the facts derived from their collectives.

    `span_ns` is the median rank's time in the steady steps that all ranks share, or without steps
    its whole steady time. `wait_ns` has an array per rank: the wait in each of its collectives, −1
    where unknown.
    """

    ranks: tuple[RankFigures, ...]
    matched: tuple[MatchedCommunicator, ...]
    inconsistencies: tuple[Inconsistency, ...]
    clocks: Clocks
    steps: CommonSteps
    late: Lateness
    stragglers: tuple[Straggler, ...]
    groups: tuple[ProcessGroups, ...]
    path: CriticalPath | None
    span_ns: int
    wait_ns: tuple[Integers, ...]
    needs: Needs | None = None

    @property
    def has_waits(self) -> bool:
        """Whether any wait is known."""
        return any((each.last >= 0).any() for each in self.matched)

    def steady_count(self, rank: int) -> int:
        """The number of a rank's steady steps, at least 1 as times are divided by it."""
        return max(int((~self.ranks[rank].steps.warm_up).sum()), 1)

    def exposed_wait_ns(self, rank: int) -> Integers:
        """The part of the wait in each collective of a rank in which it does not compute."""
        exposed = self.ranks[rank].collectives.exposed_ns
        return np.minimum(np.maximum(self.wait_ns[rank], 0), exposed)

    def steady_ns(self, rank: int, times: Integers) -> int:
        """The sum of times of a rank's collectives in its steady steps, or without steps of all."""
        step, warm = self.ranks[rank].collectives.step, self.ranks[rank].steps.warm_up
        return int((times[(step >= 0) & ~warm[step]] if len(warm) else times).sum())


def waits_by_row(
    ranks: tuple[RankFigures, ...], matched: tuple[MatchedCommunicator, ...]
) -> tuple[Integers, ...]:
    """The wait of each collective of each rank, −1 where it is unknown."""
    waits = tuple(np.full(len(each.collectives), -1, np.int64) for each in ranks)
    for of in matched:
        for place, rank in enumerate(of.ranks):
            present = of.rows[place] >= 0
            waits[rank][of.rows[place, present]] = of.wait_ns[place, present]
    return waits
