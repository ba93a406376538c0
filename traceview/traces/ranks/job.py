"""The answer for a job of many ranks, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from traceview.base import display
from traceview.base.records import record
from traceview.base.tables import Array, Integers
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.analyses.base import Result
from traceview.traces.ranks.figures import RankFigures

PARTS = ("compute", "communication", "wait", "copies", *CAUSE_NAMES)
"""Parts of a step in the heat map. Communication is the exposed part without waits, `wait` is
waiting for slower ranks; idle time goes by its cause."""


@record
class FailedRank:
    """A file that gave no figures, with the reason and a remedy."""

    path: str
    reason: str
    remedy: str


@record
class MatchedCommunicator:
    """The collectives of one communicator, or of streams that pair by order, over its ranks.

    `number` is the communicator's number in the recordings, NULL if it was inferred. `ranks` are
    places in JobReport.ranks; `size` is the number of ranks in the communicator, which may be
    larger. `rows` has the row in RankCollectives of each collective on each rank, −1 where it was
    not recorded; shape (ranks, collectives). `kind` and `bytes` have one entry per collective,
    `bytes` −1 where unknown. `wait_ns` is how long each rank waited, −1 where unknown; `last` is
    the place in `ranks` of the last rank to arrive, −1 where unknown; `late_ns` is the longest wait
    of another rank for it.
    """

    number: int
    ranks: tuple[int, ...]
    size: int
    rows: Integers
    kind: Array
    bytes: Integers
    wait_ns: Integers
    last: Integers
    late_ns: Integers


@record
class Clocks:
    """The relation of the ranks' clocks, one entry per rank.

    A time t of a rank is, on the clock of the reference (rank `reference` of its `component`),
    t + offset_ns + drift × (t − origin_ns). `error_ns` is the remaining spread, NULL for a
    rank that nothing connects to the others, whose `offset_ns` is 0. Times of ranks in different
    components cannot be compared. `basis` is the source of the offsets: collectives, or the time
    of day.
    """

    offset_ns: Integers
    drift: npt.NDArray[np.float64]
    origin_ns: Integers
    error_ns: Integers
    component: Integers
    reference: int = 0
    basis: str = ""

    def aligned_ns(self, rank: int, time_ns: Integers) -> Integers:
        """Times of the rank at place `rank`, on the common clock."""
        since = time_ns - self.origin_ns[rank]
        turned: Integers = np.rint(self.drift[rank] * since).astype(np.int64)
        return time_ns + self.offset_ns[rank] + turned


@record
class HeatMap:
    """Steps of the main loop on each rank, matched across ranks, and their parts.

    `steps` has their names in order. `warm_up` and `duration_ns` have shape (ranks, steps), the
    latter NULL where a rank lacks the step. `parts_ns` splits each step, shape (ranks, steps,
    len(PARTS)); it is 0 where a rank lacks the step. `late_ns` is how long the others waited for
    the rank in the step, `more_work_ns` the part of it in which the rank's GPU works longer than
    the median rank's. `loading_ns` is the part of `launch-late` in which the rank's CPU waits for
    data or loads it, 0 without samples.
    """

    steps: tuple[str, ...]
    duration_ns: Integers
    warm_up: npt.NDArray[np.bool_]
    parts_ns: Integers
    late_ns: Integers
    more_work_ns: Integers
    loading_ns: Integers


@record
class JobVerdict:
    """The result of the job in one line.

    `limit` is a limit of a rank's report, `straggler` if ranks wait for a late one, or
    `communication`. `steps` counts the steady steps that all ranks share; `step_median_ns` is the
    median over these steps of the longest duration on any rank, `step_mean_ns` the mean, both None
    without steps. `step_unrecorded_ns` is the median without the recorder, None where about the
    same or not known.
    """

    text: str
    limit: str
    ranks: int
    steps: int
    step_median_ns: int | None
    gpu_busy_pct: float | None
    figures: Mapping[str, int | float | None] = field(default_factory=dict)
    step_unrecorded_ns: int | None = None
    step_mean_ns: int | None = None

    @property
    def is_uneven(self) -> bool:
        """Whether savings are told of a mean step: a rank late in some steps has no usual one."""
        return (self.step_mean_ns or 0) > (1 + _ALIKE) * (self.step_median_ns or 0)


_ALIKE = 0.05


@dataclass(frozen=True, repr=False)
class JobReport(display.Written):
    """All ranks of a job side by side, the findings worst first.

    `ranks` are in order of their number. `result` has the tables of `ranks.tables.TABLES`.
    `warnings` name the parts of the answer that internal errors ended.
    """

    shows_first_rows = True
    ranks: tuple[RankFigures, ...]
    failed: tuple[FailedRank, ...]
    result: Result
    verdict: JobVerdict
    clocks: Clocks
    heat: HeatMap
    matched: tuple[MatchedCommunicator, ...]
    warnings: tuple[str, ...] = ()
