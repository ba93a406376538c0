"""Steps: the outermost ranges that repeat, when the GPU did their work, how long each took.

A CPU that runs ahead of the GPU issues its steps in no time, so a step that has GPU work is timed
where that work ends: it lasts from the end of the step before it to the end of its own work. So the
steps of a series follow each other without a gap, and idle time counts in the step that ends it.
The first step of a loop begins where the CPU begins it. A step without GPU work lasts as long
as its range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations import operations
from traceview.facts.ranges import (
    attributed_calls,
    attributed_operations,
    borrowed,
    pattern_of,
    range_tree,
)
from traceview.facts.selection import selected_operations
from traceview.facts.series import step_ranges
from traceview.tables import Array, Integers, Mask, RowNumbers, object_array
from traceview.trace import Trace, fact

WARMED_UP_STEPS = 3
"""With so many steps the first one counts as set-up, and warm-up can be told from the rest."""
COMPARABLE_STEPS = 5
"""Of so many steps after warm-up one can be called unlike the others."""
MANY_DEVIATIONS, LEAST_EXCESS = 5.0, 0.10
"""A step is unlike the others if it exceeds their median by five standard deviations, estimated
from the median absolute deviation (MAD), and by a tenth."""
DEVIATIONS_PER_MAD = 1.4826
"""Of a normal distribution."""


@dataclass(frozen=True)
class Steps:
    """One row an instance, sorted by series and start.

    `range` is its row in the range tree. `series` numbers the instances of one pattern (`step_#`)
    on one thread; `pattern` names it. `gpu_start_ns` and `gpu_end_ns` are those of the work
    launched in the instance, 0 where `operations` is 0.
    """

    range: Integers
    series: Integers
    process: Array
    thread: Array
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
    """Instances of the ranges that are steps; see `series` for which these are."""
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name")
    rows, series = _instances(trace)
    code = names.codes[tree.row[rows]]
    patterns = object_array([pattern_of(str(name)) for name in names.values])
    first, last, number = _work(trace, rows)
    return Steps(
        range=rows,
        series=series,
        process=tree.process[rows],
        thread=tree.nesting.track[rows],
        pattern=patterns[code],
        name=names.values[code] if len(rows) else object_array([]),
        cpu_start_ns=tree.nesting.start[rows],
        cpu_end_ns=tree.nesting.end[rows],
        gpu_start_ns=first,
        gpu_end_ns=last,
        operations=number,
    )


@fact
def _instances(trace: Trace) -> tuple[Integers, Integers]:
    """Rows of the range tree that are steps, sorted by series and start, and the series of each."""
    tree, rows = range_tree(trace), step_ranges(trace)
    series = groups.group(tree.nesting.track[rows], tree.path_pattern[tree.path[rows]])
    order = np.lexsort((tree.nesting.start[rows], series.ids))
    return rows[order], series.ids[order]


def _work(trace: Trace, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """First start, last end and number of the operations launched during each instance."""
    done = operations(trace)
    step = step_of_operations(trace)
    work = np.flatnonzero(step >= 0)
    first = np.full(len(rows), np.iinfo(np.int64).max)
    last = np.full(len(rows), np.iinfo(np.int64).min)
    np.minimum.at(first, step[work], done.start_ns[work])
    np.maximum.at(last, step[work], done.end_ns[work])
    number = np.bincount(step[work], minlength=len(rows)).astype(np.int64)
    none = number == 0
    first[none] = last[none] = 0
    return first, last, number


@fact
def step_of_operations(trace: Trace) -> RowNumbers:
    """For each operation the step it was launched in, as a row of steps, or −1."""
    done = operations(trace)
    return _step_at(trace, attributed_operations(trace).range, done.call)


def step_of_calls(trace: Trace, call: Array) -> RowNumbers:
    """For rows of api_calls the step that each was made in, as a row of steps, or −1."""
    return _step_at(trace, attributed_calls(trace).range[call], call)


def _step_at(trace: Trace, found: RowNumbers, call: Array) -> RowNumbers:
    """The step around the range that was found for each call, else the one open elsewhere.

    The step around a range is the one around what was launched in it, inferred or not. What a
    thread without steps launches in ranges of its own is for the step that the main thread is in;
    what a thread with steps launches in ranges beside these is in none.
    """
    tree, calls = range_tree(trace), trace.recorded("api_calls")
    rows, _ = _instances(trace)
    if not len(rows):
        return np.full(len(found), -1, np.int32)
    number = np.full(len(tree.row), -1, np.int32)
    number[rows] = np.arange(len(rows))
    step = tree.up(number)
    result = np.where(found >= 0, step[found], -1)
    asked = np.flatnonzero((result < 0) & (call >= 0))
    own = groups.different(tree.nesting.track[rows])
    asked = asked[~np.isin(calls["thread"][call[asked]], own)]
    made = call[asked]
    result[asked] = borrowed(trace, step, calls["process"][made], calls["start_ns"][made])
    return result


@dataclass(frozen=True)
class Pace:
    """How long each step took; one entry a row of steps.

    `begin_ns` to `end_ns` is its time. `timed` is False for a step without GPU work among others
    that have some. `warm_up` are the steps at the beginning of a series that are unlike the
    later ones, `outlier` those after it that are unlike the others; both only ever take longer.
    `median_ns` is that of the steps of the series after warm-up; an outlier exceeds `limit_ns`.
    """

    begin_ns: Integers
    end_ns: Integers
    timed: Mask
    warm_up: Mask
    outlier: Mask
    median_ns: Integers
    limit_ns: Integers

    @property
    def took_ns(self) -> Integers:
        return self.end_ns - self.begin_ns


@fact
def pace(trace: Trace) -> Pace:
    """The time of each step, and which steps are unlike the others of their series."""
    found = steps(trace)
    begin, end = found.cpu_start_ns.copy(), found.cpu_end_ns.copy()
    warm_up, outlier, timed = (np.zeros(len(found), bool) for _ in range(3))
    median, limit = (np.zeros(len(found), np.int64) for _ in range(2))
    for rows in series_of(found):
        working = rows[found.operations[rows] > 0]
        if len(working):
            begin[working], end[working] = _times(trace, found, working)
            rows_timed = working
        else:
            rows_timed = rows
        timed[rows_timed] = True
        took = (end - begin)[rows_timed]
        early, median[rows], limit[rows] = _usual(took)
        warm_up[rows_timed[:early]] = True
        if len(took) - early >= COMPARABLE_STEPS:
            outlier[rows_timed[early:]] = took[early:] > limit[rows[0]]
    return Pace(begin, end, timed, warm_up, outlier, median, limit)


def series_of(found: Steps) -> list[Integers]:
    """The rows of each series, in order of start."""
    edges = np.flatnonzero(np.diff(found.series)) + 1
    return [rows for rows in np.split(np.arange(len(found)), edges) if len(rows)]


def _times(trace: Trace, found: Steps, rows: Integers) -> tuple[Integers, Integers]:
    """Begin and end of the steps of one series that have GPU work."""
    end = np.maximum.accumulate(found.gpu_end_ns[rows])
    before = np.concatenate((end[:1], end[:-1]))
    around = range_tree(trace).parent[found.range[rows]]
    first = np.concatenate(([True], around[1:] != around[:-1]))
    started = np.minimum(found.cpu_start_ns[rows], found.gpu_start_ns[rows])
    later = np.where(np.arange(len(rows)) > 0, np.maximum(before, started), started)
    return np.minimum(np.where(first, later, before), end), end


def _usual(took: Integers) -> tuple[int, int, int]:
    """How many steps at the beginning are warm-up, the median of the others, and their limit.

    The later half is what steps are when warm; only steps of the first half can be warm-up.
    """
    early = 0
    if len(took) >= WARMED_UP_STEPS:
        _, limit = _limit(took[len(took) // 2 :])
        early = int(np.argmin(np.append(took[: len(took) // 2] > limit, False)))
    return early, *_limit(took[early:])


def _limit(took: Integers) -> tuple[int, int]:
    """Median of some durations, and what a like one does not exceed."""
    median = float(np.median(took))
    deviation = DEVIATIONS_PER_MAD * float(np.median(np.abs(took - median)))
    excess = max(MANY_DEVIATIONS * deviation, LEAST_EXCESS * median)
    return round(median), round(median + excess)


@fact
def set_up_end_ns(trace: Trace) -> int:
    """Start of the steady part; what comes before is set-up.

    That is the start of the first step after warm-up, of the series that launched work first. Of
    three or more steps the first is set-up in any case, since it loads code and fills caches.
    Without steps nothing counts as set-up; nor does it where nothing but set-up was selected.
    """
    found = steps(trace)
    work = found.operations > 0
    never = int(np.iinfo(np.int64).min)
    if not work.any():
        return never
    series = found.series == found.series[work][np.argmin(found.cpu_start_ns[work])]
    rows = np.flatnonzero(work & series)
    early = max(int(pace(trace).warm_up[rows].sum()), int(len(rows) >= WARMED_UP_STEPS))
    end = int(found.cpu_start_ns[rows[early]])
    last = operations(trace).start_ns[selected_operations(trace)].max(initial=never)
    return end if last >= end else never


def steps_ahead(found: Steps) -> Integers:
    """Steps of the same series that the CPU has begun beyond each when its GPU work starts."""
    ahead = np.zeros(len(found), np.int64)
    for mine in series_of(found):
        begun = np.searchsorted(found.cpu_start_ns[mine], found.gpu_start_ns[mine], side="right")
        ahead[mine] = np.maximum(begun - 1 - np.arange(len(mine)), 0)
    return ahead
