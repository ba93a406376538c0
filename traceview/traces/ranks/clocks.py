"""The clocks of the ranks, aligned where collectives end, and the waits of collectives on them.

A collective ends on all its ranks within microseconds, so its recorded ends differ by as much as
the clocks do. Each communicator relates its ranks to one of them. Where no communicator has all
ranks, those of tensor, data and pipeline parallelism chain them, along the path of least error.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from traceview.base.tables import NULL, Array, Integers, Mask
from traceview.base.vocabulary.amounts import DEVIATIONS_PER_MAD
from traceview.traces.facts import collectives
from traceview.traces.facts.collective_alignment import ENDS_TOGETHER_NS
from traceview.traces.facts.collectives import MatchedRows
from traceview.traces.ranks.figures import (
    ALL_GATHER,
    ALL_REDUCE,
    BARRIER,
    OF_EXPERTS,
    POINT_TO_POINT,
    RECEIVE,
    REDUCE_SCATTER,
    SEND,
    UNKNOWN,
    RankFigures,
)
from traceview.traces.ranks.job import Clocks, MatchedCommunicator

TOGETHER = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, *OF_EXPERTS, BARRIER)
"""Kinds that no rank can leave before the last one has arrived."""
LEAST_ERROR_NS = 2_000
"""Ends of one collective differ by some microseconds on one machine, in the same direction."""
LOOSE_ERROR_NS = 20_000
"""Added if only messages and broadcasts relate two ranks: these need not end together."""
SAME_HOST_ERROR_NS, OTHER_HOST_ERROR_NS = 1_000_000, 10_000_000
"""Errors of relations by the time of day: NTP keeps machines within 1 to 10 ms."""
_FEW, _DRIFT_FROM = 3, 12
_SURE = 4.0


class ClockRelation(NamedTuple):
    """The relation of the clock of `rank` to the clock of `to`.

    A time t of `rank` is t + offset_ns + drift × (t − origin_ns) on the clock of `to`.
    """

    rank: int
    to: int
    offset_ns: int
    drift: float
    origin_ns: int
    error_ns: int
    basis: str


def align_clocks(ranks: Sequence[RankFigures], matched: Sequence[MatchedRows]) -> Clocks:
    """Align each rank's clock with the first rank's, or with the first one it is connected to."""
    relations = [*_of_recordings(ranks), *_of_collectives(ranks, matched), *_of_day(ranks)]
    count = len(ranks)
    around: list[list[ClockRelation]] = [[] for _ in range(count)]
    for relation in relations:
        around[relation.to].append(relation)
        around[relation.rank].append(_reversed(relation))
    clocks = Clocks(
        np.zeros(count, np.int64),
        np.zeros(count),
        np.zeros(count, np.int64),
        np.full(count, NULL),
        np.full(count, -1, np.int64),
    )
    bases: set[str] = set()
    for start in range(count):
        if clocks.component[start] < 0:
            bases |= _spread(clocks, start, around)
    alone = np.bincount(clocks.component, minlength=count)[clocks.component] == 1
    error = np.where(alone & (count > 1), NULL, clocks.error_ns)
    return replace(clocks, error_ns=error, basis=", ".join(sorted(bases)))


def _spread(clocks: Clocks, start: int, around: list[list[ClockRelation]]) -> set[str]:
    """Write the clocks of all ranks connected to `start`, by least error; return their bases."""
    ahead: list[tuple[int, int, int]] = [(0, start, -1)]
    chosen: dict[int, ClockRelation] = {}
    best: dict[int, int] = {start: 0}
    bases: set[str] = set()
    while ahead:
        error, rank, _ = heapq.heappop(ahead)
        if clocks.component[rank] >= 0:
            continue
        clocks.component[rank], clocks.error_ns[rank] = start, error
        if rank in chosen:
            # From the clock of the other rank, which is already written.
            used = chosen[rank]
            on_other = np.array([used.origin_ns + used.offset_ns])
            on_first = int(clocks.aligned_ns(used.to, on_other)[0])
            clocks.origin_ns[rank] = used.origin_ns
            clocks.offset_ns[rank] = on_first - used.origin_ns
            clocks.drift[rank] = (1.0 + used.drift) * (1.0 + clocks.drift[used.to]) - 1.0
            bases.add(used.basis)
        for relation in around[rank]:
            through, other = error + relation.error_ns, relation.rank
            if clocks.component[other] < 0 and through < best.get(other, through + 1):
                best[other], chosen[other] = through, relation
                heapq.heappush(ahead, (through, other, rank))
    return bases - {""}


def _reversed(relation: ClockRelation) -> ClockRelation:
    return relation._replace(
        rank=relation.to,
        to=relation.rank,
        offset_ns=-relation.offset_ns,
        drift=1.0 / (1.0 + relation.drift) - 1.0,
        origin_ns=relation.origin_ns + relation.offset_ns,
    )


def _of_recordings(ranks: Sequence[RankFigures]) -> Iterator[ClockRelation]:
    """Exact relations between ranks of one recording, which share a clock."""
    first: dict[str, int] = {}
    for place, each in enumerate(ranks):
        leader = first.setdefault(each.name.clock, place)
        if leader != place and each.name.clock:
            yield ClockRelation(place, leader, 0, 0.0, 0, 0, "")


def _of_collectives(
    ranks: Sequence[RankFigures], matched: Sequence[MatchedRows]
) -> Iterator[ClockRelation]:
    for of in matched:
        leader = of.members[0]
        one = ranks[leader].collectives
        for rank, rows in zip(of.members[1:], of.rows[1:], strict=True):
            if ranks[rank].name.clock and ranks[rank].name.clock == ranks[leader].name.clock:
                continue
            both, other = (of.rows[0] >= 0) & (rows >= 0), ranks[rank].collectives
            tight = both & np.isin(one.kind[of.rows[0]], TOGETHER)
            loose = int(tight.sum()) < _FEW
            chosen = both if loose else tight
            if int(chosen.sum()) >= _FEW:
                ends, ends_there = other.end_ns[rows[chosen]], one.end_ns[of.rows[0, chosen]]
                yield relation_of_ends(rank, leader, ends, ends_there, loose)


def relation_of_ends(
    rank: int, to: int, ends: Integers, ends_there: Integers, loose: bool
) -> ClockRelation:
    """Fit a line to the differences of ends, by medians, since some may not end together.

    The error is a robust standard deviation of the residuals.
    """
    difference = ends_there - ends
    origin, middle = int(np.median(ends)), int(np.median(difference))
    rest = (difference - middle).astype(np.float64)
    since = (ends - origin).astype(np.float64)
    drift = _slope(since, rest)
    rest = rest - drift * since
    shift = float(np.median(rest))
    deviation = DEVIATIONS_PER_MAD * float(np.median(np.abs(rest - shift)))
    error = LEAST_ERROR_NS + round(deviation) + (LOOSE_ERROR_NS if loose else 0)
    return ClockRelation(rank, to, middle + round(shift), drift, origin, error, "collectives")


def _slope(since: Array, rest: Array) -> float:
    """The slope between the medians of the first and the last third; 0 where noise explains it."""
    third = len(since) // 3
    if third * 3 < _DRIFT_FROM:
        return 0.0
    order = np.argsort(since, kind="stable")
    early, late = order[:third], order[-third:]
    apart = float(np.median(since[late]) - np.median(since[early]))
    rise = float(np.median(rest[late]) - np.median(rest[early]))
    if apart <= 0:
        return 0.0
    off = rest - rise / apart * since
    noise = DEVIATIONS_PER_MAD * float(np.median(np.abs(off - np.median(off)))) / third**0.5
    return rise / apart if abs(rise) > _SURE * noise else 0.0


def _of_day(ranks: Sequence[RankFigures]) -> Iterator[ClockRelation]:
    """Relations by the recordings' time of day, the best available without collectives."""
    offsets = {
        place: figures.clock_offset_ns
        for place, figures in enumerate(ranks)
        if figures.clock_offset_ns is not None
    }
    leaders: dict[str, int] = {}
    for place, offset in offsets.items():
        host, first = ranks[place].name.host, next(iter(offsets))
        leader = leaders.setdefault(host, place) if host else place
        for other, error in ((leader, SAME_HOST_ERROR_NS), (first, OTHER_HOST_ERROR_NS)):
            if other != place:
                apart = offset - offsets[other]
                yield ClockRelation(place, other, apart, 0.0, 0, error, "time of the day")


Reals = npt.NDArray[np.float64]
USABLE_ERROR_NS = 100_000
"""Clocks with a larger error show neither if ends are together nor which rank came first."""


def matched_communicators(
    ranks: Sequence[RankFigures], matched: Sequence[collectives.MatchedRows], clocks: Clocks
) -> tuple[MatchedCommunicator, ...]:
    """Matched collectives with their waits; communicators with most ranks and collectives first."""
    communicators = [_communicator(ranks, of, clocks) for of in matched]
    return tuple(sorted(communicators, key=lambda of: (-len(of.ranks), -of.rows.shape[1])))


def _communicator(
    ranks: Sequence[RankFigures], of: collectives.MatchedRows, clocks: Clocks
) -> MatchedCommunicator:
    present = of.rows >= 0
    kind = column_of(ranks, of.members, of.rows, "kind").max(axis=0)
    bytes_ = column_of(ranks, of.members, of.rows, "bytes").max(axis=0)
    size = max(int(column_of(ranks, of.members, of.rows, "members").max()), len(of.members))
    waits = _waits(ranks, of, clocks, kind, present)
    return MatchedCommunicator(
        of.number, of.members, size, of.rows, kind, bytes_, waits.wait_ns, waits.last, waits.late_ns
    )


def column_of(
    ranks: Sequence[RankFigures], members: Sequence[int], rows: Integers, name: str
) -> Integers:
    """A column of RankCollectives as (ranks, collectives), −1 where a rank lacks the collective."""
    return values_at([getattr(ranks[rank].collectives, name) for rank in members], rows)


def values_at(values: Sequence[Array], rows: Integers) -> Integers:
    """The values of each rank's array at its rows, −1 where the row is −1."""
    result = np.full(rows.shape, UNKNOWN, np.int64)
    for column, row, to in zip(values, rows, result, strict=True):
        if len(column):
            # A row of −1 takes the last value, overwritten below.
            to[:] = column.take(row, mode="wrap")
    absent = rows < 0
    if absent.any():
        result[absent] = UNKNOWN
    return result


def exposed_waits(ranks: Sequence[RankFigures], of: MatchedCommunicator) -> Integers:
    """The part of each wait in which the rank does not compute, −1 if unknown."""
    exposed = column_of(ranks, of.ranks, of.rows, "exposed_ns")
    return np.where(of.wait_ns > 0, np.minimum(of.wait_ns, exposed), of.wait_ns)


def _waits(
    ranks: Sequence[RankFigures],
    of: collectives.MatchedRows,
    clocks: Clocks,
    kind: Array,
    there: Mask,
) -> collectives.CollectiveWaits:
    columns = (column_of(ranks, of.members, of.rows, name) for name in ("start_ns", "end_ns"))
    start, end = (
        np.stack([clocks.aligned_ns(*pair) for pair in zip(of.members, times, strict=True)])
        for times in columns
    )
    error = _error_ns(clocks, of)
    together = np.isin(kind, TOGETHER)
    if error is not None:
        together = collectives.ends_together(end, there, ENDS_TOGETHER_NS + 4 * error)
    waits = collectives.waits_of(end - start, there, together)
    if error is not None and len(of.members) == 2:
        # Fill in the waits of messages whose sender ended before the receiver.
        # Such a sender did not wait, and the receiver waited until the sender started.
        kinds = column_of(ranks, of.members, of.rows, "kind")
        single = (waits.last < 0) & there.all(axis=0) & np.isin(kinds, POINT_TO_POINT).all(axis=0)
        for sender in (0, 1):
            receiver = 1 - sender
            rows = np.flatnonzero(single & (kinds[sender] == SEND) & (kinds[receiver] == RECEIVE))
            waited = np.maximum(start[sender, rows] - start[receiver, rows], 0)
            waits.wait_ns[sender, rows], waits.wait_ns[receiver, rows] = 0, waited
            waits.last[rows] = np.where(waited > 0, sender, receiver)
            waits.late_ns[rows] = waited
        return waits
    return waits


def _error_ns(clocks: Clocks, of: collectives.MatchedRows) -> int | None:
    """The error of the clocks between the ranks of a communicator; None where it is too large."""
    members = list(of.members)
    if len(set(clocks.component[members].tolist())) > 1:
        return None
    errors = clocks.error_ns[members]
    error = 0 if of.same_clock else int(errors.max())
    return error if (of.same_clock or (errors != NULL).all()) and error <= USABLE_ERROR_NS else None
