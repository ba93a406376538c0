"""Why a step took longer than the others of its series, in a few words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview import units
from traceview.facts.idle import CAUSES, SYNC_DRAIN, gaps
from traceview.facts.ranges import attribute, range_tree
from traceview.facts.step_parts import (
    BEFORE_WORK,
    COMPUTING,
    FOREIGN_WORK,
    IDLE,
    OTHER_WORK,
    PARTS,
    WAITING,
    step_parts,
)
from traceview.facts.steps import pace, series_of, steps
from traceview.facts.waits import waits
from traceview.trace import Trace, fact

MOST_REASONS, LEAST_SHARE = 2, 0.25
"""At most so many parts are named, and of the excess each has to explain so much."""
_AT_LENGTH = {
    OTHER_WORK: "GPU work from outside the steps",
    FOREIGN_WORK: "GPU work of other processes",
    BEFORE_WORK: "time before the GPU's first work",
    WAITING: "CPU time in synchronizations",
    COMPUTING: "CPU time",
}
_IS_IDLE = np.array([name.startswith(IDLE) for name in PARTS])
_DRAINED = PARTS.index(f"{IDLE}{list(CAUSES)[SYNC_DRAIN]}")


@fact
def reasons(trace: Trace) -> list[str | None]:
    """For each warm-up step and outlier the parts that exceed their medians most; else None."""
    timed, parts = pace(trace), step_parts(trace)
    unlike = timed.warm_up | timed.outlier
    said: list[str | None] = [None] * len(unlike)
    for rows in series_of(steps(trace)):
        like = rows[timed.timed[rows] & ~unlike[rows]]
        if not len(like):
            continue
        usual = np.median(parts.part_ns[like], axis=0)
        between = float(np.median(parts.between_ns[like]))
        for row in rows[unlike[rows]].tolist():
            more = _netted(parts.part_ns[row] - usual)
            excess = float(timed.took_ns[row] - timed.median_ns[row])
            said[row] = _said(trace, row, more, excess, parts.between_ns[row] - between)
    return said


def _netted(more: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What grew, less what shrank beside it: idle time of one cause may replace that of another."""
    grown = np.clip(more, 0.0, None)
    for group in (~_IS_IDLE, _IS_IDLE):
        total = grown[group].sum()
        grown[group] *= max(more[group].sum(), 0.0) / total if total else 0.0
    return grown


def _said(
    trace: Trace, row: int, more: npt.NDArray[np.float64], excess: float, between: float
) -> str:
    """The parts of one step that grew most. `between` is how much longer the GPU was idle
    while the CPU had left the step before and not begun this one."""
    largest = np.argsort(-more, kind="stable")[:MOST_REASONS]
    telling = [int(part) for part in largest if more[part] >= LEAST_SHARE * excess]
    words = [_words(trace, row, part, float(more[part]), between) for part in telling]
    return "; ".join(words) or f"{units.duration(excess)} more, of no single cause"


def _words(trace: Trace, row: int, part: int, more_ns: float, between: float) -> str:
    name = PARTS[part]
    idle = name.startswith(IDLE)
    what = _AT_LENGTH.get(name) or (f"idle by {name.removeprefix(IDLE)}" if idle else name)
    if part == _DRAINED:
        what += _drained_in(trace, row)
    elif idle and between >= more_ns / 2:
        what += " while the CPU was between the steps"
    return f"{units.duration(more_ns)} more {what}"


def _drained_in(trace: Trace, row: int) -> str:
    """The call, and its range, that the longest idle time after a synchronization is due to."""
    timed, gap, stood = pace(trace), gaps(trace), waits(trace)
    mine = np.flatnonzero(
        (gap.wait >= 0) & (gap.start_ns < timed.end_ns[row]) & (gap.end_ns > timed.begin_ns[row])
    )
    mine = mine[gap.cause[mine] == SYNC_DRAIN]
    if not len(mine):
        return ""
    wait = gap.wait[mine[np.argmax(gap.idle_ns[mine])]]
    api = trace.api_calls.texts("name")[int(stood.call[wait])]
    place = slice(wait, wait + 1)
    found = attribute(trace, stood.thread[place], stood.process[place], stood.start_ns[place])
    tree = range_tree(trace)
    path = int(found.path(tree)[0])
    return f" ({api} in {tree.paths[path]})" if path >= 0 else f" ({api})"
