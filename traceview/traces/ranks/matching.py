"""Collectives matched across the ranks of a job, and whether the ranks agree on them.

Collectives of a communicator named in the recordings are matched by their order, point-to-point
messages by sender and receiver as well. Without names, streams with the same kinds in the same
order are matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import NULL, Integers
from traceview.traces.facts import collective_alignment, collectives
from traceview.traces.ranks import figures

_SIZED = (
    figures.ALL_REDUCE,
    figures.ALL_GATHER,
    figures.REDUCE_SCATTER,
    figures.BROADCAST,
    figures.REDUCE,
)
"""Kinds whose bytes must be equal on all ranks; the bytes of other kinds may differ."""
_ORDERED = (*_SIZED, *figures.OF_EXPERTS, figures.BARRIER)
"""Kinds that every rank of a communicator takes part in."""


@record
class Inconsistency:
    """A place in the order of a communicator where its ranks disagree.

    `at` is the number of the collective, from 0. `ranks` call `kind` with `bytes`, while `others`
    call `other_kind` with `other_bytes`; both are places in the list of ranks. Without a majority
    `others` are the last ranks.
    """

    number: int
    at: int
    kind: int
    bytes: int
    ranks: tuple[int, ...]
    other_kind: int
    other_bytes: int
    others: tuple[int, ...]


@record
class Matching:
    """Collectives that belong together, and places where ranks disagree.

    In `matched`, rows refer to each rank's RankCollectives, members are places in the list of
    ranks, and numbers are communicators.
    """

    matched: tuple[collectives.MatchedRows, ...]
    inconsistencies: tuple[Inconsistency, ...]


@record
class _Joined:
    """The collectives of all ranks, concatenated.

    `first` is the first row of each rank, `number` the communicator of each virtual number in
    `times`: messages in one direction between two ranks of a communicator get their own number.
    """

    times: collective_alignment.CollectiveTimes
    first: Integers
    number: Integers


def match_ranks(ranks: Sequence[figures.RankFigures]) -> Matching:
    """Match the collectives of the ranks, and find where ranks disagree."""
    if not any(len(rank.collectives) for rank in ranks):
        return Matching((), ())

    def column(name: str) -> Integers:
        columns = [getattr(rank.collectives, name) for rank in ranks]
        return np.concatenate(columns).astype(np.int64, copy=False)

    counts = np.array([len(rank.collectives) for rank in ranks], np.int64)
    kind, communicator = column("kind"), column("communicator")
    member = np.repeat(np.arange(len(ranks)), counts)
    number, virtual = _virtual_numbers(ranks, member, kind, communicator)
    is_message = np.isin(kind, figures.POINT_TO_POINT)
    # The number of the step that each collective is in, −1 outside of steps.
    numbers = [np.append(rank.steps.number, figures.UNKNOWN) for rank in ranks]
    step = [of[rank.collectives.step] for of, rank in zip(numbers, ranks, strict=True)]
    clocks = {name: place for place, name in enumerate(dict.fromkeys(r.name.clock for r in ranks))}
    times = collective_alignment.CollectiveTimes(
        member=member,
        lane=np.where(virtual == NULL, column("stream"), -1),
        start_ns=column("start_ns"),
        end_ns=column("end_ns"),
        kind=np.where(is_message, figures.SEND_RECEIVE, kind),
        is_message=is_message,
        direction=(kind == figures.SEND).astype(np.int64) - (kind == figures.RECEIVE),
        bytes=np.where(np.isin(kind, _SIZED), column("bytes"), figures.UNKNOWN),
        communicator=virtual,
        step=np.concatenate(step),
        clock=np.array([clocks[rank.name.clock] for rank in ranks], np.int64),
    )
    joined = _Joined(times, np.cumsum(counts) - counts, number)
    communicators = collectives.matched_rows(joined.times, by_name=True)
    disagreeing = [*_disagreements(joined, communicators)]
    prefixes = (prefix for _, prefix in disagreeing if prefix is not None)
    return Matching(
        tuple(_of_ranks(joined, of) for of in (*communicators, *prefixes)),
        tuple(inconsistency for inconsistency, _ in disagreeing),
    )


def _virtual_numbers(
    ranks: Sequence[figures.RankFigures], member: Integers, kind: Integers, communicator: Integers
) -> tuple[Integers, Integers]:
    """The communicator of each virtual number, and the virtual number of each row, NULL for none.

    Messages of a communicator with the same sender and receiver share a virtual number.
    """
    peer = np.concatenate([rank.collectives.peer for rank in ranks])
    own = _own_ranks(ranks, member, communicator)
    ends = np.isin(kind, (figures.SEND, figures.RECEIVE)) & (own >= 0) & (peer >= 0)
    source = np.where(ends, np.where(kind == figures.SEND, own, peer), figures.UNKNOWN)
    target = np.where(ends, np.where(kind == figures.SEND, peer, own), figures.UNKNOWN)
    dense = np.unique(communicator, return_inverse=True)[1].astype(np.int64)
    by = groups.group(dense, source, target)
    return communicator[by.first], np.where(communicator == NULL, NULL, by.ids)


def _own_ranks(
    ranks: Sequence[figures.RankFigures], member: Integers, communicator: Integers
) -> Integers:
    """The rank of each row's owner in its communicator, −1 where unknown."""
    result = np.full(len(member), figures.UNKNOWN, np.int64)
    own_ranks = _known_own_ranks(ranks)
    for place in range(len(ranks)):
        rows = np.flatnonzero(member == place)
        for number in groups.different(communicator[rows]).tolist() if len(rows) else ():
            own = own_ranks.get((place, number), figures.UNKNOWN)
            if own >= 0:
                result[rows[communicator[rows] == number]] = own
    return result


def _known_own_ranks(ranks: Sequence[figures.RankFigures]) -> dict[tuple[int, int], int]:
    """The rank of each place in each communicator, by (place, number).

    A single unknown one, as in a recording that began later, is the rank that is left over.
    """
    known: dict[tuple[int, int], int] = {}
    sizes: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for place, each in enumerate(ranks):
        known |= {(place, number): own for number, (_, own) in each.communicators.items()}
        sizes |= {number: size for number, (size, _) in each.communicators.items()}
        for number in groups.different(each.collectives.communicator).tolist():
            users.setdefault(number, []).append(place)
    for number, size in sizes.items():
        left = [p for p in users.get(number, ()) if known.get((p, number), figures.UNKNOWN) < 0]
        if len(left) == 1 and len(users[number]) == size:
            taken = {known.get((place, number)) for place in users[number]}
            known[left[0], number] = next(own for own in range(size) if own not in taken)
    return known


def _of_ranks(joined: _Joined, of: collectives.MatchedRows) -> collectives.MatchedRows:
    first = joined.first[list(of.members)][:, None]
    rows = np.where(of.rows >= 0, of.rows - first, -1)
    number = NULL if of.number == NULL else int(joined.number[of.number])
    return collectives.MatchedRows(of.members, rows, of.same_clock, number)


def _disagreements(
    joined: _Joined, found: Sequence[collectives.MatchedRows]
) -> Iterator[tuple[Inconsistency, collectives.MatchedRows | None]]:
    """Places where ranks of a named communicator run different collectives.

    Each comes with the match of the collectives before it if the communicator is otherwise
    unmatched, else None.
    """
    times = joined.times
    ordered = np.flatnonzero((times.communicator != NULL) & np.isin(times.kind, _ORDERED))
    by = groups.group(times.communicator[ordered], times.member[ordered])
    order = np.lexsort((times.start_ns[ordered], by.ids))
    streams = np.split(ordered[order], np.flatnonzero(np.diff(by.ids[order])) + 1)
    of_number: dict[int, list[Integers]] = {}
    for rows in streams if len(ordered) else ():
        of_number.setdefault(int(times.communicator[rows[0]]), []).append(rows)
    whole = {of.number: set(of.members) for of in found}
    for of in found:
        within = _first_left_over(joined, of, of_number.get(of.number, ()))
        if within is not None:
            yield within, None
    for number, own in of_number.items():
        members = {int(times.member[rows[0]]) for rows in own}
        if len(own) > 1 and members - whole.get(number, set()):
            disagreement = _first_disagreement(joined, number, own)
            if disagreement is not None:
                prefix = None
                if number not in whole:
                    members_of = tuple(int(times.member[rows[0]]) for rows in own)
                    before = np.stack([rows[: disagreement.at] for rows in own])
                    same_clock = len(set(times.clock[list(members_of)].tolist())) == 1
                    prefix = collectives.MatchedRows(members_of, before, same_clock, number)
                yield disagreement, prefix


def _first_left_over(
    joined: _Joined, of: collectives.MatchedRows, streams: Sequence[Integers]
) -> Inconsistency | None:
    """The first unmatched collective of a rank in whose place other ranks run another one.

    A collective that a recording merely lost is missing, without another one in its place.
    """
    times, present = joined.times, of.rows >= 0
    together = present.sum(axis=0) > 1
    for stream in streams:
        member = int(times.member[stream[0]])
        if member not in of.members:
            continue
        place = of.members.index(member)
        columns = np.flatnonzero(present[place] & together)
        own = of.rows[place, columns]
        for row in np.setdiff1d(stream, own).tolist():
            after = int(np.searchsorted(own, row))
            if not 0 < after < len(own):
                continue
            between = np.arange(columns[after - 1] + 1, columns[after])
            others = between[present[:, between].any(axis=0) & ~present[place, between]]
            if len(others):
                at = int(np.searchsorted(stream, row))
                inconsistency = _compared(joined, of, int(others[0]), row, at)
                if inconsistency is not None:
                    return inconsistency
    return None


def _compared(
    joined: _Joined, of: collectives.MatchedRows, column: int, row: int, at: int
) -> Inconsistency | None:
    """The collective of a column against `row` at the same place; None if they are alike."""
    times = joined.times
    rows = of.rows[:, column]
    members = tuple(m for m, present in zip(of.members, rows >= 0, strict=True) if present)
    usual, other = (
        (int(times.kind[call]), int(times.bytes[call])) for call in (rows[rows >= 0][0], row)
    )
    if usual == other:
        return None
    number = int(joined.number[of.number]) if of.number != NULL else NULL
    return Inconsistency(number, at, *usual, members, *other, (int(times.member[row]),))


def _first_disagreement(
    joined: _Joined, number: int, streams: Sequence[Integers]
) -> Inconsistency | None:
    """The first place where kinds or sizes differ; None if the first collectives differ.

    Recordings that begin at different collectives differ from the start, which means nothing.
    """
    times, length = joined.times, min(map(len, streams))
    rows = np.stack([stream[:length] for stream in streams])
    kind, sizes = times.kind[rows], times.bytes[rows]
    # A size that a rank does not tell does not differ.
    sizes = np.where(sizes < 0, sizes.max(axis=0), sizes)
    differing = np.flatnonzero(((kind != kind[0]) | (sizes != sizes[0])).any(axis=0))
    if not len(differing) or not differing[0]:
        return None
    at = int(differing[0])
    calls = [(int(times.kind[row]), int(times.bytes[row])) for row in rows[:, at]]
    most = max(dict.fromkeys(calls), key=calls.count)
    other = next(call for call in calls if call != most)
    members = [int(times.member[stream[0]]) for stream in streams]
    agreeing, others = (
        tuple(m for m, call in zip(members, calls, strict=True) if (call == most) is same)
        for same in (True, False)
    )
    return Inconsistency(int(joined.number[number]), at, *most, agreeing, *other, others)
