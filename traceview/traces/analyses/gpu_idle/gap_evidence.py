"""The evidence for the cause of idle gaps: times, calls and ranges to look up, and what most
of them share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.base import groups, units
from traceview.base.findings import shortened
from traceview.base.tables import Array, Integers, Mask
from traceview.base.vocabulary.causes import COPY_WAIT, DEPENDENCY, PROFILER, SYNC_DRAIN
from traceview.traces.facts import copies, kernel_classes, launches
from traceview.traces.facts.idle import causes, cpu_activity
from traceview.traces.facts.idle.gaps import Gaps, every_gap, gaps
from traceview.traces.facts.operations import CallKind, Kind, api_calls, first_launches, operations
from traceview.traces.facts.ranges.ranges import attribute, attributed_operations, range_tree
from traceview.traces.trace import Trace

# Words for what a thread did in idle gaps, and for operations.

_ACTIVITIES = {
    cpu_activity.OUTSIDE_CUDA: ("outside CUDA", "outside CUDA"),
    cpu_activity.IN_FLIGHT: ("launch in flight", "with the launch in flight"),
    cpu_activity.QUEUE_FULL: ("launch queue full", "at a full launch queue"),
    cpu_activity.OFF_CPU: ("off the CPU", "off the CPU"),
}
"""What a thread did other than a CUDA call: a cell, and the clause in `spent 3 ms outside CUDA`."""


def activity_name(trace: Trace, activity: int) -> str:
    """A cell for what a thread did: the name of a CUDA call, or one of _ACTIVITIES."""
    return _ACTIVITIES[activity][0] if activity < 0 else _api(trace, activity)


def activity_clause(trace: Trace, activity: int) -> str:
    """The clause on a thread's activity, to follow a length of time."""
    return _ACTIVITIES[activity][1] if activity < 0 else f"in {_api(trace, activity)}"


def _api(trace: Trace, code: int) -> str:
    return str(trace.recorded("api_calls").texts("name").values[code])


def operation_name(trace: Trace, operation: int) -> str:
    """The name of an operation: the label of a kernel, or its kind."""
    ops = operations(trace)
    kind, row = int(ops.kind[operation]), int(ops.row[operation])
    if kind == Kind.KERNEL:
        return str(kernel_classes.kernel_labels(trace)[row])
    if kind == Kind.COPY:
        return f"{trace.copies.texts('direction')[row]} copy"
    return "memset" if kind == Kind.SET else "CUDA graph"


MOST_PARTS = 3
"""The number of parts named, longest first."""
LEAST_FRACTION = 0.05
"""Parts with less of the gap than this are left out."""


class PartTime(NamedTuple):
    """Time of a gap that a thread spent in one range (a path, −1: none) and CPU activity."""

    thread: int
    path: int
    activity: int
    time_ns: int


class GapEvidence:
    """Texts of the evidence for whole gaps, by their place among these."""

    def __init__(self, trace: Trace, whole: Gaps) -> None:
        self._trace, self._gaps = trace, whole
        every = gaps(trace)
        place = {gap: number for number, gap in enumerate(whole.gap.tolist())}
        rows = np.flatnonzero(groups.isin(every.gap, whole.gap))
        self._parts: dict[int, list[PartTime]] = {}
        for pieces in cpu_activity.cpu_activity(trace, rows):
            path = range_tree(trace).path_of_ranges(pieces.range)
            thread = int(every.thread[pieces.row[0]])
            each = groups.group(every.gap[pieces.row], path, pieces.activity)
            for row, time_ns in zip(
                each.first.tolist(), groups.sums(each, pieces.duration_ns).tolist(), strict=True
            ):
                number = place[int(every.gap[pieces.row[row]])]
                part = PartTime(thread, int(path[row]), int(pieces.activity[row]), time_ns)
                self._parts.setdefault(number, []).append(part)
        for parts in self._parts.values():
            parts.sort(key=lambda part: -part.time_ns)
        self._waited_ns: dict[int, dict[int, int]] = {}
        for row in rows[~np.isin(every.cause[rows], cpu_activity.CPU_CAUSES)].tolist():
            by_cause = self._waited_ns.setdefault(place[int(every.gap[row])], {})
            cause = int(every.cause[row])
            by_cause[cause] = by_cause.get(cause, 0) + int(every.idle_ns[row])

    def text(self, number: int) -> str:
        """Sentences that show why the gap has its cause, and name its longest parts."""
        cause = int(self._gaps.cause[number])
        if cause in (DEPENDENCY, COPY_WAIT):
            return f"{self._called(number)}. {self._queued(number, cause)}{self._spent(number)}"
        if cause not in cpu_activity.CPU_CAUSES:
            return "The launch call of the next work was not recorded."
        if cause == PROFILER:
            return self._profiler(number)
        opening = self._drain(number) if cause == SYNC_DRAIN else self._late(number)
        return f"{opening}{self._spent(number)}{self._waited(number)}"

    def call(self, number: int) -> str | None:
        """The API call that the cause rests on."""
        gaps, cause = self._gaps, int(self._gaps.cause[number])
        if cause == SYNC_DRAIN:
            return self._api(int(launches.waits(self._trace).call[gaps.wait[number]]))
        call = int(gaps.within[number]) if cause in cpu_activity.CPU_CAUSES else -1
        call = call if call >= 0 else int(gaps.call[number])
        return self._api(call) if call >= 0 else None

    def _api(self, call: int) -> str:
        return str(self._trace.api_calls.texts("name")[call])

    def _thread(self, number: int) -> str:
        """Id of the launching thread."""
        thread = int(self._gaps.thread[number])
        return str(self._trace.threads["thread_id"][thread])

    def _called(self, number: int) -> str:
        gaps = self._gaps
        when = _relative(int(gaps.issued_ns[number] - gaps.start_ns[number]))
        return f"{self._api(int(gaps.call[number]))} was called {when} the GPU ran dry"

    def _late(self, number: int) -> str:
        """When the launch call was made, and the last wait of its thread around that."""
        first = first_launches(self._trace)[self._gaps.after[number]]
        what = " (first launch of its kernel)" if first else ""
        # The synchronization that the launching thread left in the gap or shortly before it.
        gaps, waited = self._gaps, launches.waits(self._trace)
        own = (waited.thread == gaps.thread[number]) & (waited.does == CallKind.SYNCHRONIZE)
        near = gaps.start_ns[number] - gaps.idle_ns[number]
        own &= (waited.end_ns <= gaps.issued_ns[number]) & (waited.end_ns >= near)
        rows = np.flatnonzero(own)
        wait = int(rows[np.argmax(waited.end_ns[rows])]) if len(rows) else None
        returned = f" {self._returned(wait, number)}." if wait is not None else ""
        return f"{self._called(number)}{what}.{returned}"

    def _drain(self, number: int) -> str:
        wait = int(self._gaps.wait[number])
        thread = self._trace.threads["thread_id"][int(launches.waits(self._trace).thread[wait])]
        return f"{self._returned(wait, number)}, on thread {thread}."

    def _returned(self, wait: int, number: int) -> str:
        waited = launches.waits(self._trace)
        took = units.duration(int(waited.end_ns[wait] - waited.start_ns[wait]))
        when = _relative(int(waited.end_ns[wait] - self._gaps.start_ns[number]))
        return f"{self._api(int(waited.call[wait]))} ({took}) returned {when} the GPU ran dry"

    def _profiler(self, number: int) -> str:
        """A clause on the longest overhead of the profiler on the launching thread."""
        gaps, overheads = self._gaps, self._trace.overheads
        start, end = int(gaps.start_ns[number]), int(gaps.end_ns[number])
        own = causes.profiler_overheads(self._trace) & (overheads["thread"] == gaps.thread[number])
        time = np.minimum(overheads["end_ns"], end) - np.maximum(overheads["start_ns"], start)
        row = int(np.argmax(np.where(own, time, -1)))
        name, took = shortened(overheads.texts("name")[row], 60), units.duration(int(time[row]))
        return (
            f"The profiler ({name!r}) held thread {self._thread(number)} up for {took} of the gap."
        )

    def _spent(self, number: int) -> str:
        """A sentence per thread on the longest parts of its time in the gap, by range."""
        parts = self._parts.get(number, [])
        shown = [part for part in parts if self._is_much(part.time_ns, number)][:MOST_PARTS]
        if not shown and int(self._gaps.cause[number]) in cpu_activity.CPU_CAUSES:
            shown = parts[:1]
        by_thread: dict[int, dict[int, list[str]]] = {}
        for part in shown:
            text = f"{units.duration(part.time_ns)} {activity_clause(self._trace, part.activity)}"
            by_thread.setdefault(part.thread, {}).setdefault(part.path, []).append(text)
        sentences = []
        for thread, by_path in by_thread.items():
            times = (f"{', '.join(texts)}{self._in(path)}" for path, texts in by_path.items())
            name = self._trace.threads["thread_id"][thread]
            sentences.append(f" Thread {name} spent {', '.join(times)}.")
        return "".join(sentences)

    def _waited(self, number: int) -> str:
        """Sentences on the time that the work then waited on the GPU, if that is much."""
        by_cause = self._waited_ns.get(number, {})
        waited_ns = sum(by_cause.values())
        if not waited_ns or not self._is_much(waited_ns, number):
            return ""
        queued = self._queued(number, max(by_cause, key=lambda cause: by_cause[cause]))
        return f" Once launched, the work waited for {units.duration(waited_ns)}. {queued}"

    def _is_much(self, time_ns: int, number: int) -> bool:
        return time_ns >= LEAST_FRACTION * int(self._gaps.idle_ns[number])

    def _in(self, path: int) -> str:
        if path < 0:
            return ""
        return f" in {shortened(units.quantity('range_path', range_tree(self._trace).paths[path]))}"

    def _queued(self, number: int, cause: int) -> str:
        """A sentence on why work that was queued in time waited."""
        gaps, after = self._gaps, int(self._gaps.after[number])
        uploads = cause == COPY_WAIT and copies.pageable_uploads(self._trace)[after]
        if uploads and gaps.issued_ns[number] < gaps.end_ns[number]:
            size = units.size(int(self._trace.copies["bytes"][operations(self._trace).row[after]]))
            return f"The CPU first moved its {size} out of pageable memory."
        if gaps.behind[number] < 0:
            return "It was the first work of its stream; what it waited for was not recorded."
        return self._behind(number, int(gaps.behind[number]))

    def _behind(self, number: int, operation: int) -> str:
        """The operation that the work waited behind, on its stream or through an event."""
        ops = operations(self._trace)
        if ops.end_ns[operation] <= self._gaps.issued_ns[number]:
            return "Its stream was free; what it waited for was not recorded."
        ended = units.duration(int(self._gaps.end_ns[number] - ops.end_ns[operation]))
        name = shortened(operation_name(self._trace, operation), 50)
        if not self._gaps.by_event[number]:
            return f"Its stream was busy with {name} until {ended} before the work started."
        stream = int(ops.streams[ops.stream[operation]][3])
        device = self._trace.devices["device_id"][int(ops.device[operation])]
        return (
            f"Its stream waited for an event; the last work to end before it started was {name} on "
            f"stream {stream} of GPU {device}, {ended} earlier."
        )


def _relative(time_ns: int) -> str:
    """A text such as `3.1 µs after`."""
    return f"{units.duration(abs(time_ns))} {'after' if time_ns >= 0 else 'before'}"


STANDS_OUT = 0.75
# A free stream takes a few microseconds to start the next work.
LONG_NS = 100_000
MANY = 3
"""Fewer times, something that was not recorded may have held the work back once."""


def in_graphs(trace: Trace, chosen: Mask) -> Mask:
    """The chosen gaps that lie between two nodes of one launch of a CUDA graph."""
    every, ops = gaps(trace), operations(trace)
    result: Mask = chosen & launches.cuda_graphs(trace).node[every.after]
    result &= ops.call[every.before] == ops.call[every.after]
    return result & (ops.call[every.after] >= 0)


def started_late(trace: Trace, held: Mask) -> Integers:
    """How long after its launch the work of held-back gaps began, where its stream was free.

    Only other programs on the GPU, or the driver, can hold it up then.
    """
    every, ops = gaps(trace), operations(trace)
    rows = np.flatnonzero(held & (every.call >= 0))
    behind = every.behind[rows]
    free = (behind < 0) | (ops.end_ns[behind] <= every.issued_ns[rows])
    rows = rows[free]
    return every.end_ns[rows] - every.queued_ns[rows]


def held_back(gaps: Gaps, chosen: Mask) -> Mask:
    """The chosen gaps in which launched work waited long, but for no other work and no event."""
    waited = gaps.end_ns - np.maximum(gaps.start_ns, gaps.queued_ns)
    return chosen & ~gaps.by_event & (waited >= LONG_NS)


class Site(NamedTuple):
    """A call, its range (path or pattern, None outside any) and the idle time due to it."""

    api: str
    range_path: str | None
    idle_ns: int


def longest_launch_site(trace: Trace, chosen: Mask) -> Site | None:
    """The launch call and range pattern with most idle time before their work."""
    every, tree = gaps(trace), range_tree(trace)
    rows = np.flatnonzero(chosen & (every.call >= 0))
    path = attributed_operations(trace).path(tree)[every.after[rows]]
    return _longest_site(trace, rows, every.call[rows], tree.pattern_of_paths(path))


def longest_call_site(trace: Trace, chosen: Mask) -> Site | None:
    """The call that threads spent most of the idle time in, and the range pattern around it."""
    within = gaps(trace).within
    rows = np.flatnonzero(chosen & (within >= 0))
    pattern = range_tree(trace).pattern_of_paths(path_of_calls(trace, within[rows]))
    return _longest_site(trace, rows, within[rows], pattern)


def longest_wait_site(trace: Trace, chosen: Mask) -> Site:
    """The synchronization with most idle time after it, and the range in which it was called."""
    every, tree = gaps(trace), range_tree(trace)
    rows = np.flatnonzero(chosen)
    each = groups.group(every.wait[rows])
    idle = groups.sums(each, every.idle_ns[rows])
    call = launches.waits(trace).call[every.wait[rows[each.first[[np.argmax(idle)]]]]]
    [where], [api] = path_of_calls(trace, call), trace.api_calls.texts("name").take(call).decode()
    return Site(str(api), tree.paths[int(where)] if where >= 0 else None, int(idle.max()))


def waits_before(trace: Trace, chosen: Mask) -> tuple[int, int, Site | None]:
    """How many of these gaps begin with a wait of the CPU, their time, and where most waits are."""
    every = gaps(trace)
    idle_ns = groups.added(every.gap[chosen], every.idle_ns[chosen], int(every.gap.max()) + 1)
    rows = np.flatnonzero((every.cause == SYNC_DRAIN) & (idle_ns[every.gap] > 0))
    rows = rows[np.unique(every.gap[rows], return_index=True)[1]]
    call, after_ns = launches.waits(trace).call[every.wait[rows]], idle_ns[every.gap[rows]]
    pattern = range_tree(trace).pattern_of_paths(path_of_calls(trace, call))
    return len(rows), int(after_ns.sum()), _longest_site(trace, rows, call, pattern, after_ns)


def _longest_site(
    trace: Trace, rows: Array, call: Array, pattern: Array, idle_ns: Integers | None = None
) -> Site | None:
    """The name of a call and the pattern of a range that have most of the idle time together."""
    if not len(rows):
        return None
    names = trace.api_calls.texts("name")
    each = groups.group(pattern, names.codes[call])
    idle = groups.sums(each, gaps(trace).idle_ns[rows] if idle_ns is None else idle_ns)
    row = int(each.first[np.argmax(idle)])
    where, api = int(pattern[row]), str(names[int(call[row])])
    return Site(api, range_tree(trace).patterns[where] if where >= 0 else None, int(idle.max()))


def path_of_calls(trace: Trace, call: Array) -> Array:
    """The range path around some API calls (rows of api_calls), −1 outside of ranges."""
    calls, process = api_calls(trace), trace.api_calls["process"][call]
    place = attribute(trace, calls.thread[call], process, calls.start_ns[call])
    return place.path(range_tree(trace))


class LoneGap(NamedTuple):
    """A gap that is most of some idle time; `range_path` is that of the work that ended it.

    `idle_ns` is its time of the cause, and `whole_ns` all of it, of other causes as well.
    """

    range_path: str | None
    idle_ns: int
    fraction: float
    whole_ns: int


def lone_gap(trace: Trace, chosen: Mask, *, part: bool = False) -> LoneGap | None:
    """The gap that makes up most of the chosen gaps, which are of one cause and GPU.

    Nothing shows then that a loop repeats the gap. None if there is no such gap, or if another gap
    of the cause is at least half as long, also one that the selection left out. With `part`, the
    chosen gaps are those in which the CPU did one thing, and others of the cause tell nothing; the
    calls in between cut no gap then, as where a library starts.
    """
    own, every = gaps(trace), every_gap(trace)
    rows = np.flatnonzero(chosen)
    each = groups.group(own.gap[rows] if part else rows)
    idle = groups.sums(each, own.idle_ns[rows])
    row = int(rows[each.first[np.argmax(idle)]])
    longest, total = int(idle.max()), int(idle.sum())
    alike = (every.cause == own.cause[row]) & (every.device == own.device[row])
    alike &= ~every.one_time & (2 * every.idle_ns >= longest)
    whole = len(own) == len(every)
    others = int(np.count_nonzero(2 * idle >= longest) if part and whole else alike.sum())
    if 2 * longest < total or others > 1:
        return None
    tree = range_tree(trace)
    path = int(attributed_operations(trace).path(tree)[own.after[row : row + 1]][0])
    whole_ns = int(own.idle_ns[own.gap == own.gap[row]].sum())
    return LoneGap(tree.paths[path] if path >= 0 else None, longest, longest / total, whole_ns)
