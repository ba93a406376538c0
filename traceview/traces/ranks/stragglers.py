"""The ranks that others wait for: which steps, why, and where in the program.

A balanced job has a last rank in every collective as well. A rank is a straggler only if its
lateness stands out from that of the others, in single steps or in the mean over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Integers, Mask
from traceview.traces.ranks.clocks import Reals, exposed_waits
from traceview.traces.ranks.figures import KINDS, Place, RankFigures
from traceview.traces.ranks.job import MatchedCommunicator
from traceview.traces.ranks.lateness import (
    GPU_WORK,
    LATE_CAUSES,
    Lateness,
    LateRows,
    Needs,
    waits_in_steps,
)

MOST = 32
"""Ranks examined at most, those with most lateness."""
LEAST_SHARE = 0.02
"""Least cost of a straggler, as a fraction of the steady time."""
ABOVE_NOISE, LEAST_NS = 3.0, 50_000
"""A step is late if its lateness exceeds three times the 95th percentile of the others."""
_NOISE_QUANTILE = 0.95
_SURE = 4.0
"""Standard errors by which the mean lateness of a rank exceeds that of the others."""
_TIMES_OTHERS = 2.0
_LEAST_SHARE = 0.25
"""Least fraction of all ranks' outstanding lateness: if many have a late step now and then, none
is a straggler."""
COMMUNICATION = "communication"
"""The class of kernels that exchange data."""
_MORE_WORK, _MOSTLY, _HARDLY = 0.05, 0.6, 0.2
UNPLACED_SHARE = 0.15
"""Least lateness at no known place, or least time that the others wait longer than that rank, as a
fraction of the steady time: CPUs of equal ranks differ by up to a tenth without a cause in the
program. Seven of eight H100 waited 16 % for one late since warm-up (a public recording)."""
_IN_ALL_STEPS, _LEAST_HITS, _LEAST_STEPS = 0.8, 3, 5


@record
class Straggler:
    """A rank that is late, by place in the list of ranks.

    `late` marks the steps of Lateness in which the rank loses time, `late_ns` has the time lost in
    each of these. `calls` counts the collectives in which it is late, `cause` is one of
    LATE_CAUSES, `place` where its program is, None if unknown. `others_wait_ns` is the time that
    all others waited for it, `saved_ns` how much shorter the job is without its lateness: as
    replayed ± `error_ns`, or where that is None at most, all of its lateness. `more_work` is True
    if it launches more kernels or blocks than the others: the saving is then that of sharing them
    evenly.
    """

    rank: int
    late: Mask
    late_ns: Integers
    calls: int
    cause: str
    place: Place | None
    others_wait_ns: int
    saved_ns: int
    kind: int
    more_work: bool = False
    error_ns: int | None = None

    @property
    def is_once(self) -> bool:
        """Whether it is late in one of several steps, so that the recording shows no frequency."""
        return len(self.late) >= _LEAST_STEPS and int(self.late.sum()) == 1


def stragglers(
    ranks: Sequence[RankFigures],
    matched: Sequence[MatchedCommunicator],
    late: Lateness,
    span_ns: int,
    needs: Needs | None = None,
) -> tuple[Straggler, ...]:
    """The stragglers of a job whose steady time is `span_ns`, the worst first."""
    least_ns = max(LEAST_SHARE * span_ns, LEAST_NS)
    total = late.late_ns.sum(axis=1)
    candidates = [int(r) for r in np.argsort(-total)[:MOST] if total[r] >= least_ns]
    marked = {rank: _late_steps(ranks, late, rank, span_ns) for rank in candidates}
    outstanding = {rank: int(late.late_ns[rank, steps].sum()) for rank, steps in marked.items()}
    whole = sum(outstanding.values())
    chosen = [
        rank for rank in candidates if outstanding[rank] >= max(least_ns, _LEAST_SHARE * whole)
    ]
    job = _Job(ranks, matched, late, chosen, needs)
    late_ranks = [_straggler(job, rank, marked[rank]) for rank in chosen]
    if needs is not None and needs.launch_bound:
        # Without a CPU that is slightly slower than the others, at no single place in the code.
        late_ranks = [
            of
            for of in late_ranks
            if of.cause == GPU_WORK
            or of.place is not None
            or of.more_work
            or int(of.late_ns.sum()) >= UNPLACED_SHARE * span_ns
            or _waits_beyond(job, of.rank) >= UNPLACED_SHARE * span_ns
        ]
    return tuple(sorted(late_ranks, key=lambda of: (-int(of.late_ns.sum()), of.rank)))


def _waits_beyond(job: _Job, rank: int) -> float:
    """What the median of the other ranks waits in the steady steps more than this one does."""
    rows = job.late.step_rows
    waits = np.take_along_axis(waits_in_steps(job.ranks, job.matched), np.maximum(rows, 0), axis=1)
    total = (waits * (rows >= 0)).sum(axis=1)
    return float(np.median(np.delete(total, rank)) - total[rank])


def _late_steps(ranks: Sequence[RankFigures], late: Lateness, rank: int, span_ns: int) -> Mask:
    """True for the steps in which a rank is later than the others."""
    own, others = late.late_ns[rank], np.delete(late.late_ns, rank, axis=0)
    if not len(others):
        return np.zeros(len(own), bool)
    paused = _steps_with_own_place(ranks, late, rank)
    if paused is not None and own[paused].sum() >= LEAST_SHARE * span_ns:
        return paused
    noise = np.sort(np.quantile(others, _NOISE_QUANTILE, axis=1))[(len(others) - 1) // 2]
    least = max(LEAST_NS, LEAST_SHARE / 2 * span_ns / len(own))
    marked: Mask = own > ABOVE_NOISE * noise + least
    if own[marked].sum() < LEAST_SHARE * span_ns and _is_late_on_average(own, others):
        return np.ones(len(own), bool)
    if not marked.any() or marked.sum() >= _IN_ALL_STEPS * len(marked):
        return marked
    # Steps with little lateness are dropped, if the remaining ones have most of it.
    major = marked & (own >= np.quantile(own[marked], 0.9) / 2)
    return major if own[major].sum() >= _MOSTLY * own[marked].sum() else marked


def _steps_with_own_place(ranks: Sequence[RankFigures], late: Lateness, rank: int) -> Mask | None:
    """The steps in which a rank's CPU is at a line where other ranks' CPUs rarely are.

    None without samples, or if no line stands out.
    """
    table, rows = ranks[rank].cpu_place_ns, late.step_rows[rank]
    if table is None or not table.size:
        return None
    others = _times_of_others(ranks, rank)
    if not others:
        return None
    own = np.where(rows[:, None] >= 0, table[rows], 0)
    alone = np.max(others, axis=0) < _HARDLY * own.mean(axis=0)
    if not alone.any():
        return None
    place = int(np.argmax(np.where(alone, own.sum(axis=0), -1)))
    return own[:, place] > own[:, place].max() / 2


def _is_late_on_average(own: Integers, others: Integers) -> bool:
    """Whether the mean lateness over the steps significantly exceeds that of the others."""
    usual = np.median(others, axis=0)
    difference = own - usual
    if len(own) < _LEAST_HITS or own.sum() < _TIMES_OTHERS * usual.sum():
        return False
    error = float(difference.std(ddof=1)) / len(own) ** 0.5
    return bool(difference.mean() > _SURE * error)


@record
class _Job:
    """The figures of a job, and which of its ranks are stragglers."""

    ranks: Sequence[RankFigures]
    matched: Sequence[MatchedCommunicator]
    late: Lateness
    chosen: Sequence[int]
    needs: Needs | None


def _straggler(job: _Job, rank: int, marked: Mask) -> Straggler:
    """A chosen rank: its cause, place and cost in the marked steps."""
    ranks, matched, late, needs = job.ranks, job.matched, job.late, job.needs
    # A rank that fell behind in one step is late in later steps as well.
    free = needs is not None and needs.launch_bound
    shown = np.ones(len(marked), bool) if free else marked
    own = []
    for arrivals in late.rows:
        of_rank = arrivals.rank == rank
        if len(late.steps):
            of_rank &= np.isin(arrivals.step, late.steps[shown])
        own.append(np.flatnonzero(of_rank))
    cause = LATE_CAUSES[int(np.argmax(late.parts_ns[rank, marked].sum(axis=0)))]
    late_ns = late.late_ns[rank, marked]
    whole_ns = int(late_ns.sum())
    others_wait_ns = sum(
        _waited_ns(ranks, of, rank, rows, at)
        for of, rows, at in zip(matched, late.rows, own, strict=True)
    )
    place = None
    if cause != GPU_WORK:
        place = _cpu_place(ranks, rank, late, marked) if needs is not None else None
        place = place or _place(ranks[rank], late.rows, own)
    more_work = _has_more_work(ranks, rank, job.chosen)
    # The kind of collective with most of the rank's blame.
    by_kind = np.zeros(len(KINDS))
    for of, rows, at in zip(matched, late.rows, own, strict=True):
        np.add.at(by_kind, of.kind[rows.column[at]], rows.blame_ns[at])
    return Straggler(
        rank=rank,
        late=marked,
        late_ns=late_ns,
        calls=sum(map(len, own)),
        cause=cause,
        place=place,
        others_wait_ns=min(others_wait_ns, (len(ranks) - 1) * whole_ns),
        saved_ns=whole_ns - whole_ns // len(ranks) if more_work else whole_ns,
        kind=int(np.argmax(by_kind)),
        more_work=more_work,
    )


def _has_more_work(ranks: Sequence[RankFigures], rank: int, chosen: Sequence[int]) -> bool:
    """Whether a rank launches more kernels or blocks per step than the other ranks."""
    counts = np.array([launched_per_step(figures) for figures in ranks])
    others = np.delete(counts, list(chosen), axis=0)
    if not len(others):
        return False
    return bool((counts[rank] > (1 + _MORE_WORK) * np.median(others, axis=0)).any())


def launched_per_step(rank: RankFigures) -> tuple[float, float]:
    """Kernels and blocks per steady step, without communication."""
    steps = max(int((~rank.steps.warm_up).sum()), 1)
    work = [part for part in rank.work if part.kind != COMMUNICATION]
    return sum(part.calls for part in work) / steps, sum(part.blocks for part in work) / steps


def _cpu_place(
    ranks: Sequence[RankFigures], rank: int, late: Lateness, marked: Mask
) -> Place | None:
    """The line at which the CPU of a late rank spends most extra time.

    The late steps are compared with the rank's other steps, or with other ranks if all are late.
    None if the line accounts for less than half of the lateness, or no stacks were sampled.
    """
    table, rows = ranks[rank].cpu_place_ns, late.step_rows[rank]
    if table is None or not table.size:
        return None
    present = rows >= 0
    in_late = table[rows[marked & present]].mean(axis=0)
    usual = np.zeros(table.shape[1])
    if (~marked & present).any():
        usual = table[rows[~marked & present]].mean(axis=0)
    else:
        usual = np.median(_times_of_others(ranks, rank) or [usual], axis=0)
    more = in_late - usual
    most = int(np.argmax(more))
    enough = 2 * more[most] >= late.late_ns[rank, marked].mean()
    return ranks[rank].cpu_places[most] if enough else None


def _times_of_others(ranks: Sequence[RankFigures], rank: int) -> list[Reals]:
    """The mean CPU time of each other rank with samples at the rank's places in a steady step."""
    times = []
    for place, other in enumerate(ranks):
        if place != rank and other.cpu_place_ns is not None and other.cpu_place_ns.size:
            steady = other.cpu_place_ns[~other.steps.warm_up].mean(axis=0)
            at_place = dict(zip(other.cpu_places, steady.tolist(), strict=True))
            times.append(np.array([at_place.get(own, 0.0) for own in ranks[rank].cpu_places]))
    return times


def _waited_ns(
    ranks: Sequence[RankFigures], of: MatchedCommunicator, rank: int, rows: LateRows, at: Integers
) -> int:
    """The time that others waited for a rank.

    Time that several stragglers cost together counts for each of them.
    """
    if not len(at):
        return 0
    wait = exposed_waits(ranks, of)[:, rows.column[at]]
    longer = wait - wait[of.ranks.index(rank)]
    return int(np.where(wait >= 0, np.clip(longer, 0, rows.blame_ns[at]), 0).sum())


def _place(figures: RankFigures, rows: Sequence[LateRows], own: Sequence[Integers]) -> Place | None:
    """The place with most of the rank's blame; None if it has less than half of it."""
    place_of = figures.collectives.place
    place = np.concatenate([place_of[r.row[at]] for r, at in zip(rows, own, strict=True)])
    blame = np.concatenate([r.blame_ns[at] for r, at in zip(rows, own, strict=True)])
    if not len(place) or not len(figures.places):
        return None
    sums = np.bincount(place + 1, blame)
    most = int(np.argmax(sums)) - 1
    return figures.places[most] if most >= 0 and 2 * sums[most + 1] >= sums.sum() else None
