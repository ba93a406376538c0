"""Steps: the outermost ranges that repeat, and when the GPU did their work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations import operations
from traceview.facts.ranges import RangeTree, pattern_of, range_tree
from traceview.tables import Array, Integers, object_array
from traceview.trace import Trace, fact


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
    """Instances of the outermost level of ranges at which some name repeats, numbers aside."""
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name")
    pattern = names.map([pattern_of(name) for name in names.values])
    rows = _outermost_repeated(tree, pattern.codes[tree.row])
    code = pattern.codes[tree.row[rows]]
    series = groups.group(tree.nesting.track[rows], code)
    order = np.lexsort((tree.nesting.start[rows], series.ids))
    rows, number = rows[order], series.ids[order]
    start, end = tree.nesting.start[rows], tree.nesting.end[rows]
    gpu_start, gpu_end, work = _work(trace, number, tree.process[rows], start, end)
    return Steps(
        range=rows,
        series=number,
        process=tree.process[rows],
        pattern=pattern.values[code[order]] if len(rows) else object_array([]),
        name=names.values[names.codes[tree.row[rows]]] if len(rows) else object_array([]),
        cpu_start_ns=start,
        cpu_end_ns=end,
        gpu_start_ns=gpu_start,
        gpu_end_ns=gpu_end,
        operations=work,
    )


def _outermost_repeated(tree: RangeTree, pattern: Array) -> Integers:
    """Ranges of the least depth at which a pattern occurs twice on a thread."""
    depth = tree.nesting.depth
    for level in range(int(depth.max()) + 1 if len(depth) else 0):
        mine = np.flatnonzero(depth == level)
        found = groups.group(tree.nesting.track[mine], pattern[mine])
        often = np.bincount(found.ids, minlength=found.size) > 1
        if often.any():
            result: Integers = mine[often[found.ids]]
            return result
    return np.zeros(0, np.int64)


def _work(
    trace: Trace, series: Integers, process: Array, start: Integers, end: Integers
) -> tuple[Integers, Integers, Integers]:
    """First start, last end and number of the operations launched during each instance."""
    done = operations(trace)
    calls = trace.recorded("api_calls")
    known = np.flatnonzero(done.launched)
    made = calls["start_ns"][done.call[known]] if len(calls) else known
    first = np.full(len(start), np.iinfo(np.int64).max)
    last = np.full(len(start), np.iinfo(np.int64).min)
    number = np.zeros(len(start), np.int64)
    for each in np.unique(series):
        mine = np.flatnonzero(series == each)
        place = np.searchsorted(start[mine], made, side="right") - 1
        within = (place >= 0) & (made < end[mine][np.maximum(place, 0)])
        within &= done.process[known] == process[mine[0]]
        which, work = mine[place[within]], known[within]
        np.minimum.at(first, which, done.start_ns[work])
        np.maximum.at(last, which, done.end_ns[work])
        np.add.at(number, which, 1)
    none = number == 0
    first[none] = last[none] = 0
    return first, last, number


def steps_ahead(found: Steps) -> Integers:
    """Steps of the same series that the CPU has begun beyond each when its GPU work starts."""
    ahead = np.zeros(len(found), np.int64)
    for each in np.unique(found.series):
        mine = np.flatnonzero(found.series == each)
        begun = np.searchsorted(found.cpu_start_ns[mine], found.gpu_start_ns[mine], side="right")
        ahead[mine] = np.maximum(begun - 1 - np.arange(len(mine)), 0)
    return ahead
