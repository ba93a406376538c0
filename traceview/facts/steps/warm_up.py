"""What is set-up by the program's own word: the work launched in ranges named warm_up.

The trials of an autotuner and first calls belong there. Like all before the first step after
warm-up (steps.set_up_end_ns), such work is no loss that a longer run has, wherever the range is.
"""

from __future__ import annotations

import re

import numpy as np

from traceview import units
from traceview.facts.operations.operations import kernel_operations, operations
from traceview.facts.ranges.ranges import range_tree
from traceview.facts.ranges.selection import asked_ns, selected_operations, windows_of, within
from traceview.facts.steps.steps import set_up_end_ns
from traceview.intervals import Intervals
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

OF_SET_UP = "of set-up (before the first step after warm-up, or in ranges named warm_up)"
_WARM_UP = re.compile(r"warm[-_ ]?up(?: ?\{.*\})?", re.IGNORECASE | re.DOTALL)


@fact
def warm_up_windows(trace: Trace) -> dict[int, Intervals]:
    """Time in which a range named warm_up is open, by process.

    Empty where nothing but such work was selected: then it is what was asked about.
    """
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name")
    named = np.array([bool(_WARM_UP.fullmatch(str(name))) for name in names.values], bool)
    if not named.any() or not len(tree.row):
        return {}
    windows = windows_of(tree, named[names.codes[tree.row]])
    done, chosen = operations(trace), selected_operations(trace)
    inside = within(windows, done.process[chosen], asked_ns(trace)[chosen])
    return {} if inside.all() else windows


def in_warm_up(trace: Trace, process: Array, time: Integers) -> Mask:
    """True for the (process, time) pairs that are in a range named warm_up."""
    return within(warm_up_windows(trace), process, time)


@fact
def warm_up_operations(trace: Trace) -> Mask | None:
    """True for the operations launched in such a range; None where there is none."""
    if not warm_up_windows(trace):
        return None
    return in_warm_up(trace, operations(trace).process, asked_ns(trace))


def set_up_operations(trace: Trace) -> Mask:
    """True for all operations of set-up: before the first step after warm-up, and in warm_up."""
    return _before_steps(trace, operations(trace).start_ns)


@fact
def set_up_kernels(trace: Trace) -> Mask:
    """True for the kernels of set-up."""
    return set_up_operations(trace)[kernel_operations(trace)]


def launched_in_set_up(trace: Trace) -> Mask:
    """True for the operations that were asked for in set-up, whenever they ran.

    Where the CPU runs ahead, much of the first step runs after the second has begun: in a
    comparison of kernels a step counts as a whole or not at all.
    """
    return _before_steps(trace, asked_ns(trace))


def _before_steps(trace: Trace, time: Integers) -> Mask:
    """True for the operations whose time is, and for those launched in warm_up."""
    early: Mask = time < set_up_end_ns(trace)
    warm = warm_up_operations(trace)
    return early if warm is None else early | warm


def told(trace: Trace) -> tuple[str, ...]:
    """A note on what counts as set-up for its range's name; none where nothing does."""
    warm = warm_up_operations(trace)
    many = int((warm & selected_operations(trace)).sum()) if warm is not None else 0
    if not many:
        return ()
    return (f"{units.counted(many, 'operation')} launched in ranges named warm_up count as set-up",)
