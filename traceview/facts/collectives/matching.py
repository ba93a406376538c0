"""Collectives of several GPUs that belong together: those of one communicator, in its order.

The recordings name the communicator of a collective, or streams of different GPUs belong together
that run the same kinds in the same order and end together. A recording may begin between the two
kernels of a collective, so that the order of one stream lags behind that of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.facts.collectives import fitting
from traceview.facts.collectives.alignment import ABSENT
from traceview.records import record
from traceview.tables import NULL, Integers, Mask

# Who waited for whom in collectives that belong together.
#
# A collective ends on all its GPUs together, as none can leave before the last has sent its part.
# So the GPU with the shortest kernel arrived last, and each other one waited for it as long as
# its own kernel took longer. No clocks are needed for that.


class CollectiveWaits(NamedTuple):
    """Waits of the collectives of one communicator.

    `wait_ns` has shape (members, collectives), −1 where a member is not recorded or the wait is not
    known. `last` is the index of the member that arrived last, −1 where unknown; `late_ns` is the
    longest wait for that member, 0 where unknown.
    """

    wait_ns: Integers
    last: Integers
    late_ns: Integers


def waits_of(duration_ns: Integers, there: Mask, together: Mask) -> CollectiveWaits:
    """The waits in collectives, from `duration_ns` of shape (members, collectives).

    `there`, of the same shape, is True where a member's collective was recorded; `together` has one
    entry per collective, False where its ends are apart.
    """
    known = together & (there.sum(axis=0) > 1)
    duration = np.where(there, duration_ns, np.iinfo(np.int64).max)
    shortest, last = duration.min(axis=0), duration.argmin(axis=0)
    wait = np.where(there & known, duration - np.where(known, shortest, 0), -1)
    return CollectiveWaits(
        wait_ns=wait,
        last=np.where(known, last, -1),
        late_ns=np.where(known, np.maximum(wait.max(axis=0), 0), 0),
    )


_SEARCHED = 8
_IN_STEP = 0.9
"""Of the messages of two streams: so many end together where the streams are peers."""


@record
class MatchedRows:
    """Streams whose collectives belong together, one per member.

    `rows` are rows of CollectiveTimes, shape (members, collectives), −1 where the member's
    recording lacks the collective. `number` is the communicator, NULL where the match was inferred.
    """

    members: tuple[int, ...]
    rows: Integers
    same_clock: bool
    number: int


@dataclass
class _Growing:
    """A stream, and the streams of other members matched to it so far.

    `places` has, per matched stream, the index of each of its collectives in the first stream.
    """

    first: Integers
    number: int
    members: list[int]
    streams: list[Integers]
    places: list[Integers]

    def add(self, member: int, rows: Integers, places: Integers) -> None:
        """Add the stream of a member; `places` are the indices of its rows in the first stream."""
        paired = places != ABSENT
        self.members.append(member)
        self.streams.append(rows[paired])
        self.places.append(places[paired])


def matched_rows(
    times: fitting.CollectiveTimes, *, by_name: bool = False
) -> tuple[MatchedRows, ...]:
    """The streams of different members whose collectives are alike and end together.

    With `by_name`, streams of one named communicator that hold equally many collectives belong
    together whatever their ends.
    """
    growing: list[_Growing] = []
    of_number: dict[int, list[_Growing]] = {}
    # Each (stream, communicator) by start; these in order of member and start.
    communicator = np.unique(times.communicator, return_inverse=True)[1].astype(np.int64)
    by_stream = groups.group(times.member, times.lane, communicator)
    order = np.lexsort((times.start_ns, by_stream.ids))
    parts = np.split(order, np.flatnonzero(np.diff(by_stream.ids[order])) + 1)
    streams = sorted(
        (part for part in parts if len(part)),
        key=lambda part: (times.member[part[0]], times.start_ns[part[0]]),
    )
    for rows in streams:
        member, number = int(times.member[rows[0]]), int(times.communicator[rows[0]])
        candidates = growing if number == NULL else of_number.get(number, [])
        if number != NULL:
            candidates = [*candidates, *of_number.get(NULL, ())]
        if not _join(times, candidates, member, rows, by_name=by_name and number != NULL):
            one = _Growing(rows, number, [], [], [])
            one.add(member, rows, np.arange(len(rows)))
            growing.append(one)
            of_number.setdefault(number, []).append(one)
    return tuple(_matched(times, one) for one in growing if len(one.members) > 1)


def _join(
    times: fitting.CollectiveTimes,
    candidates: list[_Growing],
    member: int,
    rows: Integers,
    *,
    by_name: bool,
) -> bool:
    """Add a stream to the candidate that it fits best; False where it fits none."""
    best: tuple[float, _Growing, Integers] | None = None
    free = [one for one in candidates if member not in one.members]
    if times.is_message[rows].all() and times.communicator[rows[0]] == NULL:
        free = [one for one in free if _same_messages(times, one, rows)]
    for number, one in enumerate(free):
        search = number < _SEARCHED or by_name
        pairs = fitting.fit(times, one.first, rows, search=search)
        pairs = pairs or fitting.fit(fitting.without_steps(times), one.first, rows, search=search)
        named = by_name and one.number != NULL
        if pairs is None and named and fitting.are_in_order(times, one.first, rows):
            pairs = 0.0, np.arange(len(rows))
        # Streams of different groups run in step as well, but less closely.
        one_clock = fitting.share_clock(times, one.first, rows)
        within_ns = fitting.ENDS_TOGETHER_NS if one_clock else fitting.IN_STEP_NS
        if pairs is not None and (named or pairs[0] <= within_ns):
            best = (pairs[0], one, pairs[1]) if best is None or pairs[0] < best[0] else best
    if best is not None:
        best[1].add(member, rows, best[2])
    return best is not None


def _same_messages(times: fitting.CollectiveTimes, one: _Growing, rows: Integers) -> bool:
    """Whether the messages of a stream are those of others, without a name that says so.

    A stage of a pipeline may exchange with both of its neighbours on one stream, in step with
    theirs: only streams that pair off from the first to the last message, and closely, are alike.
    """
    if len(one.members) > 1 and times.direction[rows].any():
        return False
    if not fitting.are_in_order(times, one.first, rows):
        return False
    off = fitting.ends_off_ns(times, one.first, rows)
    return len(off) > 0 and bool(np.mean(off <= fitting.IN_STEP_NS) >= _IN_STEP)


def _matched(times: fitting.CollectiveTimes, of: _Growing) -> MatchedRows:
    order = sorted(range(len(of.members)), key=of.members.__getitem__)
    low = min(int(places.min(initial=0)) for places in of.places)
    high = max(int(places.max(initial=0)) for places in of.places)
    rows = np.full((len(order), high - low + 1), -1, np.int64)
    for member, number in enumerate(order):
        rows[member, of.places[number] - low] = of.streams[number]
    members = tuple(of.members[number] for number in order)
    numbers = groups.different(times.communicator[[one[0] for one in of.streams if len(one)]])
    clocks = groups.different(times.clock[list(members)])
    return MatchedRows(members, rows, len(clocks) == 1, int(numbers[-1]))


def ends_together(ends: Integers, there: Mask, within_ns: int = fitting.ENDS_TOGETHER_NS) -> Mask:
    """True for the collectives that all members left within `within_ns`, on one clock.

    The sender of a small message or a broadcast need not wait for the receivers. `ends` and `there`
    (True where recorded) have shape (members, collectives).
    """
    last = np.where(there, ends, np.iinfo(np.int64).min).max(axis=0)
    first = np.where(there, ends, np.iinfo(np.int64).max).min(axis=0)
    together: Mask = last - first <= within_ns
    return together
