"""Steps: the outermost ranges that repeat, their names and GPU work, and the warm-up.

A CPU that runs ahead of the GPU issues its steps in no time, so a step with GPU work is timed where
that work ends: from the end of the step before it to the end of its own work. The steps of a loop
follow each other without a gap, and idle time counts in the step that ends it. The first step of a
loop begins where the CPU begins it (see `loops`), and so does the second of two that have steps of
another series in between. In a loop of several kinds (see `kinds`) each step begins where the one
before it ends, of whatever series. A step without GPU work lasts as long as its range.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import (
    Array,
    ColumnRecord,
    Integers,
    MadeTexts,
    Mask,
    RowNumbers,
    Texts,
    object_array,
    picked,
    row_numbers,
    thrifty,
)
from traceview.traces.facts.operations import kernel_operations, operations
from traceview.traces.facts.ranges import nesting, origins, ranges, selection
from traceview.traces.facts.steps import kinds
from traceview.traces.facts.steps import series as step_series
from traceview.traces.facts.steps.series import step_ranges, warm_up_range_windows
from traceview.traces.trace import Trace, fact


@record
class Steps(ColumnRecord):
    """One row per step, sorted by series and start.

    `range` is its row in the range tree. `series` numbers the ranges of one pattern (`step_#`) on
    one thread. `gpu_start_ns` and `gpu_end_ns` are those of the work launched in the step, 0 where
    `operations` is 0.
    """

    range: RowNumbers
    series: Integers
    process: Array
    thread: Array
    names: Texts
    cpu_start_ns: Integers
    cpu_end_ns: Integers
    gpu_start_ns: Integers
    gpu_end_ns: Integers
    operations: Integers


@fact
def steps(trace: Trace) -> Steps:
    """The steps of the trace; `series` decides which ranges are steps."""
    tree = ranges.range_tree(trace)
    rows, series, _ = _instances(trace)
    ops, step = operations(trace), step_of_operations(trace)
    work = np.flatnonzero(step >= 0)
    step, limits = picked(step, work), np.iinfo(np.int64)
    first, last = (np.full(len(rows), limit) for limit in (limits.max, limits.min))
    np.minimum.at(first, step, picked(ops.start_ns, work))
    np.maximum.at(last, step, picked(ops.end_ns, work))
    number = np.bincount(step, minlength=len(rows)).astype(np.int64)
    first[number == 0] = last[number == 0] = 0
    return Steps(
        range=rows,
        series=series,
        process=thrifty(tree.process_of(rows)),
        thread=thrifty(tree.nesting.track[rows]),
        names=trace.recorded("ranges").texts("name").take(tree.row[rows]),
        cpu_start_ns=tree.nesting.start[rows],
        cpu_end_ns=tree.nesting.end[rows],
        gpu_start_ns=first,
        gpu_end_ns=last,
        operations=thrifty(number),
    )


@fact
def _instances(trace: Trace) -> tuple[RowNumbers, Integers, Array]:
    """Rows of the range tree that are steps, sorted by series and start, with series and kind."""
    tree, found = ranges.range_tree(trace), step_ranges(trace)
    series = groups.group(tree.nesting.track[found], tree.path_pattern[tree.path[found]])
    order = np.lexsort((tree.nesting.start[found], series.ids))
    rows, series_of = row_numbers(found[order]), series.ids[order]
    kind: Array = kinds.kinds_by_name(trace.recorded("ranges").texts("name").take(tree.row[rows]))
    if not kind.any():
        launching = ranges.attributed_operations(trace).range
        step = _step_at(trace, rows, launching, operations(trace).call)
        launched = np.bincount(step[step >= 0], minlength=len(rows))
        work_ns = groups.added(step, operations(trace).duration_ns, len(rows))
        kind = kinds.kinds_by_work(series_of, launched, work_ns)
    # Requests are named with their shapes: decodes of all batch sizes are one series.
    by_name = (kind > 0) & (kind != kinds.LONGER)
    track = tree.nesting.track[rows]
    split = groups.group(track, np.where(by_name, -1, series_of), kind)
    order = np.lexsort((tree.nesting.start[rows], split.ids))
    return rows[order], split.ids[order], kind[order]


@fact
def step_of_operations(trace: Trace) -> RowNumbers:
    """For each operation the step it was launched in, as a row of steps, or −1."""
    found = ranges.attributed_operations(trace).range
    return _step_at(trace, _instances(trace)[0], found, operations(trace).call)


def step_of_calls(trace: Trace, call: Array) -> RowNumbers:
    """For rows of api_calls the step that each was made in, as a row of steps, or −1."""
    found = ranges.attributed_calls(trace).range[call]
    return _step_at(trace, _instances(trace)[0], found, call)


def _step_at(trace: Trace, rows: RowNumbers, found: RowNumbers, call: Array) -> RowNumbers:
    """The step around the range of each call, else the step open on the main thread.

    The step around a range holds what was launched in it, inferred or not. Launches of a thread
    without steps in ranges of its own belong to the step that the main thread is in; launches of a
    thread with steps in ranges beside these belong to none.
    """
    tree, calls = ranges.range_tree(trace), trace.recorded("api_calls")
    if not len(rows):
        return np.full(len(found), -1, np.int32)
    number = np.full(len(tree.row), -1, np.int32)
    number[rows] = np.arange(len(rows))
    result = nesting.nearest(number, tree.parent, found)
    open_calls = np.flatnonzero((result < 0) & (call >= 0))
    with_steps = groups.different(tree.nesting.track[rows])
    open_calls = open_calls[~np.isin(calls["thread"][call[open_calls]], with_steps)]
    if not len(open_calls):
        return result
    step, rows_of = tree.own_or_inherited(number), call[open_calls]
    process, start_ns = calls["process"][rows_of], calls["start_ns"][rows_of]
    result[open_calls] = ranges.of_main_thread(trace, step, process, start_ns)
    return result


@record
class Pace:
    """The duration of each step, in the rows of steps.

    A step lasts from `begin_ns` to `end_ns`. `loop` numbers, ascending, the groups of steps that
    are compared: a series, or one of its loops. `timed` is False for a step without GPU work in a
    series that has some. `warm_up` steps are at the beginning of a loop and `outlier` steps after
    it; both take longer than the others. `median_ns` is that of the loop after warm-up; an outlier
    exceeds `limit_ns`.
    """

    begin_ns: Integers
    end_ns: Integers
    loop: Integers
    timed: Mask
    warm_up: Mask
    outlier: Mask
    median_ns: Integers
    limit_ns: Integers

    @cached_property
    def duration_ns(self) -> Integers:
        return self.end_ns - self.begin_ns


@fact
def pace(trace: Trace) -> Pace:
    """The duration of each step, and which steps are warm-up or outliers in their loop."""
    all_steps = steps(trace)
    series, working = all_steps.series, all_steps.operations > 0
    works = groups.marked(series[working], int(series.max(initial=-1)) + 1)
    timed = working | ~works[series]
    rows = np.flatnonzero(timed)
    begin, end = all_steps.cpu_start_ns.copy(), all_steps.cpu_end_ns.copy()
    begin[rows], end[rows], loop = _times(trace, all_steps.take(rows))
    classes = step_series.classify((end - begin)[rows], loop)
    warm_up, outlier = np.zeros(len(all_steps), bool), np.zeros(len(all_steps), bool)
    warm_up[rows], outlier[rows] = classes.warm_up, classes.outlier
    if len(series):
        # A step is in the loop of the last timed step up to it; before the first timed step of its
        # series, in the loop of that step.
        first, last = np.flatnonzero(groups.opens(series[timed])), np.cumsum(timed) - 1
        loop = loop[np.maximum(last, first[series])]
    return Pace(
        begin, end, loop, timed, warm_up, outlier, classes.median_ns[loop], classes.limit_ns[loop]
    )


def _times(trace: Trace, all_steps: Steps) -> tuple[Integers, Integers, Integers]:
    """Begin, end and loop of the timed steps."""
    entered = step_series.enters(all_steps.series, ranges.range_tree(trace).parent[all_steps.range])
    first = entered | step_series.restarts(all_steps.series, step_series.numbers(all_steps.names))
    begin, end = _between(all_steps, first)
    together = step_series.are_alike(end - begin, np.cumsum(first) - 1, all_steps.series)
    series = groups.opens(all_steps.series)
    entered = np.where(together, entered, first)
    begin, end = _between(all_steps, entered | _second_of_two(all_steps))
    return begin, end, np.cumsum(np.where(together, series, first)) - 1


def _second_of_two(all_steps: Steps) -> Mask:
    """True for the second step of a series of two if steps of another series begin in between.

    From the end of the first it would last a round of the program, the first only its own work,
    and a median of the two is the time of neither.
    """
    first = np.flatnonzero(groups.opens(all_steps.series))
    first = first[np.diff(first, append=len(all_steps)) == 2]
    place = np.empty(len(all_steps), np.int64)
    place[np.lexsort((all_steps.cpu_start_ns, all_steps.thread))] = np.arange(len(all_steps))
    result = np.zeros(len(all_steps), bool)
    result[first + 1] = place[first + 1] > place[first] + 1
    return result


def _between(all_steps: Steps, first: Mask) -> tuple[Integers, Integers]:
    """Begin and end of the timed steps; `first` are those that begin a loop."""
    none, end = all_steps.operations == 0, all_steps.gpu_end_ns
    if len(end):
        # The latest end so far in each series.
        key = nesting.Key(all_steps.series, end)
        latest = np.maximum.accumulate(key.of(all_steps.series, end))
        end = np.where(none, all_steps.cpu_end_ns, key.time(all_steps.series, latest))
    before = np.append(end[:1], end[:-1])
    started = np.where(
        none, all_steps.cpu_start_ns, np.minimum(all_steps.cpu_start_ns, all_steps.gpu_start_ns)
    )
    opens = groups.opens(all_steps.series)
    later = np.where(opens | none, started, np.maximum(before, started))
    begin = np.where(first | none, later, before)
    turns = kinds.takes_turns(all_steps.series, all_steps.thread, all_steps.cpu_start_ns) & ~none
    if turns.any():
        order = np.lexsort((all_steps.cpu_start_ns, all_steps.thread))
        thread = all_steps.thread[order].astype(np.int64)
        key = nesting.Key(thread, end[order])
        latest = np.maximum.accumulate(key.of(thread, end[order]))
        ended = np.empty(len(end), np.int64)
        ended[order[1:]] = key.time(thread, latest)[:-1]
        begin[turns] = np.maximum(ended, started)[turns]
    return np.minimum(begin, end), end


def warm_up_of(trace: Trace, rows: Integers) -> Mask:
    """True for the steps of a loop that are warm-up; none where all of them would be.

    The first of three or more is: it loads code and fills caches, even where it takes no longer.
    """
    warm = pace(trace).warm_up[rows].copy()
    warm[:1] |= len(rows) >= step_series.WARMED_UP_STEPS
    return warm & ~warm.all()


@fact
def warm_up_end_ns(trace: Trace) -> int:
    """Start of the first steady step; all work before it is warm-up.

    That is the first step after warm-up in the first loop of the series that launched work first.
    Of three or more steps of the series the first is warm-up in any case, since it loads code and
    fills caches. The least int64 without steps, where only warm-up is selected, and where all
    are parts of one step behind the profiler's first: what comes before them there comes again.
    """
    all_steps = steps(trace)
    work = all_steps.operations > 0
    never = int(np.iinfo(np.int64).min)
    if not work.any():
        return never
    series = all_steps.series == all_steps.series[work][np.argmin(all_steps.cpu_start_ns[work])]
    rows = np.flatnonzero(work & series)
    if _in_later_step(trace, all_steps.range[rows]):
        return never
    timed = pace(trace)
    warm = timed.warm_up[rows] & (timed.loop[rows] == timed.loop[rows[0]])
    early = max(int(warm.sum()), int(len(rows) >= step_series.WARMED_UP_STEPS))
    end = int(all_steps.cpu_start_ns[rows[early]])
    last = operations(trace).start_ns[selection.selected_operations(trace)].max(initial=never)
    return end if last >= end else never


_LATER_STEP = re.compile(r"ProfilerStep#[1-9]\d*$")


def _in_later_step(trace: Trace, rows: RowNumbers) -> bool:
    """Whether these ranges, rows of the range tree, are all in one step of torch.profiler's
    schedule that is not its first: the program had warmed up before."""
    tree = ranges.range_tree(trace)
    is_later = trace.recorded("ranges").texts("name").matching(_LATER_STEP.match)[tree.row]
    marked = np.where(is_later, np.arange(len(is_later)), -1).astype(np.int32)
    around = nesting.nearest(marked, tree.parent, tree.parent[rows])
    return bool(around[0] >= 0 and (around == around[0]).all())


def steps_ahead(all_steps: Steps) -> Integers:
    """Number of later steps of the series that the CPU has begun when a step's GPU work starts."""
    if not len(all_steps):
        return np.zeros(0, np.int64)
    key = nesting.Key(all_steps.series, all_steps.cpu_start_ns)
    starts = key.of(all_steps.series, all_steps.cpu_start_ns)
    begun = np.searchsorted(starts, key.of(all_steps.series, all_steps.gpu_start_ns), side="right")
    return np.maximum(begun - 1 - np.arange(len(all_steps)), 0)


# Warm-up: work before the first steady step, and work launched in ranges named warm_up.
#
# A longer run does not repeat warm-up: tables count it, the savings that findings state do not.
# Programs put an autotuner's trials and first calls into ranges named warm_up, wherever these
# are.


def in_warm_up_range(trace: Trace, process: Array, time: Integers) -> Mask:
    """True for the (process, time) pairs that fall in a range named warm_up."""
    return selection.within(warm_up_range_windows(trace), process, time)


@fact
def operations_in_warm_up_ranges(trace: Trace) -> Mask | None:
    """True for the operations launched in ranges named warm_up; None without such ranges."""
    if not warm_up_range_windows(trace):
        return None
    return in_warm_up_range(trace, operations(trace).process, selection.issued_ns(trace))


def operations_in_warm_up(trace: Trace) -> Mask:
    """True for operations that start before the first steady step or run in a warm_up range."""
    return _before_steps(trace, operations(trace).start_ns)


@fact
def warms_up(trace: Trace) -> bool:
    """Whether some work is warm-up: a recording without steps seldom has any."""
    return bool(operations_in_warm_up(trace).any())


@fact
def steady_operations(trace: Trace) -> Mask:
    """True for the selected operations that are not of warm-up."""
    return selection.selected_operations(trace) & ~operations_in_warm_up(trace)


@fact
def kernels_in_warm_up(trace: Trace) -> Mask:
    """True for the kernels of warm-up."""
    return operations_in_warm_up(trace)[kernel_operations(trace)]


@fact
def steady_kernels(trace: Trace) -> Mask:
    """True for the selected kernels that are not of warm-up."""
    return steady_operations(trace)[kernel_operations(trace)]


def longest_loop(trace: Trace, own: Mask, process: int | None = None) -> Integers:
    """Rows of the steps, warm-up included, of the loop that takes most time.

    Of loops with some of the operations `own`, a mask, and of one process if that is given.
    """
    every, timed, step = steps(trace), pace(trace), step_of_operations(trace)[own]
    series = groups.different(every.series[groups.different(step[step >= 0])])
    rows = np.flatnonzero(np.isin(every.series, series) & (every.operations > 0) & timed.timed)
    rows = rows if process is None else rows[every.process[rows] == process]
    return rows[every.series[rows] == np.argmax(time_by_series(trace, rows))]


def time_by_series(trace: Trace, rows: Integers) -> Array:
    """The time of these steps by series; where most of it is of cold steps, as if they were warm.

    The first step of a short loop may load code for longer than a whole other loop takes.
    """
    every, timed = steps(trace), pace(trace)
    series, took_ns = every.series[rows], timed.duration_ns[rows]
    cold_ns = np.where(timed.warm_up[rows], np.maximum(took_ns - timed.median_ns[rows], 0), 0)
    total_ns, once_ns = (np.bincount(series, each, minlength=1) for each in (took_ns, cold_ns))
    is_once = (2 * once_ns > total_ns) & (np.bincount(series, minlength=1) >= _MANY_STEPS)
    return np.where(is_once, total_ns - once_ns, total_ns)


_MANY_STEPS = 10
"""Of fewer, the cold ones may be most of what the recording is about."""


def launched_in_warm_up(trace: Trace) -> Mask:
    """True for the operations launched during warm-up, whenever they ran.

    Where the CPU runs ahead, much of the first step runs after the second has begun; a comparison
    of kernels takes a step as a whole or not at all.
    """
    return _before_steps(trace, selection.issued_ns(trace))


def _before_steps(trace: Trace, time: Integers) -> Mask:
    """True for the operations whose time precedes the first steady step, or in warm_up ranges."""
    early: Mask = time < warm_up_end_ns(trace)
    warm = operations_in_warm_up_ranges(trace)
    return early if warm is None else early | warm


# What the steps of a trace are taken from.


@fact
def steps_source(trace: Trace) -> origins.StepsSource:
    """What the steps of a trace are taken from."""
    all_steps = steps(trace)
    # Without any GPU work recorded, steps of the CPU are steps as well.
    working = np.flatnonzero((all_steps.operations > 0) | (not len(operations(trace))))
    if not len(working):
        return "none"
    from_ranges = trace.recorded("ranges")
    row = int(ranges.range_tree(trace).row[all_steps.range[working[0]]])
    return origins.source_of(from_ranges.texts("domain")[row], from_ranges.texts("name")[row] or "")


@fact
def step_names(trace: Trace) -> Texts:
    """A unique name for each step, by which --range selects it alone."""
    names = _names(trace)
    return MadeTexts(np.arange(len(names), dtype=np.int32), len(names), names.some)


@fact
def _names(trace: Trace) -> selection.RangeNames:
    return selection.selecting_texts(trace, steps(trace).range)


def selects_alone(trace: Trace, step: int, name: str) -> bool:
    """Whether --range with the name of a step selects it and no other range."""
    # Only a name with a / can be the path of another range, too.
    if _names(trace).unique[step] and "/" not in name:
        return True
    return np.flatnonzero(selection.matching_ranges(trace, name)).tolist() == [
        steps(trace).range[step]
    ]


@fact
def loop_names(trace: Trace) -> Texts:
    """The name of the loop of each step: the pattern of its path, with # for numbers.

    Where the loops of a series are compared separately, the range around the loop keeps its
    numbers; names that are equal even then get a number, as in `step_# (2)`. A series of
    one kind of several bears its name, as `decode` and `step_# (more work)`.
    """
    loop = pace(trace).loop
    first = np.flatnonzero(groups.opens(loop))
    series = steps(trace).series[first].tolist()
    loops, kind = Counter(series), _instances(trace)[2]
    all_steps, tree, names = steps(trace), ranges.range_tree(trace), []
    for step, number in zip(first.tolist(), series, strict=True):
        row = int(all_steps.range[step])
        if loops[number] == 1:
            name = tree.patterns[int(tree.path_pattern[tree.path[row]])]
            names.append(kinds.named(name, int(kind[step])))
            continue
        around, name = int(tree.parent[row]), ranges.pattern_of(str(all_steps.names[step]))
        names.append(f"{tree.paths[int(tree.path[around])]}/{name}" if around >= 0 else name)
    repeated = Counter(zip(series, names, strict=True))
    seen = Counter[tuple[int, str]]()
    unique: list[str] = []
    for key in zip(series, names, strict=True):
        seen[key] += 1
        unique.append(key[1] + (f" ({seen[key]})" if repeated[key] > 1 else ""))
    return Texts(loop.astype(np.int32), object_array(unique))
