"""The waits of a job's collectives, matched and on aligned clocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceview.facts.collectives import matching
from traceview.facts.collectives.fitting import ENDS_TOGETHER_NS
from traceview.ranks.clocks import TOGETHER
from traceview.ranks.figures import POINT_TO_POINT, RECEIVE, SEND, UNKNOWN, RankFigures
from traceview.ranks.job import Clocks, MatchedCommunicator
from traceview.tables import NULL, Array, Integers, Mask

Reals = npt.NDArray[np.float64]
USABLE_ERROR_NS = 100_000
"""Clocks with a larger error show neither if ends are together nor which rank came first."""


def matched_communicators(
    ranks: Sequence[RankFigures], matched: Sequence[matching.MatchedRows], clocks: Clocks
) -> tuple[MatchedCommunicator, ...]:
    """Matched collectives with their waits; communicators with most ranks and collectives first."""
    communicators = [_communicator(ranks, of, clocks) for of in matched]
    return tuple(sorted(communicators, key=lambda of: (-len(of.ranks), -of.rows.shape[1])))


def _communicator(
    ranks: Sequence[RankFigures], of: matching.MatchedRows, clocks: Clocks
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
    waits: Integers = np.where(of.wait_ns > 0, np.minimum(of.wait_ns, exposed), of.wait_ns)
    return waits


def _waits(
    ranks: Sequence[RankFigures], of: matching.MatchedRows, clocks: Clocks, kind: Array, there: Mask
) -> matching.CollectiveWaits:
    columns = (column_of(ranks, of.members, of.rows, name) for name in ("start_ns", "end_ns"))
    start, end = (
        np.stack([clocks.aligned_ns(*pair) for pair in zip(of.members, times, strict=True)])
        for times in columns
    )
    error = _error_ns(clocks, of)
    together = np.isin(kind, TOGETHER)
    if error is not None:
        together = matching.ends_together(end, there, ENDS_TOGETHER_NS + 4 * error)
    waits = matching.waits_of(end - start, there, together)
    if error is not None and len(of.members) == 2:
        return _of_messages(ranks, of, waits, start, there)
    return waits


def _error_ns(clocks: Clocks, of: matching.MatchedRows) -> int | None:
    """The error of the clocks between the ranks of a communicator; None where it is too large."""
    members = list(of.members)
    if len(set(clocks.component[members].tolist())) > 1:
        return None
    errors = clocks.error_ns[members]
    error = 0 if of.same_clock else int(errors.max())
    return error if (of.same_clock or (errors != NULL).all()) and error <= USABLE_ERROR_NS else None


def _of_messages(
    ranks: Sequence[RankFigures],
    of: matching.MatchedRows,
    waits: matching.CollectiveWaits,
    start: Integers,
    there: Mask,
) -> matching.CollectiveWaits:
    """Fill in the waits of messages whose sender ended before the receiver.

    Such a sender did not wait, and the receiver waited until the sender started.
    """
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
