"""Series of steps, the ranges of a program that are its steps, and their loops.

On each thread, candidates are the ranges whose path pattern repeats. The outermost level that
repeats is that of the steps, with two exceptions, as loops nest:

1. Where ranges are named and numbered like a step (`step_7`, `iter3`, `train_step#7`, `batch 7`),
   or are the steps that a profiler marks, the outermost of these are the steps, whatever repeats
   around them.
2. Ranges named like an epoch that hold a range that repeats within one of them are not the steps:
   what repeats inside is.

So `epoch_3/batch_7` gives batches, `step_3/forward/layer_7` gives steps, and epochs that hold
nothing that repeats are steps themselves. Ranges named and numbered like a layer, and those inside
them, are parts of a step. Ranges beside the steps, below the same parents, are
series of their own (`validate` between steps). Where some ranges launch GPU work, series that do
not are left out: a thread that loads data repeats ranges, too. Ranges that repeat only inside one
named warm_up are no steps, where the program works outside it as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from traceview.base import groups
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Integers, Mask, RowNumbers, Texts, picked, row_numbers
from traceview.base.tables.arrays import numbered
from traceview.base.vocabulary.amounts import DEVIATIONS_PER_MAD
from traceview.traces.facts.operations import operations
from traceview.traces.facts.ranges import origins
from traceview.traces.facts.ranges.ranges import (
    RangeTree,
    attributed_operations,
    main_threads,
    range_tree,
)
from traceview.traces.facts.ranges.selection import (
    issued_ns,
    selected_operations,
    windows_of,
    within,
)
from traceview.traces.trace import Trace, fact

# Ranges in which a program says that it warms up.

# Alone, before a payload, or one of the fields of a name: model|warmup|forward.
_WARM_UP = re.compile(
    r"(?:.*[|/:] ?)?warm[-_ ]?up(?: ?\{.*\}| ?[|/:].*)?", re.IGNORECASE | re.DOTALL
)
_NEAR = re.compile("warm.*", re.IGNORECASE)


@fact
def warm_up_range_windows(trace: Trace) -> dict[int, Intervals]:
    """Windows in which a range named warm_up is open, by process.

    Empty where all selected work lies in such ranges: then it is the subject, not warm-up.
    """
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name")
    is_warm_up = origins.range_name_forms(trace).meeting(_WARM_UP.fullmatch, _NEAR)
    if not is_warm_up.any() or not len(tree.row):
        return {}
    windows = windows_of(tree, is_warm_up[picked(names.codes, tree.of_table)])
    ops, chosen = operations(trace), selected_operations(trace)
    inside = within(windows, ops.process[chosen], issued_ns(trace)[chosen])
    return {} if inside.all() else windows


_STEP = re.compile(r"(?i).*(step|iteration|iter|batch)[\W_]*#|pass_(?:[b-z]_)?#$")
_NEAR_STEP = re.compile(r"(?i)(step|iter|batch|execute_|pass_).*")
_EPOCH = re.compile(r"(?i).*(?<![a-z])(epoch|fold|trial)s?(?![a-z])")
_NEAR_EPOCH = re.compile(r"(?i)(epoch|fold|trial).*")
_LAYER = re.compile(r"(?i).*(?<!p)layers?[\W_]*#")
_NEAR_LAYER = re.compile(r"(?i)layer.*")
CALL = re.compile(r"(?i)(?:.*[\W_])?(?:forward|backward|fwd|bwd)(?:[\W_]*pass)?")
_NEAR_CALL = re.compile(r"(?i)(forward|backward|fwd|bwd).*")
NEVER = np.iinfo(np.int64).max


@record
class _Kinds:
    """The ranges that repeat: one row per path pattern and thread.

    `of` is the kind (a row of this table) of each range of the tree, -1 for none; it is meaningful
    only for ranges in the mask `candidates`.
    """

    of: RowNumbers
    candidates: Mask
    thread: Array
    pattern: RowNumbers
    depth: Array

    def mask(self, kind: Mask) -> Mask:
        """Mask over the ranges of the tree: True for the candidates of the chosen kinds."""
        result, known = np.empty(len(self.of), bool), np.append(kind, False)
        for part in groups.parts(len(result)):
            in_kind = picked(known, self.of[part])
            np.logical_and(in_kind, self.candidates[part], out=result[part])
        return result


@fact
def step_ranges(trace: Trace) -> Integers:
    """Rows of the range tree that are steps, in order of thread and start."""
    tree = range_tree(trace)
    patterns = max(len(tree.patterns), 1)
    # Thread and path pattern of each range in one integer.
    tracks = int(tree.nesting.track.max(initial=0)) + 1
    fits = tracks * patterns <= np.iinfo(np.int32).max
    key: Array = np.empty(len(tree.path), np.int32 if fits else np.int64)
    for part in groups.parts(len(key)):
        np.multiply(tree.nesting.track[part], patterns, out=key[part], dtype=key.dtype)
        key[part] += picked(tree.path_pattern, tree.path[part])
    distinct, kind = numbered(key)
    thread, pattern, size = distinct // patterns, row_numbers(distinct % patterns), len(distinct)
    # A range lent to another thread is a part of the original.
    own = picked(origins.candidates_for_steps(trace), tree.of_table) & ~tree.lent
    counted = groups.frequencies(kind, size) > 1
    marked = picked(origins.profiler_steps(trace), tree.of_table) & own
    if np.count_nonzero(marked) > 1:
        # Steps of an engine are named with the shapes of their requests: each may come once.
        counted |= _among(kind, marked, size)
    counted &= ~_sweeps(trace, tree, kind, size) & ~_in_layers(tree)[pattern]
    if windows := warm_up_range_windows(trace):
        # Kinds whose ranges all open in ranges named warm_up do not count.
        inside = within(windows, tree.process, tree.nesting.start)
        counted &= np.bincount(kind[~inside], minlength=size) > 0
    has_work = np.zeros(len(tree.row), bool)
    ranges = attributed_operations(trace).range
    has_work[ranges[ranges >= 0]] = True
    has_work = tree.around(has_work)
    if has_work.any():
        counted &= _among(kind, has_work & own, size)
    repeating = np.flatnonzero(counted & _among(kind, own, size))
    number = np.full(size, -1, np.int32)
    number[repeating] = np.arange(len(repeating))
    for part in groups.parts(len(kind)):
        kind[part] = picked(number, kind[part])
    of_steps = pattern[repeating]
    kinds = _Kinds(kind, own, thread[repeating], of_steps, tree.patterns.depth[of_steps])
    chosen = _chosen(tree, kinds)
    rows = np.flatnonzero(kinds.mask(chosen))
    only = np.flatnonzero(marked)
    if len(only) == 1 and np.count_nonzero(chosen) > 1 and len(rows):
        # Kinds that take turns in the only step of a profiler, such as forward and backward of its
        # layers, are parts of it. A loop in it is of one kind.
        often = groups.frequencies(kinds.of[rows], len(repeating))[chosen]
        inside = tree.nesting.start[rows] >= tree.nesting.start[only[0]]
        inside &= tree.nesting.end[rows] <= tree.nesting.end[only[0]]
        if inside.all() and (often == often[0]).all():
            return only
    beside = _in_steps_of_main_thread(trace, tree, rows)
    beside &= ~kinds.mask(_named(tree, kinds, is_step, _NEAR_STEP))[rows]
    return rows[~beside]


def _in_steps_of_main_thread(trace: Trace, tree: RangeTree, rows: Integers) -> Mask:
    """True for the ranges of other threads that all lie within the steps of the main thread.

    Autograd's thread opens ranges for the backward pass of each step: parts of it, and no loop of
    their own.
    """
    start, end = tree.nesting.start[rows], tree.nesting.end[rows]
    threads, result = groups.rows_of(tree.nesting.track[rows]), np.zeros(len(rows), bool)
    mains = main_threads(trace)[tree.process_of(rows)]
    for number, own in threads.items():
        main = int(mains[own[0]])
        around = threads.get(main)
        if around is not None and number != main:
            at = np.searchsorted(start[around], start[own], side="right") - 1
            result[own] = ((at >= 0) & (end[own] <= end[around][at])).all()
    return result


def _in_layers(tree: RangeTree) -> Mask:
    """True for the path patterns that are a layer's, or lie in one, or in a forward pass: parts of
    one call of a model.

    A recording of one call has such ranges alone: four `TransformerLayer_#` are no four steps, nor
    are twelve times `attention` in `forward pass`.
    """
    patterns = tree.patterns
    names = origins.JoinedTexts(patterns.names.tolist())
    result = names.meeting(lambda name: _LAYER.match(name) and not is_step(name), _NEAR_LAYER)[
        patterns.name
    ]
    calls = names.meeting(CALL.fullmatch, _NEAR_CALL)[patterns.name]
    if not (result | calls).any():
        return result
    # A program that tries numbers of layers has steps in layers_#.
    steps = names.meeting(is_step, _NEAR_STEP)[patterns.name]
    outermost_first = np.argsort(patterns.depth, kind="stable")
    for row in outermost_first:
        parent = int(patterns.parent[row])
        result[row] |= parent >= 0 and (result[parent] or calls[parent]) and not steps[row]
    return result


def _among(kind: RowNumbers, own: Mask, size: int) -> Mask:
    """True for the kinds of the ranges in the mask `own`."""
    # The one after the last is for the ranges outside the mask.
    result = np.zeros(size + 1, bool)
    for part in groups.parts(len(kind), size):
        result |= groups.marked(np.where(own[part], kind[part], np.int32(size)), size + 1)
    return result[:size]


def is_epoch(name: str) -> bool:
    """Whether a range is named like an epoch, in which steps repeat."""
    return bool(_EPOCH.match(name))


def _chosen(tree: RangeTree, kinds: _Kinds) -> Mask:
    """True for the kinds at the level of the steps of their thread."""
    thread, depth = kinds.thread, kinds.depth
    threads = int(tree.nesting.track.max(initial=-1)) + 1
    steps = _named(tree, kinds, is_step, _NEAR_STEP)
    least = _least(thread, depth, np.ones(len(depth), bool), threads)
    chosen = np.where(_least(thread, depth, steps, threads)[thread] < NEVER, steps, True)
    level = _least(thread, depth, chosen, threads)
    inside = _inside_epochs(tree, kinds) & (depth == least[thread] + 1) & ~steps
    unnamed = _least(thread, depth, steps, threads) == NEVER
    deeper = _least(thread, depth, inside & unnamed[thread], threads)
    level = np.where(deeper < NEVER, deeper, level)
    chosen = np.where(deeper[thread] < NEVER, inside, chosen) & (depth == level[thread])
    # With those of their depth below the same parents.
    place = groups.group(thread, depth, tree.patterns.parent[kinds.pattern])
    return groups.marked(place.ids[chosen], place.size)[place.ids]


def is_step(pattern: str) -> bool:
    """Whether a range is named and numbered like a step, or as one that a profiler marks."""
    return bool(_STEP.match(pattern)) or origins.is_profiler_step(pattern)


def _named(
    tree: RangeTree, kinds: _Kinds, rule: Callable[[str], bool], near: re.Pattern[str]
) -> Mask:
    """True for the kinds whose own name, with # for numbers, meets `rule`, which needs `near`."""
    names = origins.JoinedTexts(tree.patterns.names.tolist())
    return names.meeting(rule, near)[tree.patterns.name[kinds.pattern]]


def _least(thread: Array, depth: Array, counted: Mask, threads: int) -> Integers:
    """The least depth of the counted kinds, by thread."""
    least = np.full(threads, NEVER)
    np.minimum.at(least, thread[counted], depth[counted])
    return least


def _inside_epochs(tree: RangeTree, kinds: _Kinds) -> Mask:
    """True for the kinds that repeat within a single range named like an epoch."""
    result = np.zeros(len(kinds.depth), bool)
    named = _named(tree, kinds, is_epoch, _NEAR_EPOCH)
    if not named.any():
        return result
    epoch = np.append(kinds.mask(named), False)
    rows = np.flatnonzero((kinds.of >= 0) & kinds.candidates & epoch[tree.parent])
    by_epoch = groups.group(tree.parent[rows], kinds.of[rows])
    result[kinds.of[rows[groups.count(by_epoch)[by_epoch.ids] > 1]]] = True
    return result


_SWEPT = 3
# A batch may be one of a loop, or a size.
_COUNTS = re.compile(r"(?i).*(step|iteration|iter)[\W_]*#")


def _sweeps(trace: Trace, tree: RangeTree, kind: RowNumbers, kinds: int) -> Mask:
    """True for the kinds whose numbers are sizes: `n=512`, `n=1024`, `n=4096` are no steps.

    Numbers of steps repeat, or grow by the same amount; sizes do neither. A kind that is named
    like a step counts as one whatever its numbers.
    """
    if not kinds:
        return np.zeros(0, bool)
    codes = picked(trace.recorded("ranges").texts("name").codes, tree.of_table)
    counted = groups.frequencies(kind, kinds)
    varied = groups.varied(kind, kinds, codes)
    parts = [np.flatnonzero(varied[kind[part]]) + part.start for part in groups.parts(len(kind))]
    rows = np.concatenate([np.zeros(0, np.int64), *parts])
    # Rows of a kind are those of one thread, so in order of start.
    rows = rows[groups.order_of(kind[rows])]
    number, kind_of = origins.range_name_forms(trace).last_numbers()[codes[rows]], kind[rows]
    same = kind_of[1:] == kind_of[:-1]
    step = np.diff(number)
    opens = np.flatnonzero(np.append(True, ~same)[: len(step)])
    initial = np.zeros(kinds, np.int64)
    initial[kind_of[opens]] = step[opens]
    uneven = same & (step != initial[kind_of[1:]]) & (step > 0)
    grows = np.bincount(kind_of[1:][same & (step > 0)], minlength=kinds)
    odd = np.bincount(kind_of[1:][uneven], minlength=kinds)
    result = (counted >= _SWEPT) & (grows == counted - 1) & (odd > 0)
    named = np.zeros(kinds, bool)
    if result.any():
        rows = np.flatnonzero(result[kind])
        pattern = tree.patterns.name[tree.path_pattern[tree.path[rows]]]
        counts = np.zeros(len(tree.patterns.names), bool)
        used = groups.different(pattern)
        counts[used] = [
            bool(_COUNTS.match(text)) or origins.is_profiler_step(text)
            for text in tree.patterns.naming.values_of(used)
        ]
        named[kind[rows]] = counts[pattern]
    return result & ~named


# Loops of a series: where they begin, and which are compared together.
#
# A loop ends with the range around it (`epoch_0` around `batch_#`), and where the numbers of its
# steps restart (`step_0` after `step_2`). Similar loops, such as epochs, are compared with one
# median. A sweep over sizes runs different loops one after the other, each with a median of its
# own. Where numbers restart within similar loops, these count as one.

# Warm-up steps and outliers of each loop, by the durations of its steps.

WARMED_UP_STEPS = 3
"""From so many steps on, the first one counts as warm-up, and warm-up can be recognized."""
COMPARABLE_STEPS = 5
"""From so many steps after warm-up on, one of them can be an outlier."""
MANY_DEVIATIONS, LEAST_EXCESS = 5.0, 0.10
"""An outlier exceeds the median by five standard deviations, estimated from the median absolute
deviation (MAD), and by a tenth."""

_SHRINKS, _LEVELS_OFF, _LEAST_SHRINKING = 1.25, 1.05, 16


@record
class StepClasses:
    """`warm_up` and `outlier` of each step; `median_ns` and `limit_ns` of each loop.

    The median is that of the steps after warm-up; an outlier exceeds the limit.
    """

    warm_up: Mask
    outlier: Mask
    median_ns: Integers
    limit_ns: Integers


def classify(duration_ns: Integers, loop: Integers) -> StepClasses:
    """Classify the steps of all loops by duration; `loop` is the loop of each step, ascending.

    The later half of a loop shows how long warm steps take; only steps of the first half can be
    warm-up. Where the steps of the later half, or those that would be warm-up, take ever less time,
    the work itself shrinks, as in an elimination: the loop has no warm-up and no outliers.
    """
    size = np.bincount(loop)
    first = np.cumsum(size) - size
    place = np.arange(len(duration_ns)) - first[loop]
    half = size[loop] // 2
    _, limit = _limits(duration_ns, loop, place >= half)
    like = (duration_ns <= limit[loop]) | (place >= half) | (size[loop] < WARMED_UP_STEPS)
    early = (
        np.minimum.reduceat(np.where(like, place, len(duration_ns)), first)
        if len(duration_ns)
        else size
    )
    shrinks = _level_off(duration_ns, loop, place, early)
    # The last quarter may have much shorter steps than the quarter before it.
    quarter = place * 4 // size[loop]
    third, fourth = (_limits(duration_ns, loop, quarter == number)[0] for number in (2, 3))
    shrinks |= (third > _SHRINKS * fourth) & (size >= _LEAST_SHRINKING)
    early = np.where(shrinks, 0, early)
    later = place >= early[loop]
    median, limit = _limits(duration_ns, loop, later)
    comparable = (size - early >= COMPARABLE_STEPS) & ~shrinks
    outlier = later & comparable[loop] & (duration_ns > limit[loop])
    outlier &= ~_given_back(duration_ns, loop, median, outlier)
    return StepClasses(~later, outlier, median, limit)


def _given_back(duration_ns: Integers, loop: Integers, median: Integers, outlier: Mask) -> Mask:
    """True for the outliers whose excess the steps right after them make up for by half or more.

    Where two streams take turns, work of a later step may end before that of an earlier one: of
    four steps of 49 ms, two then seem to take 82 and 97 ms, and two 0 and 16. Nothing is lost.
    """
    result, excess = np.zeros(len(loop), bool), duration_ns - median[loop]
    short = excess < -LEAST_EXCESS * median[loop]
    for first in np.flatnonzero(outlier).tolist():
        if result[first] or (first and outlier[first - 1] and loop[first - 1] == loop[first]):
            continue
        end = last = first + 1
        of_loop = int(np.searchsorted(loop, loop[first], side="right"))
        while last < of_loop and outlier[last]:
            end = last = last + 1
        while last < of_loop and short[last]:
            last += 1
        result[first:end] = 2 * excess[first:last].sum() <= excess[first:end].sum()
    return result


def _level_off(duration_ns: Integers, loop: Integers, place: Integers, early: Integers) -> Mask:
    """Whether each quarter of the early steps of each loop has shorter steps than the one before.

    Warm-up has fewer such steps, or steps of similar length.
    """
    mask: Mask = early >= _LEAST_SHRINKING
    quarter = place * 4 // np.maximum(early, 1)[loop]
    medians = [_limits(duration_ns, loop, quarter == number)[0] for number in range(4)]
    for one, following in pairwise(medians):
        mask &= one > _LEVELS_OFF * following
    return mask


def _limits(duration_ns: Integers, loop: Integers, counted: Mask) -> tuple[Integers, Integers]:
    """The median of the counted steps of each loop, and the limit that an outlier exceeds."""
    took, of, loops = duration_ns[counted], loop[counted], int(loop.max(initial=-1)) + 1
    median = groups.medians(of, loops, took)
    off = groups.doubled_deviation(median[of], took)
    deviation = DEVIATIONS_PER_MAD * (groups.medians(of, loops, off) / 2)
    excess = np.maximum(MANY_DEVIATIONS * deviation, LEAST_EXCESS * median)
    return np.rint(median).astype(np.int64), np.rint(median + excess).astype(np.int64)


_LEADING_ZEROS = re.compile(r"0(?<!\d0)0*(?=\d)")
ALIKE, MOST_LOOPS = 0.10, 0.90
"""Loops are similar where nine in ten of their medians differ from the median of these by no more
than a tenth of it, or than the steps of one loop differ among themselves (a standard deviation)."""


def numbers(names: Texts) -> Array:
    """An integer for each name, equal for names that differ in leading zeros only (007 and 7)."""
    by_name = groups.group(names.codes)
    texts = names.take(by_name.first[names.codes[by_name.first] >= 0]).decode()
    if not any(map(_LEADING_ZEROS.search, texts)):
        return names.codes
    shortened = Texts.of([_LEADING_ZEROS.sub("", text) for text in texts]).codes
    # The group of absent names comes first.
    return np.append(np.full(by_name.size - len(texts), -1, np.int32), shortened)[by_name.ids]


def enters(series: Array, around: Array) -> Mask:
    """True for the first step of a series, or within each enclosing range."""
    return groups.opens(series, around)


def restarts(series: Array, number: Array) -> Mask:
    """True for the steps that repeat the number of the first one of their series."""
    begins = groups.opens(series)
    first = number[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    return (number == first) & groups.opens(series, number)


def are_alike(duration_ns: Integers, loop: Integers, series: Array) -> Mask:
    """True for the steps whose series has similar loops, to be compared together.

    `loop` and `series` are the numbers of each step's loop and series, ascending. Loops of a single
    step cannot be compared; a series with most of its steps in such loops is one loop.
    """
    size, count = np.bincount(loop), int(series.max(initial=-1)) + 1
    several = size > 1
    of = series[np.flatnonzero(groups.opens(loop))]
    in_several = np.bincount(series[several[loop]], minlength=count)
    undecided = (2 * in_several > np.bincount(series, minlength=count)) & (np.bincount(of) > 1)
    result = ~undecided
    rows = np.flatnonzero(undecided[series] & several[loop])
    loops = np.flatnonzero(undecided[of] & several)
    near = _near(duration_ns[rows], loop[rows], series[rows], loops, of[loops])
    hits, every = (np.bincount(own, minlength=count) for own in (of[loops[near]], of[loops]))
    result[undecided] = hits[undecided] / every[undecided] >= MOST_LOOPS
    return result[series]


def _near(duration_ns: Integers, loop: Integers, series: Array, loops: Integers, of: Array) -> Mask:
    """True for the loops whose median is close to the median of all loops of their series.

    `duration_ns`, `loop` and `series` have one entry per step of these loops; `of` is the series of
    each loop.
    """
    number = np.searchsorted(loops, loop)
    median = groups.medians(number, len(loops), duration_ns)
    count = int(of.max(initial=-1)) + 1
    off = groups.doubled_deviation(median[number], duration_ns)
    within = DEVIATIONS_PER_MAD * groups.medians(series, count, off) / 2
    middle = groups.medians(of, count, (2 * median).astype(np.int64)) / 2
    return np.abs(median - middle[of]) <= np.maximum(ALIKE * middle, within)[of]
