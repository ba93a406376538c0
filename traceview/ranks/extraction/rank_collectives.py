"""The collectives and messages of a rank, with its work and idle time before each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.comparison.extraction.places import gap_places
from traceview.facts.collectives.transfers import Transfers, transfers
from traceview.facts.idle.gaps import every_gap
from traceview.facts.idle.lines import idle_samples
from traceview.facts.idle.stack_sites import stack_sites
from traceview.facts.operations.operations import operations
from traceview.facts.steps.steps import step_of_operations
from traceview.ranks import figures
from traceview.ranks.extraction.owners import RankOwner
from traceview.ranks.extraction.windows import RankTime
from traceview.tables import Array, Integers, Texts
from traceview.trace import Trace
from traceview.vocabulary.activities import ACTIVITIES

# The place of the program in the idle time before each collective.

_LINE = re.compile(r"(.+):(\d{1,9})")
_WORTH_NS = 10_000
"""Shorter gaps last no longer than a launch, and are not assigned to a place."""


class IdlePlaces(NamedTuple):
    """Places; for each window the row of its main place (−1: none) and the idle time there."""

    places: tuple[figures.Place, ...]
    place: Integers
    place_ns: Integers


def idle_places(trace: Trace, device: int, before: Integers, start: Integers) -> IdlePlaces:
    """The places of a GPU's idle time in windows [before, start), sorted by start."""
    every = every_gap(trace)
    rows = np.flatnonzero((every.device == device) & (every.idle_ns >= _WORTH_NS))
    window = np.searchsorted(start, every.end_ns[rows], side="left")
    inside = window < len(start)
    inside[inside] = before[window[inside]] <= every.start_ns[rows[inside]]
    rows, window = rows[inside], window[inside]
    most, time = np.full(len(start), figures.UNKNOWN, np.int64), np.zeros(len(start), np.int64)
    if not len(rows):
        return IdlePlaces((), most, time)
    text, _ = gap_places(trace, rows)
    placed = ~text.isin([""]) & (text.codes >= 0)
    pairs = groups.group(window[placed], text.codes[placed])
    total = groups.sums(pairs, every.idle_ns[rows[placed]])
    # Ascending, so that the last to write is the place with most time.
    order = np.argsort(total, kind="stable")
    of = window[placed][pairs.first[order]]
    most[of], time[of] = text.codes[placed][pairs.first[order]], total[order]
    # Collectives with the same window start share the place of the first of them.
    first = np.flatnonzero(groups.opens(before))
    leader = first[np.cumsum(groups.opens(before)) - 1]
    shorter = time < time[leader]
    most, time = np.where(shorter, most[leader], most), np.where(shorter, time[leader], time)
    used, place = np.unique(most, return_inverse=True)
    unknown = int(used[0] == figures.UNKNOWN)
    places = tuple(_place(trace, rows, text, int(code)) for code in used[unknown:])
    return IdlePlaces(places, place.astype(np.int64) - unknown, time)


def _place(trace: Trace, rows: Integers, text: Texts, code: int) -> figures.Place:
    """The place for a text from gap_places: a source line or a range."""
    name, gaps = str(text.values[code]), rows[text.codes == code]
    match = _LINE.fullmatch(name)
    samples, sites = idle_samples(trace), stack_sites(trace)
    samples = samples.take(np.isin(samples.gap, gaps))
    function, what = "", ""
    if len(samples.gap):
        # The function and the activity with most samples in the gaps.
        by = groups.group(samples.site)
        most = int(samples.site[by.first[np.argmax(groups.sums(by, samples.time_ns))]])
        activity = ACTIVITIES[int(np.argmax(np.bincount(samples.doing, samples.time_ns)))]
        function, what = str(sites.function[most] or ""), activity.name if activity.rank else ""
    if match:
        return figures.Place(match[1], int(match[2]), function, what=what)
    return figures.Place(range_path=name, what=what)


def rank_collectives(
    trace: Trace, owner: RankOwner, time: RankTime, loop: Integers
) -> tuple[figures.RankCollectives, tuple[figures.Place, ...]]:
    """The collectives of a rank, and the places that their `place` column refers to.

    `loop` has the rows of its loop in the table of steps.
    """
    moved, ops = transfers(trace), operations(trace)
    chosen = moved.is_collective & (moved.device == owner.device)
    rows = np.flatnonzero(chosen & (ops.process[moved.operation] == owner.process))
    if not len(rows):
        return figures.no_collectives(), ()
    start, end = moved.start_ns[rows], moved.end_ns[rows]
    # The last end at or before each start; else the start itself.
    ends = np.sort(end)
    number = np.searchsorted(ends, start, side="right")
    before = np.where(number > 0, ends[np.maximum(number, 1) - 1], start)
    idle = idle_places(trace, owner.device, before, start)
    # The position in the loop of the step that launched each, −1 outside the loop.
    step = step_of_operations(trace)[moved.operation[rows]]
    position = np.full(int(max(step.max(initial=-1), loop.max(initial=-1))) + 2, -1, np.int64)
    position[loop] = np.arange(len(loop))
    collectives = figures.RankCollectives(
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
        step=position[step],
        work_ns=intervals.overlap(time.busy_without_communication, before, start),
        idle_ns=time.idle_ns(before, start),
        place=idle.place,
        place_ns=idle.place_ns,
    )
    return collectives, idle.places


def _kinds(moved: Transfers, rows: Integers) -> Array:
    numbers = {name: number for number, name in enumerate(figures.KINDS)}
    named = np.array([numbers.get(name, figures.OTHER) for name in moved.kinds], np.int8)
    kind = named[moved.kind[rows]]
    sends, receives, message = moved.sends[rows], moved.receives[rows], kind == figures.SEND_RECEIVE
    kind[message & sends & ~receives] = figures.SEND
    kind[message & receives & ~sends] = figures.RECEIVE
    return kind


def communicators_of(trace: Trace, process: int) -> Mapping[int, tuple[int, int]]:
    """Size and own rank of each communicator of a process; rank −1 if it has several ranks."""
    communicators = trace.recorded("communicators")
    joined = communicators.take(communicators["process"] == process)
    columns = (joined[name].tolist() for name in ("communicator", "ranks", "rank"))
    size_and_rank: dict[int, tuple[int, int]] = {}
    for number, size, rank in zip(*columns, strict=True):
        size_and_rank[number] = (size, figures.UNKNOWN if number in size_and_rank else rank)
    return size_and_rank


def group_texts(
    trace: Trace, process: int
) -> tuple[Mapping[int, str], Mapping[int, tuple[int, ...]]]:
    """Names and global ranks of process groups, by communicator and only where recorded."""
    communicators = trace.recorded("communicators")
    joined = communicators.take(communicators["process"] == process)
    number = joined["communicator"].tolist()
    names = dict(zip(number, joined.texts("name").decode(), strict=True))
    members = dict(zip(number, joined.texts("members").decode(), strict=True))
    return (
        {one: str(name) for one, name in names.items() if name},
        {one: tuple(map(int, str(text).split(","))) for one, text in members.items() if text},
    )
