"""Variants of one computation: the program's own kernels of one grid and of like names.

Tutorials and searches for the best version run several of them, one after another: a comparison.
What the CPU does between these, such as checking a result, is no part of a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Mask, RowNumbers
from traceview.base.tables.arrays import row_numbers
from traceview.traces.facts.idle import gaps
from traceview.traces.facts.kernel_classes import KernelOwner, kernel_owners
from traceview.traces.facts.ranges.selection import selected_kernels
from traceview.traces.trace import Trace, fact

_SIDES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_LEAST_CALLS = 5
"""Calls of each kernel of a comparison; a kernel that runs once or twice may be of the start."""
_HOW = re.compile(
    r"kernel|gpu|cuda|naive|simple|basic|base|opt|fast|slow|share|smem|mem|global|regist|coales"
    r"|uncoal|strid|tile|block|warp|thread|bank|conflict|free|pad|unroll|vec|float|double|coarse"
    r"|diag|cach|const|texture|row|col|with|and$|version|improved|better|good|bad"
)
"""Words by which programs tell variants of one kernel apart."""


def words(name: str) -> frozenset[str]:
    """The words of a name that say what it does, without those that say how, and numbers."""
    every = {word.lower() for word in re.findall(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}", name)}
    return frozenset(word for word in every if not _HOW.match(word))


@record
class KernelVariant:
    """The selected launches of one kernel, their usual time, and what its name says it does."""

    rows: RowNumbers
    usual_ns: int
    words: frozenset[str]
    start_ns: int
    end_ns: int


def of_same_grid(trace: Trace, row: int) -> tuple[KernelVariant, ...]:
    """The own kernels on the GPU, of the grid and block of this one, that one included."""
    kernels, owners = trace.recorded("kernels"), kernel_owners(trace)
    alike = (kernels["device"] == kernels["device"][row]) & selected_kernels(trace)
    alike &= owners == KernelOwner.PROGRAM
    for side in _SIDES:
        alike &= kernels[side] == kernels[side][row]
    rows, names = np.flatnonzero(alike), kernels.texts("short_name")
    by_name = (rows[own] for own in groups.rows_of(names.codes[rows]).values())
    return tuple(
        KernelVariant(
            row_numbers(own),
            round(float(np.median(kernels.duration_ns[own]))),
            words(str(names[int(own[0])])),
            int(kernels["start_ns"][own].min()),
            int(kernels["end_ns"][own].max()),
        )
        for own in by_name
    )


def compared(variants: Sequence[KernelVariant]) -> bool:
    """Whether kernels run equally often, each in a time of its own: a comparison."""
    calls = {len(each.rows) for each in variants}
    ordered = sorted(variants, key=lambda each: each.start_ns)
    apart = all(one.end_ns <= after.start_ns for one, after in pairwise(ordered))
    return len(variants) > 1 and len(calls) == 1 and calls.pop() >= _LEAST_CALLS and apart


@fact
def between_compared(trace: Trace) -> Mask:
    """True for gaps between kernels that the program compares."""
    every = gaps.gaps(trace)
    result = np.zeros(len(every), bool)
    for its in _comparisons(trace):
        device = int(trace.recorded("kernels")["device"][its[0].rows[0]])
        for one, after in pairwise(sorted(its, key=lambda each: each.start_ns)):
            inside = (every.start_ns >= one.end_ns) & (every.end_ns <= after.start_ns)
            result |= inside & (every.device == device)
    return result


def _comparisons(trace: Trace) -> Iterator[tuple[KernelVariant, ...]]:
    """The kernels of each grid that are compared, some of them by names that are alike."""
    kernels = trace.recorded("kernels")
    rows = np.flatnonzero(selected_kernels(trace) & (kernel_owners(trace) == KernelOwner.PROGRAM))
    by_grid = groups.group(kernels["device"][rows], *(kernels[side][rows] for side in _SIDES))
    by_name = groups.group(by_grid.ids, kernels.texts("short_name").codes[rows])
    calls, grid = groups.count(by_name), by_grid.ids[by_name.first]
    number = np.bincount(grid, minlength=by_grid.size)
    # As often as the first kernel of the grid.
    equal = calls == calls[by_name.ids[by_grid.first[grid]]]
    alike = np.bincount(grid, equal, minlength=by_grid.size) == number
    for place in np.flatnonzero(alike & (number > 1)).tolist():
        its = of_same_grid(trace, int(rows[by_grid.first[place]]))
        said = [each.words for each in its if each.words]
        if len(set(said)) < len(said) and compared(its):
            yield its
