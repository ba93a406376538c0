"""Places of work and of idle time: range patterns, relative to the step, and source lines."""

from __future__ import annotations

import numpy as np

from traceview.comparison.extraction.work import step_pattern, window_work
from traceview.facts.idle.gaps import every_gap
from traceview.facts.ranges.ranges import attributed_operations, range_tree
from traceview.tables import Array, Integers
from traceview.trace import Trace, fact


@fact
def work_places(trace: Trace) -> Integers:
    """The pattern of the range of each operation of `window_work`, −1 for none."""
    return _patterns(trace, window_work(trace).rows)


def gap_places(trace: Trace, rows: Integers) -> Integers:
    """The place of these gaps: that of the work that ended each."""
    return _patterns(trace, every_gap(trace).after[rows])


def _patterns(trace: Trace, operation: Integers) -> Integers:
    tree = range_tree(trace)
    path = attributed_operations(trace).path(tree)[operation]
    return tree.pattern_of_paths(path).astype(np.int64)


def place_texts(trace: Trace, place: Array) -> list[str]:
    """The texts of these places, empty for −1; the path below the step where it is in one."""
    patterns, step = range_tree(trace).patterns, step_pattern(trace)
    known = {-1: ""}
    for number in place.tolist():
        if number not in known:
            known[number] = below(patterns[number], step)
    return [known[number] for number in place.tolist()]


def below(path: str, step: str) -> str:
    """The part of a path below that of the step; the whole path outside of it."""
    if step and path == step:
        return ""
    return path.removeprefix(f"{step}/") if step else path
