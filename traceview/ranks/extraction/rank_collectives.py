"""The collectives and messages of a rank, with its work and idle time before each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from traceview import intervals
from traceview.facts.collectives.transfers import Transfers, transfers
from traceview.facts.operations.operations import operations
from traceview.facts.steps.steps import step_of_operations
from traceview.ranks.extraction.idle_places import idle_places
from traceview.ranks.extraction.owners import RankOwner
from traceview.ranks.extraction.windows import RankTime
from traceview.ranks.figures import (
    KINDS,
    OTHER,
    RECEIVE,
    SEND,
    SEND_RECEIVE,
    UNKNOWN,
    Place,
    RankCollectives,
    no_collectives,
)
from traceview.tables import Array, Integers
from traceview.trace import Trace


class CollectivesOfRank(NamedTuple):
    """The collectives of a rank, and the places that their `place` column refers to."""

    collectives: RankCollectives
    places: tuple[Place, ...]


def rank_collectives(
    trace: Trace, owner: RankOwner, time: RankTime, loop: Integers
) -> CollectivesOfRank:
    """The collectives of a rank; `loop` has the rows of its loop in the table of steps."""
    moved, ops = transfers(trace), operations(trace)
    chosen = moved.is_collective & (moved.device == owner.device)
    rows = np.flatnonzero(chosen & (ops.process[moved.operation] == owner.process))
    if not len(rows):
        return CollectivesOfRank(no_collectives(), ())
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    before = _end_before(start, end)
    idle = idle_places(trace, owner.device, before, start)
    operation = moved.operation[rows]
    collectives = RankCollectives(
        start_ns=start,
        end_ns=end,
        kind=_kinds(moved, rows),
        communicator=moved.communicator[rows],
        bytes=moved.bytes[rows],
        bus_bytes=moved.bus_bytes[rows],
        members=moved.ranks[rows],
        peer=moved.peer[rows],
        stream=moved.stream[rows].astype(np.int64),
        exposed_ns=end - start - intervals.overlap(time.compute, start, end),
        step=_steps(trace, operation, loop),
        work_ns=intervals.overlap(time.busy_without_communication, before, start),
        idle_ns=time.idle_ns(before, start),
        place=idle.place,
        place_ns=idle.place_ns,
    )
    return CollectivesOfRank(collectives, idle.places)


def _end_before(start: Integers, end: Integers) -> Integers:
    """For each collective, the last end at or before its start; else its own start."""
    ends = np.sort(end)
    number = np.searchsorted(ends, start, side="right")
    return np.where(number > 0, ends[np.maximum(number, 1) - 1], start)


def _kinds(moved: Transfers, rows: Integers) -> Array:
    numbers = {name: number for number, name in enumerate(KINDS)}
    named = np.array([numbers.get(name, OTHER) for name in moved.kinds], np.int8)
    kind = named[moved.kind[rows]]
    sends, receives, message = moved.sends[rows], moved.receives[rows], kind == SEND_RECEIVE
    kind[message & sends & ~receives] = SEND
    kind[message & receives & ~sends] = RECEIVE
    return kind


def _steps(trace: Trace, operation: Array, loop: Integers) -> Integers:
    """The position in the loop of the step that launched each operation, −1 outside the loop."""
    step = step_of_operations(trace)[operation]
    places = np.full(int(max(step.max(initial=-1), loop.max(initial=-1))) + 2, -1, np.int64)
    places[loop] = np.arange(len(loop))
    result: Integers = places[step]
    return result


def communicators_of(trace: Trace, process: int) -> Mapping[int, tuple[int, int]]:
    """Size and own rank of each communicator of a process; rank −1 if it has several ranks."""
    known = trace.recorded("communicators")
    size_and_rank: dict[int, tuple[int, int]] = {}
    own = known.take(known["process"] == process)
    columns = (own["communicator"].tolist(), own["ranks"].tolist(), own["rank"].tolist())
    for number, size, rank in zip(*columns, strict=True):
        size_and_rank[number] = (size, UNKNOWN if number in size_and_rank else rank)
    return size_and_rank


def group_texts(
    trace: Trace, process: int
) -> tuple[Mapping[int, str], Mapping[int, tuple[int, ...]]]:
    """Names and global ranks of process groups, by communicator and only where recorded."""
    known = trace.recorded("communicators")
    own = known.take(known["process"] == process)
    number = own["communicator"].tolist()
    names = dict(zip(number, own.texts("name").decode(), strict=True))
    members = dict(zip(number, own.texts("members").decode(), strict=True))
    return (
        {each: str(name) for each, name in names.items() if name},
        {each: tuple(map(int, str(text).split(","))) for each, text in members.items() if text},
    )
