"""Details of the idle gaps of one cause: their call site, the wait before them, a dominant gap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.facts.idle.gaps import Gaps, every_gap, gaps
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import api_calls
from traceview.facts.operations.cuda_graphs import cuda_graphs
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.ranges import attribute, attributed_operations, range_tree
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace

STANDS_OUT, _FEW = 0.75, 3
# A free stream takes a few microseconds to start the next work.
LONG_NS = 100_000
MANY = 3
"""Fewer times, something that was not recorded may have held the work back once."""


class BackToBack(NamedTuple):
    """Gaps between an operation and the next one of its stream; the median is None without any."""

    gaps: int
    idle_ns: int
    median_ns: int | None


def back_to_back(gaps: Gaps, chosen: Mask) -> BackToBack:
    """The chosen gaps that lie between consecutive operations of one stream."""
    own = chosen & (gaps.behind >= 0) & ~gaps.by_event & (gaps.queued_ns <= gaps.start_ns)
    idle = gaps.idle_ns[own]
    median = round(float(np.median(idle))) if len(idle) else None
    return BackToBack(len(idle), int(idle.sum()), median)


def in_graphs(trace: Trace, chosen: Mask) -> Mask:
    """The chosen gaps that lie between two nodes of one launch of a CUDA graph."""
    every, ops = gaps(trace), operations(trace)
    result: Mask = chosen & cuda_graphs(trace).node[every.after]
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
    held: Mask = chosen & ~gaps.by_event & (waited >= LONG_NS)
    return held


class Site(NamedTuple):
    """A call, its range (path or pattern, None outside any) and the idle time due to it."""

    api: str
    range_path: str | None
    idle_ns: int


def longest_launch_site(trace: Trace, chosen: Mask) -> Site | None:
    """The launch call and range pattern with most idle time before their work."""
    every = gaps(trace)
    rows = np.flatnonzero(chosen & (every.call >= 0))
    if not len(rows):
        return None
    tree, names = range_tree(trace), trace.api_calls.texts("name")
    path = attributed_operations(trace).path(tree)[every.after[rows]]
    pattern = tree.pattern_of_paths(path)
    each = groups.group(pattern, names.codes[every.call[rows]])
    idle = groups.sums(each, every.idle_ns[rows])
    most = int(np.argmax(idle))
    row = int(each.first[most])
    where = int(pattern[row])
    api = str(names[int(every.call[rows[row]])])
    return Site(api, tree.patterns[where] if where >= 0 else None, int(idle[most]))


def longest_wait_site(trace: Trace, chosen: Mask) -> Site:
    """The synchronization with most idle time after it, and the range in which it was called."""
    every = gaps(trace)
    rows = np.flatnonzero(chosen)
    each = groups.group(every.wait[rows])
    idle = groups.sums(each, every.idle_ns[rows])
    most = int(np.argmax(idle))
    call = int(waits(trace).call[every.wait[rows[each.first[most]]]])
    name, path = _called(trace, np.array([call]))
    tree, where = range_tree(trace), int(path[0])
    api = str(trace.api_calls.texts("name").values[int(name[0])])
    return Site(api, tree.paths[where] if where >= 0 else None, int(idle[most]))


def longest_call_site(trace: Trace, chosen: Mask) -> Site | None:
    """The call that threads spent most of the idle time in, and the range pattern around it."""
    every, tree = gaps(trace), range_tree(trace)
    rows = np.flatnonzero(chosen & (every.within >= 0))
    if not len(rows):
        return None
    name, path = _called(trace, every.within[rows])
    pattern = tree.pattern_of_paths(path)
    each = groups.group(pattern, name)
    idle = groups.sums(each, every.idle_ns[rows])
    most = int(np.argmax(idle))
    row = int(each.first[most])
    api = str(trace.api_calls.texts("name").values[int(name[row])])
    where = int(pattern[row])
    return Site(api, tree.patterns[where] if where >= 0 else None, int(idle[most]))


def _called(trace: Trace, call: Array) -> tuple[Array, Array]:
    """The name of some API calls, as a code, and the range path around them."""
    calls, table = api_calls(trace), trace.api_calls
    place = attribute(trace, calls.thread[call], table["process"][call], calls.start_ns[call])
    path: Array = place.path(range_tree(trace))
    return table.texts("name").codes[call], path


class LoneGap(NamedTuple):
    """A gap that is most of some idle time; `range_path` is that of the work that ended it."""

    range_path: str | None
    idle_ns: int
    fraction: float


def lone_gap(trace: Trace, chosen: Mask) -> LoneGap | None:
    """The gap that makes up most of the chosen gaps, which are of one cause and GPU.

    Nothing shows then that a loop repeats the gap. None if there is no such gap, or if the
    selection left out another gap at least half as long.
    """
    own, every = gaps(trace), every_gap(trace)
    rows = np.flatnonzero(chosen)
    idle = own.idle_ns[rows]
    row = int(rows[np.argmax(idle)])
    longest, total = int(idle.max()), int(idle.sum())
    alike = (every.cause == own.cause[row]) & (every.device == own.device[row])
    alike &= ~every.one_time & (2 * every.idle_ns >= longest)
    if 2 * longest < total or alike.sum() > 1:
        return None
    tree = range_tree(trace)
    path = int(attributed_operations(trace).path(tree)[own.after[row : row + 1]][0])
    return LoneGap(tree.paths[path] if path >= 0 else None, longest, longest / total)


class FewGaps(NamedTuple):
    """The fewest gaps that make up nearly all of some idle time."""

    gaps: int
    idle_ns: int


def few_gaps(idle_ns: Integers) -> FewGaps | None:
    """The at most three gaps that are nearly all of these times; None if it takes more, or all."""
    longest = np.sort(idle_ns)[::-1][:_FEW]
    total = np.cumsum(longest)
    enough = np.flatnonzero(total >= STANDS_OUT * int(idle_ns.sum()))
    if not len(enough) or len(idle_ns) <= _FEW:
        return None
    return FewGaps(int(enough[0]) + 1, int(total[enough[0]]))
