"""The proof of an idle gap's cause, in one sentence each: times, calls and ranges to look up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups, units
from traceview.facts.idle.cpu_activity import CPU_CAUSES, PLACES, Places, cpu_places
from traceview.facts.idle.gaps import (
    COPY_WAIT,
    DEPENDENCY,
    PROFILER,
    SYNC_DRAIN,
    Gaps,
    every_gap,
    gaps,
    profilers_own,
)
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import Does
from traceview.facts.operations.display_names import label
from traceview.facts.operations.operations import Kind, first_launches, operations
from traceview.facts.ranges.ranges import attribute, attributed_operations, range_tree
from traceview.findings import shortened
from traceview.tables import Integers, Mask
from traceview.trace import Trace

PARTS = 3
"""So many places of the CPU are named, longest first."""
LEAST_SHARE = 0.05
"""Places with less of the gap than this are left out of the sentence."""


class Evidence:
    """Sentences about some gaps of a trace. Write only as many as are shown."""

    def __init__(self, trace: Trace, rows: Integers) -> None:
        self._trace = trace
        every = gaps(trace)
        self._gap: Gaps = every.take(rows)
        number = np.full(len(every), -1, np.int64)
        number[rows] = np.arange(len(rows))
        found = cpu_places(trace).of(number >= 0)
        self._parts = _longest_first(found, _paths(trace, found.range), number)

    def text(self, number: int) -> str:
        """What proves the cause of that gap."""
        cause = int(self._gap.cause[number])
        if cause in CPU_CAUSES:
            if cause == PROFILER:
                return self._profiler(number)
            opening = self._sync(number) if cause == SYNC_DRAIN else self._late(number)
            return f"{opening}; {self._thread(number)}: {self._whereabouts(number)}"
        if cause in (DEPENDENCY, COPY_WAIT):
            return self._queued(number)
        return "no launch call was recorded for it"

    def call(self, number: int) -> str | None:
        """The API call that the cause rests on."""
        gap, cause = self._gap, int(self._gap.cause[number])
        if cause == SYNC_DRAIN:
            return self._api(int(waits(self._trace).call[gap.wait[number]]))
        if cause in CPU_CAUSES:
            least = LEAST_SHARE * int(gap.end_ns[number] - gap.start_ns[number])
            for _, where, time_ns in self._parts.get(number, ()):
                if where >= 0 and time_ns >= least:
                    return str(self._trace.api_calls.texts("name").values[where])
        return self._api(int(gap.call[number])) if gap.call[number] >= 0 else None

    def _api(self, call: int) -> str:
        return str(self._trace.api_calls.texts("name")[call])

    def _thread(self, number: int) -> str:
        thread = int(self._gap.thread[number])
        return f"thread {self._trace.threads['thread_id'][thread]}"

    def _late(self, number: int) -> str:
        """When the launch call was made, and the wait that its thread had last left."""
        first = first_launches(self._trace)[self._gap.after[number]]
        what = " (first launch of its kernel)" if first else ""
        return f"{self._called(number)}{what}{self._left_before(number)}"

    def _called(self, number: int) -> str:
        gap = self._gap
        when = _relative(int(gap.asked_ns[number] - gap.start_ns[number]))
        return f"{self._api(int(gap.call[number]))} called {when} the GPU ran dry"

    def _left_before(self, number: int) -> str:
        """The synchronization that the launching thread left in the gap or shortly before it."""
        gap, waited = self._gap, waits(self._trace)
        mine = (waited.thread == gap.thread[number]) & (waited.does == Does.SYNCHRONIZE)
        near = gap.start_ns[number] - (gap.end_ns[number] - gap.start_ns[number])
        mine &= (waited.end_ns <= gap.asked_ns[number]) & (waited.end_ns >= near)
        rows = np.flatnonzero(mine)
        if not len(rows):
            return ""
        return f"; {self._returned(int(rows[np.argmax(waited.end_ns[rows])]), number)}"

    def _sync(self, number: int) -> str:
        wait = int(self._gap.wait[number])
        thread = self._trace.threads["thread_id"][int(waits(self._trace).thread[wait])]
        return f"{self._returned(wait, number)}, on thread {thread}"

    def _returned(self, wait: int, number: int) -> str:
        waited = waits(self._trace)
        took = units.duration(int(waited.end_ns[wait] - waited.start_ns[wait]))
        when = _relative(int(waited.end_ns[wait] - self._gap.start_ns[number]))
        return f"{self._api(int(waited.call[wait]))} of {took} returned {when} that"

    def _profiler(self, number: int) -> str:
        """What the profiler did meanwhile on the launching thread, the longest of it."""
        gap, overheads = self._gap, self._trace.overheads
        start, end = int(gap.start_ns[number]), int(gap.end_ns[number])
        mine = profilers_own(self._trace) & (overheads["thread"] == gap.thread[number])
        time = np.minimum(overheads["end_ns"], end) - np.maximum(overheads["start_ns"], start)
        row = int(np.argmax(np.where(mine, time, -1)))
        name = shortened(overheads.texts("name")[row], 60)
        return f"{self._thread(number)} was in {name!r} for {units.duration(int(time[row]))} of it"

    def _whereabouts(self, number: int) -> str:
        """Where the launching thread spent the gap: the longest parts, by range."""
        whole = int(self._gap.end_ns[number] - self._gap.start_ns[number])
        listed = self._parts.get(number, [])
        shown = [part for part in listed if part[2] >= LEAST_SHARE * whole][:PARTS]
        by_path: dict[int, list[str]] = {}
        for path, where, time_ns in shown or listed[:1]:
            by_path.setdefault(path, []).append(self._part(where, time_ns))
        return "; ".join(f"{', '.join(said)}{self._in(path)}" for path, said in by_path.items())

    def _part(self, where: int, time_ns: int) -> str:
        names = self._trace.api_calls.texts("name").values
        place = f"in {names[where]}" if where >= 0 else PLACES[where]
        return f"{units.duration(time_ns)} {place}"

    def _in(self, path: int) -> str:
        return f" in {shortened(range_tree(self._trace).paths[path])}" if path >= 0 else ""

    def _queued(self, number: int) -> str:
        """When queued work was launched, and what it stood behind."""
        said = self._called(number)
        if self._gap.cause[number] == COPY_WAIT and self._is_staged(number):
            return f"{said}; the CPU first moved its {self._bytes(number)} out of pageable memory"
        return f"{said}; {self._behind(number)}"

    def _behind(self, number: int) -> str:
        gap, done = self._gap, operations(self._trace)
        stood = int(gap.behind[number])
        if stood < 0:
            return "first work of its stream; what it waited for was not recorded"
        ended = int(gap.end_ns[number] - done.end_ns[stood])
        name = shortened(label(self._trace, stood), 50)
        which = f"{name}, which ended {units.duration(ended)} earlier"
        if not gap.by_event[number]:
            return f"on its stream behind {which}"
        stream = int(done.streams[done.stream[stood]][3])
        device = self._trace.devices["device_id"][int(done.device[stood])]
        return (
            f"its stream waited for an event; the last work to end before was {which}, on stream "
            f"{stream} of GPU {device}"
        )

    def _is_staged(self, number: int) -> bool:
        return bool(_pageable_upload(self._trace, int(self._gap.after[number]))) and bool(
            self._gap.asked_ns[number] < self._gap.end_ns[number]
        )

    def _bytes(self, number: int) -> str:
        row = int(operations(self._trace).row[self._gap.after[number]])
        return units.quantity("bytes", int(self._trace.copies["bytes"][row]))


def _relative(time_ns: int) -> str:
    """Such as `3.1 µs after`."""
    return f"{units.duration(abs(time_ns))} {'after' if time_ns >= 0 else 'before'}"


def _pageable_upload(trace: Trace, operation: int) -> bool:
    done = operations(trace)
    if done.kind[operation] != Kind.COPY:
        return False
    copies, row = trace.copies, int(done.row[operation])
    return copies.texts("source_memory")[row] == "pageable" and copies.texts("direction")[row] == (
        "H2D"
    )


def _paths(trace: Trace, rows: Integers) -> Integers:
    """Path of each row of the range tree, −1 for none."""
    tree = range_tree(trace)
    return np.where(rows >= 0, tree.path[rows], -1) if len(tree.path) else rows


def _longest_first(
    found: Places, path: Integers, numbers: Integers
) -> dict[int, list[tuple[int, int, int]]]:
    """Path, place and time of the parts of each gap, alike ones together, longest first."""
    each = groups.group(found.gap, path, found.where)
    time = groups.sums(each, found.time_ns)
    result: dict[int, list[tuple[int, int, int]]] = {}
    for group in np.argsort(-time, kind="stable").tolist():
        row = int(each.first[group])
        part = (int(path[row]), int(found.where[row]), int(time[group]))
        result.setdefault(int(numbers[found.gap[row]]), []).append(part)
    return result


def behind_own(found: Gaps, mine: Mask) -> str:
    """How much of it is the step from one operation of a stream to the next."""
    own = mine & (found.behind >= 0) & ~found.by_event
    own &= found.queued_ns <= found.start_ns
    idle = found.idle_ns[own]
    each = f", {units.duration(float(np.median(idle)))} each (median)" if len(idle) else ""
    return (
        f"{units.duration(int(idle.sum()))} between operations of one stream in "
        f"{units.counted(int(own.sum()), 'gap')}{each}"
    )


def most_before(trace: Trace, found: Gaps, mine: Mask) -> str:
    """The range and launch call with most idle time among these gaps."""
    rows = np.flatnonzero(mine & (found.call >= 0))
    if not len(rows):
        return ""
    tree = range_tree(trace)
    path = attributed_operations(trace).path(tree)[found.after[rows]]
    pattern = np.where(path >= 0, tree.path_pattern[path], -1) if len(tree.path_pattern) else path
    each = groups.group(pattern, trace.api_calls.texts("name").codes[found.call[rows]])
    idle = groups.sums(each, found.idle_ns[rows])
    most = int(np.argmax(idle))
    row = int(each.first[most])
    number = int(pattern[row])
    where = f" in {shortened(tree.patterns[number])}" if number >= 0 else ""
    api = trace.api_calls.texts("name")[int(found.call[rows[row]])]
    return f"most of it, {units.duration(int(idle[most]))}, before the work of {api}{where}"


@dataclass(frozen=True)
class Lone:
    """The gap that is most of some idle time, where the others are far shorter."""

    text: str
    share: float


def lone_gap(trace: Trace, mine: Mask) -> Lone | None:
    """That gap of some of one cause and GPU; nothing tells then that a loop repeats it.

    None where there is no such gap, or where one half as long was left out by the selection.
    """
    found = gaps(trace)
    rows = np.flatnonzero(mine)
    idle = found.idle_ns[rows]
    longest = int(np.argmax(idle))
    most, whole = int(idle[longest]), int(idle.sum())
    row, every = rows[longest], every_gap(trace)
    alike = (every.cause == found.cause[row]) & (every.device == found.device[row])
    alike &= ~every.one_time & (2 * every.idle_ns >= most)
    if 2 * most < whole or alike.sum() > 1:
        return None
    tree = range_tree(trace)
    after = found.after[rows[longest : longest + 1]]
    path = int(attributed_operations(trace).path(tree)[after][0])
    where = f"in {shortened(tree.paths[path])}" if path >= 0 else "outside any range"
    much = "it" if len(rows) == 1 else f"{units.duration(most)} of it"
    return Lone(f"{much} is one gap, before work launched {where}", most / whole)


def most_after(trace: Trace, mine: Mask) -> str:
    """The call and range of the synchronization after which these gaps, of gaps, were longest."""
    found, waited, calls = gaps(trace), waits(trace), trace.api_calls
    rows = np.flatnonzero(mine)
    each = groups.group(found.wait[rows])
    idle = groups.sums(each, found.idle_ns[rows])
    most = int(np.argmax(idle))
    wait = int(found.wait[rows[each.first[most]]])
    place = slice(wait, wait + 1)
    tree = range_tree(trace)
    open_then = attribute(
        trace, waited.thread[place], waited.process[place], waited.start_ns[place]
    )
    path = int(open_then.path(tree)[0])
    where = f" in {shortened(tree.paths[path])}" if path >= 0 else ""
    api = calls.texts("name")[int(waited.call[wait])]
    return f"most of it, {units.duration(int(idle[most]))}, after {api}{where}"
