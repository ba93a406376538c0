"""Ranges that an edit names: by name, path, glob, or the pattern of a series, such as `step`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from traceview.edits.scope import no_match
from traceview.errors import InputError
from traceview.facts.ranges.ranges import patterns_of, range_tree
from traceview.facts.ranges.selection import matching_ranges, windows_of
from traceview.facts.steps.steps import steps
from traceview.intervals import Intervals, union
from traceview.tables import Array, Mask, RowNumbers, picked
from traceview.trace import Trace

_NUMBER = re.compile(r"[\W_]*#$")
STEP = "step"
"""Names the steps, whatever their ranges are called, also where they were inferred."""


def named_ranges(trace: Trace, text: str) -> Mask:
    """True for the ranges of the tree that a text names.

    A text is a name, a path or a glob, as `--range` takes it; or a name or path with numbers as #,
    with or without a number at its end: `step_#` and `step` name `step_0`, `step_1`, …
    """
    tree = range_tree(trace)
    if not len(tree.row):
        return np.zeros(0, bool)
    # Patterns are few: the texts of all paths would be made for a glob alone.
    for without_number in (False, True):
        found = _by_pattern(trace, text, without_number)
        if found.any():
            return found
    found = matching_ranges(trace, text)
    if not found.any() and text.lower() in (STEP, f"{STEP}s", f"{STEP}_#"):
        found[steps(trace).range] = True
    return found


def _by_pattern(trace: Trace, text: str, without_number: bool) -> Mask:
    """True for the ranges whose name or path has numbers as # and then is a text."""
    tree, names = range_tree(trace), trace.recorded("ranges").texts("name")

    def hit(patterns: Iterable[str]) -> Mask:
        fits = (text == (_NUMBER.sub("", each) if without_number else each) for each in patterns)
        return np.array([*fits, False], bool)

    found: Mask = hit(patterns_of(list(map(str, names.values))))[picked(names.codes, tree.of_table)]
    found |= hit(tree.patterns)[tree.path_pattern[tree.path]]
    return found


def no_range(trace: Trace, text: str, what: str = "range", hint: str = "") -> InputError:
    """The error where a text names no range."""
    patterns = [path for path in range_tree(trace).patterns if not path.startswith("traceview:")]
    return no_match(what, text, patterns, hint)


def instances(trace: Trace, hit: Mask) -> RowNumbers:
    """For each range of the tree the outermost one of a mask around it, or −1."""
    tree = range_tree(trace)
    number = np.where(hit, np.arange(len(hit)), -1).astype(np.int32)
    around = tree.own_or_inherited(number)
    above = np.where(tree.parent >= 0, around[tree.parent], -1)
    outermost = np.where(hit & (above < 0), number, -1).astype(np.int32)
    return tree.own_or_inherited(outermost)


def windows(trace: Trace, hit: Mask, thread: int) -> Intervals:
    """When one of some ranges is open for a thread.

    On a thread without any ranges, such as autograd's, those of its process count.
    """
    tree = range_tree(trace)
    own = tree.nesting.track == thread
    if own.any():
        rows = np.flatnonzero(hit & own)
        return union(tree.nesting.start[rows], tree.nesting.end[rows])
    process = int(trace.threads["process"][thread])
    empty: Array = np.zeros(0, np.int64)
    return windows_of(tree, hit).get(process, Intervals(empty, empty))
