"""Names of steps and loops of steps, as reports show them and --range takes them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceview import groups
from traceview.facts.operations.operations import operations
from traceview.facts.ranges import origins, ranges
from traceview.facts.ranges.selection import RangeNames, matching_ranges, selecting_texts
from traceview.facts.steps.steps import pace, steps
from traceview.tables import MadeTexts, Texts, object_array
from traceview.trace import Trace, fact

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
    return MadeTexts(np.arange(len(names), dtype=np.int32), names)


@fact
def _names(trace: Trace) -> RangeNames:
    return selecting_texts(trace, steps(trace).range)


def selects_alone(trace: Trace, step: int, name: str) -> bool:
    """Whether --range with the name of a step selects it and no other range."""
    # Only a name with a / can be the path of another range, too.
    if _names(trace).unique[step] and "/" not in name:
        return True
    return np.flatnonzero(matching_ranges(trace, name)).tolist() == [steps(trace).range[step]]


@fact
def loop_names(trace: Trace) -> Texts:
    """The name of the loop of each step: the pattern of its path, with # for numbers.

    Where the loops of a series are compared separately, the range around the loop keeps its
    numbers; names that are equal even then get a number, as in `step_# (2)`.
    """
    loop = pace(trace).loop
    first = np.flatnonzero(groups.opens(loop))
    series = steps(trace).series[first].tolist()
    loops = Counter(series)
    all_steps, tree, names = steps(trace), ranges.range_tree(trace), []
    for step, number in zip(first.tolist(), series, strict=True):
        row = int(all_steps.range[step])
        if loops[number] == 1:
            names.append(tree.patterns[int(tree.path_pattern[tree.path[row]])])
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
