"""Steps: the outermost ranges that repeat, and when the GPU did their work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations import operations
from traceview.facts.ranges import RangeTree, pattern_of, range_tree
from traceview.facts.selection import selected_operations
from traceview.tables import Array, Integers, object_array
from traceview.trace import Trace, fact

WARMED_UP_STEPS = 3
"""With so many steps the first one counts as set-up."""


@dataclass(frozen=True)
class Steps:
    """One row an instance, sorted by series and start.

    `series` numbers the instances of one pattern (`step_#`) on one thread; `pattern` names it.
    `gpu_start_ns` and `gpu_end_ns` are those of the work launched in the instance, 0 where
    `operations` is 0.
    """

    range: Integers
    series: Integers
    process: Array
    pattern: Array
    name: Array
    cpu_start_ns: Integers
    cpu_end_ns: Integers
    gpu_start_ns: Integers
    gpu_end_ns: Integers
    operations: Integers

    def __len__(self) -> int:
        return len(self.range)


@fact
def steps(trace: Trace) -> Steps:
    """Instances of the ranges that repeat, numbers aside, at the outermost level of each thread.

    Where some of these series launched GPU work, the others are left out: a communication or
    data-loading thread repeats ranges too.
    """
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name")
    pattern = names.map([pattern_of(name) for name in names.values])
    rows = _outermost_repeated(tree, pattern.codes[tree.row])
    first, last, work = _work(trace, tree, rows)
    code = pattern.codes[tree.row[rows]]
    series = groups.group(tree.nesting.track[rows], code)
    working = groups.sums(series, work) > 0
    kept = np.flatnonzero(working[series.ids] | ~working.any()) if len(rows) else rows
    kept = kept[np.lexsort((tree.nesting.start[rows[kept]], series.ids[kept]))]
    chosen = rows[kept]
    return Steps(
        range=chosen,
        series=series.ids[kept],
        process=tree.process[chosen],
        pattern=pattern.values[code[kept]] if len(kept) else object_array([]),
        name=names.values[names.codes[tree.row[chosen]]] if len(kept) else object_array([]),
        cpu_start_ns=tree.nesting.start[chosen],
        cpu_end_ns=tree.nesting.end[chosen],
        gpu_start_ns=first[kept],
        gpu_end_ns=last[kept],
        operations=work[kept],
    )


def _outermost_repeated(tree: RangeTree, pattern: Array) -> Integers:
    """Of each thread, the ranges of the least depth at which a pattern occurs twice."""
    depth, track = tree.nesting.depth, tree.nesting.track
    found = groups.group(track, depth, pattern)
    repeats = (np.bincount(found.ids, minlength=found.size) > 1)[found.ids]
    least = np.full(int(track.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, track[repeats], depth[repeats])
    result: Integers = np.flatnonzero(repeats & (depth == least[track]))
    return result


def _work(trace: Trace, tree: RangeTree, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """First start, last end and number of the operations launched during each instance.

    Instances of one thread that overlap without nesting share nothing: work belongs to the one
    that started last.
    """
    done = operations(trace)
    calls = trace.recorded("api_calls")
    known = np.flatnonzero(done.launched)
    made, thread = (
        calls[name][done.call[known]] if len(calls) else known for name in ("start_ns", "thread")
    )
    # A thread with ranges of its own works for these; one without, for whichever are open.
    tied = np.isin(thread, tree.nesting.track[rows])
    first = np.full(len(rows), np.iinfo(np.int64).max)
    last = np.full(len(rows), np.iinfo(np.int64).min)
    number = np.zeros(len(rows), np.int64)
    for track in np.unique(tree.nesting.track[rows]):
        mine = np.flatnonzero(tree.nesting.track[rows] == track)
        start, end = tree.nesting.start[rows[mine]], tree.nesting.end[rows[mine]]
        place = np.searchsorted(start, made, side="right") - 1
        within = (place >= 0) & (made < end[np.maximum(place, 0)])
        within &= done.process[known] == tree.process[rows[mine[0]]]
        within &= ~tied | (thread == track)
        which, work = mine[place[within]], known[within]
        np.minimum.at(first, which, done.start_ns[work])
        np.maximum.at(last, which, done.end_ns[work])
        np.add.at(number, which, 1)
    none = number == 0
    first[none] = last[none] = 0
    return first, last, number


@fact
def set_up_end_ns(trace: Trace) -> int:
    """Start of the steady part; what comes before is set-up.

    That is the start of the second of three or more steps, since the first one loads code and
    fills caches, else of the first. Without steps nothing counts as set-up; nor does it where
    nothing but set-up was selected.
    """
    found = steps(trace)
    work = found.operations > 0
    never = int(np.iinfo(np.int64).min)
    if not work.any():
        return never
    series = found.series == found.series[work][np.argmin(found.cpu_start_ns[work])]
    begun = np.sort(found.cpu_start_ns[work & series])
    end = int(begun[1 if len(begun) >= WARMED_UP_STEPS else 0])
    last = operations(trace).start_ns[selected_operations(trace)].max(initial=never)
    return end if last >= end else never


def steps_ahead(found: Steps) -> Integers:
    """Steps of the same series that the CPU has begun beyond each when its GPU work starts."""
    ahead = np.zeros(len(found), np.int64)
    for each in np.unique(found.series):
        mine = np.flatnonzero(found.series == each)
        begun = np.searchsorted(found.cpu_start_ns[mine], found.gpu_start_ns[mine], side="right")
        ahead[mine] = np.maximum(begun - 1 - np.arange(len(mine)), 0)
    return ahead
