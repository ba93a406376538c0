"""The ranks that others wait for: which steps, why, and where in the program.

A balanced job has a last rank in every collective as well. A rank is a straggler only where its
lateness stands out from that of the others: in single steps, or in the mean over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceview.ranks.figures import UNKNOWN, RankFigures
from traceview.ranks.job import MatchedCommunicator
from traceview.ranks.lateness import (
    GPU_WORK,
    LATE_CAUSES,
    Lateness,
    LateRows,
    exposed_waits,
)
from traceview.tables import Integers, Mask

MOST = 32
"""Of more ranks than this those with most lateness are looked at."""
LEAST_SHARE = 0.02
"""Of the steady time: a rank that costs less is none to look for."""
ABOVE_NOISE, LEAST_NS = 3.0, 50_000
"""A step is late where the lateness exceeds three times what the others have in 19 of 20 steps."""
_NOISE_QUANTILE = 0.95
_SURE = 4.0
"""Standard errors by which the mean lateness of a rank exceeds that of the others."""
_TIMES_OTHERS = 2.0
_LEAST_SHARE = 0.25
"""Of the outstanding lateness of all ranks: where many have a late step now and then, none is a
straggler."""
_EVERY, _PERIODS, _LEAST_HITS = 0.8, range(2, 11), 3


@dataclass(frozen=True)
class Straggler:
    """A rank that is late, by place in the list of ranks.

    `late` marks the steps of Lateness in which it is, `late_ns` is its lateness in these. `calls`
    are the collectives in which it is late there, `cause` is one of LATE_CAUSES, `place` a row of
    its places (−1: unknown). `others_wait_ns` is what all others waited for it, `saved_ns` how much
    shorter the job would be at most without: until the next rank arrives.
    """

    rank: int
    late: Mask
    late_ns: Integers
    calls: int
    cause: str
    place: int
    others_wait_ns: int
    saved_ns: int
    kind: int


def stragglers(
    ranks: Sequence[RankFigures],
    matched: Sequence[MatchedCommunicator],
    late: Lateness,
    span_ns: int,
) -> tuple[Straggler, ...]:
    """The stragglers of a job whose steady time is `span_ns`, the worst first."""
    least_ns = LEAST_SHARE * span_ns
    total = late.late_ns.sum(axis=1)
    candidates = [int(r) for r in np.argsort(-total)[:MOST] if total[r] >= max(least_ns, LEAST_NS)]
    marked = {rank: _late_steps(late.late_ns, rank, span_ns) for rank in candidates}
    outstanding = {rank: int(late.late_ns[rank, steps].sum()) for rank, steps in marked.items()}
    whole = sum(outstanding.values())
    chosen = [
        rank
        for rank in candidates
        if outstanding[rank] >= max(least_ns, LEAST_NS)
        and outstanding[rank] >= _LEAST_SHARE * whole
    ]
    found = [_straggler(ranks, matched, late, rank, marked[rank], chosen) for rank in chosen]
    return tuple(sorted(found, key=lambda each: (-int(each.late_ns.sum()), each.rank)))


def _late_steps(late_ns: Integers, rank: int, span_ns: int) -> Mask:
    """True for the steps in which a rank is late beyond what the others are."""
    own, others = late_ns[rank], np.delete(late_ns, rank, axis=0)
    if not len(others):
        return np.zeros(len(own), bool)
    noise = np.sort(np.quantile(others, _NOISE_QUANTILE, axis=1))[(len(others) - 1) // 2]
    least = max(LEAST_NS, LEAST_SHARE / 2 * span_ns / len(own))
    marked: Mask = own > ABOVE_NOISE * noise + least
    if own[marked].sum() < LEAST_SHARE * span_ns and _is_late_on_average(own, others):
        return np.ones(len(own), bool)
    return marked


def _is_late_on_average(own: Integers, others: Integers) -> bool:
    """Whether the mean over the steps exceeds that of the others by more than chance."""
    usual = np.median(others, axis=0)
    difference = own - usual
    if len(own) < _LEAST_HITS or own.sum() < _TIMES_OTHERS * usual.sum():
        return False
    error = float(difference.std(ddof=1)) / len(own) ** 0.5
    return bool(difference.mean() > _SURE * error)


def _straggler(
    ranks: Sequence[RankFigures],
    matched: Sequence[MatchedCommunicator],
    late: Lateness,
    rank: int,
    marked: Mask,
    chosen: Sequence[int],
) -> Straggler:
    own = [_rows_in(each, rank, late.steps, marked) for each in late.rows]
    parts = late.parts_ns[rank, marked].sum(axis=0)
    cause = LATE_CAUSES[int(np.argmax(parts))]
    late_ns = late.late_ns[rank, marked]
    whole_ns = int(late_ns.sum())
    waited = [
        _waited(ranks, of, rank, rows, at, chosen)
        for of, rows, at in zip(matched, late.rows, own, strict=True)
    ]
    by_kind = np.bincount(
        np.concatenate(
            [of.kind[rows.column[at]] for of, rows, at in zip(matched, late.rows, own, strict=True)]
        ),
        np.concatenate([rows.blame_ns[at] for rows, at in zip(late.rows, own, strict=True)]),
    )
    return Straggler(
        rank=rank,
        late=marked,
        late_ns=late_ns,
        calls=sum(map(len, own)),
        cause=cause,
        place=UNKNOWN if cause == GPU_WORK else _place(ranks[rank], late.rows, own),
        others_wait_ns=min(sum(wait for wait, _ in waited), (len(ranks) - 1) * whole_ns),
        saved_ns=min(sum(saved for _, saved in waited), whole_ns),
        kind=int(np.argmax(by_kind)),
    )


def _rows_in(rows: LateRows, rank: int, steps: Integers, marked: Mask) -> Integers:
    """Late arrivals of a rank in the marked steps; all of its own without steps."""
    own = rows.rank == rank
    if len(steps):
        own &= np.isin(rows.step, steps[marked])
    return np.flatnonzero(own)


def _waited(
    ranks: Sequence[RankFigures],
    of: MatchedCommunicator,
    rank: int,
    rows: LateRows,
    at: Integers,
    chosen: Sequence[int],
) -> tuple[int, int]:
    """What the others waited for a rank, and what is saved until the next rank arrives.

    What several stragglers cost together counts for each.
    """
    if not len(at):
        return 0, 0
    column, blame = rows.column[at], rows.blame_ns[at]
    wait = exposed_waits(ranks, of)[:, column]
    own = wait[of.ranks.index(rank)]
    behind = np.where(wait >= 0, np.clip(wait - own, 0, blame), 0)
    free = np.array([each not in chosen for each in of.ranks], bool)[:, None] & (wait >= 0)
    most = np.iinfo(np.int64).max
    until = np.where(free, np.clip(wait - own, 0, None), most).min(axis=0)
    return int(behind.sum()), int(np.minimum(np.where(until < most, until, 0), blame).sum())


def _place(figures: RankFigures, rows: Sequence[LateRows], own: Sequence[Integers]) -> int:
    """The place of the program with most of the blame, −1 where most of it is at none."""
    place = np.concatenate(
        [figures.collectives.place[r.row[at]] for r, at in zip(rows, own, strict=True)]
    )
    blame = np.concatenate([r.blame_ns[at] for r, at in zip(rows, own, strict=True)])
    if not len(place) or not len(figures.places):
        return UNKNOWN
    sums = np.bincount(place + 1, blame)
    most = int(np.argmax(sums)) - 1
    return most if most >= 0 and 2 * sums[most + 1] >= sums.sum() else UNKNOWN


def pattern_of(late: Mask, names: Sequence[str]) -> str:
    """When a rank is late: `every step`, `every third step`, `step 17`, `5 of 40 steps`."""
    rows = np.flatnonzero(late)
    if not len(names):
        return ""
    if len(rows) >= _EVERY * len(late):
        return "every step"
    period = next(_fitting(rows, len(late)), None)
    if period:
        return f"every {_ORDINALS[period]} step"
    if len(rows) <= 2:
        return " and ".join(names[row] for row in rows.tolist())
    return f"{len(rows)} of {len(late)} steps"


_ORDINALS = ("", "", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
             "tenth")  # fmt: skip


def _fitting(rows: Integers, count: int) -> Iterator[int]:
    """The periods in which these steps recur."""
    for period in _PERIODS:
        phase = int(np.bincount(rows % period).argmax())
        hits = int((rows % period == phase).sum())
        possible = len(range(phase, count, period))
        if hits >= max(_LEAST_HITS, _EVERY * len(rows), _EVERY * possible):
            yield period
