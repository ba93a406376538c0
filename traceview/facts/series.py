"""Which ranges are the steps of the program: the series that a reader counts time in.

Of each thread, those ranges are looked at that repeat, numbers in their paths aside. The outermost
level that repeats is that of the steps, with two exceptions, because loops nest:

1. Where ranges are named and numbered like a step (`step_7`, `iter3`, `train_step#7`, `batch 7`),
   the outermost of these are the steps, whatever repeats around them.
2. Ranges named like an epoch that hold a range that repeats within one of them are not the steps:
   what repeats inside is.

So `epoch_3/batch_7` gives batches, `step_3/forward/layer_7` gives steps, and epochs that hold
nothing that repeats are steps themselves. Ranges beside the steps, below the same parents, are
series of their own (`validate` between steps). Where some series launched GPU work, those that did
not are left out: a thread that loads data repeats ranges, too.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.facts.ranges import RangeTree, attributed_operations, pattern_of, range_tree
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

_STEP = re.compile(r"(?i).*(step|iteration|iter|batch)[\W_]*#")
_EPOCH = re.compile(r"(?i).*(?<![a-z])(epoch|fold|trial)s?(?![a-z])")
NEVER = np.iinfo(np.int64).max


@fact
def step_ranges(trace: Trace) -> Integers:
    """Rows of the range tree that are steps, in order of thread and start."""
    tree = range_tree(trace)
    found = groups.group(tree.nesting.track, tree.path_pattern[tree.path])
    repeats = np.bincount(found.ids, minlength=found.size) > 1
    # What another thread lent its range to is a part of that range.
    own = ~tree.lent & repeats[found.ids]
    working = np.zeros(found.size, bool)
    working[found.ids[_worked(trace, tree) & own]] = True
    rows = np.flatnonzero(own & (working[found.ids] | ~working.any()))
    return rows[_chosen(trace, tree, rows)]


def _worked(trace: Trace, tree: RangeTree) -> Mask:
    """True for the ranges in which GPU work was launched, in them or in a range inside."""
    worked = np.zeros(len(tree.row), bool)
    found = attributed_operations(trace).range
    worked[found[found >= 0]] = True
    return tree.around(worked)


def _chosen(trace: Trace, tree: RangeTree, rows: Integers) -> Mask:
    """True for the repeated ranges that are at the level of the steps of their thread."""
    thread, depth = tree.nesting.track[rows], tree.depth[rows]
    threads = int(tree.nesting.track.max(initial=-1)) + 1
    steps = _named(trace, tree, rows, _STEP)
    least = _least(thread, depth, np.ones(len(rows), bool), threads)
    telling = np.where(_least(thread, depth, steps, threads)[thread] < NEVER, steps, True)
    level = _least(thread, depth, telling, threads)
    inside = _inside_epochs(trace, tree, rows) & (depth == least[thread] + 1) & ~steps
    unnamed = _least(thread, depth, steps, threads) == NEVER
    deeper = _least(thread, depth, inside & unnamed[thread], threads)
    level = np.where(deeper < NEVER, deeper, level)
    telling = np.where(deeper[thread] < NEVER, inside, telling) & (depth == level[thread])
    return _beside(tree, rows, telling)


def _named(trace: Trace, tree: RangeTree, rows: Integers, rule: re.Pattern[str]) -> Mask:
    """True for the ranges whose own name, numbers as #, fits."""
    names = trace.recorded("ranges").texts("name")
    fits = np.array([bool(rule.match(pattern_of(str(name)))) for name in names.values], bool)
    result: Mask = fits[names.codes[tree.row[rows]]] if len(rows) else np.zeros(0, bool)
    return result


def _least(thread: Array, depth: Array, counted: Mask, threads: int) -> Integers:
    """The least depth of the counted ranges of each thread."""
    least = np.full(threads, NEVER)
    np.minimum.at(least, thread[counted], depth[counted])
    return least


def _inside_epochs(trace: Trace, tree: RangeTree, rows: Integers) -> Mask:
    """True for the ranges that repeat within one range that is named like an epoch."""
    if not len(rows):
        return np.zeros(0, bool)
    parent = tree.parent[rows]
    epoch = np.zeros(len(tree.row) + 1, bool)
    epoch[rows[_named(trace, tree, rows, _EPOCH)]] = True
    if not epoch.any():
        return np.zeros(len(rows), bool)
    pattern = tree.path_pattern[tree.path[rows]]
    within = groups.group(parent, pattern)
    again = np.bincount(within.ids, minlength=within.size)[within.ids] > 1
    every = groups.group(tree.nesting.track[rows], pattern)
    repeats = np.zeros(every.size, bool)
    repeats[every.ids[again & epoch[parent]]] = True
    result: Mask = repeats[every.ids]
    return result


def _beside(tree: RangeTree, rows: Integers, telling: Mask) -> Mask:
    """True for the telling ranges, and those of their depth below the same parents."""
    if not len(rows):
        return telling
    parent = tree.parent[rows]
    pattern = tree.path_pattern[tree.path]
    around = np.where(parent >= 0, pattern[np.maximum(parent, 0)], -1)
    place = groups.group(tree.nesting.track[rows], tree.depth[rows], around)
    hit = np.zeros(place.size, bool)
    hit[place.ids[telling]] = True
    result: Mask = hit[place.ids]
    return result
