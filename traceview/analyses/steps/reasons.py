"""Why a step took longer than the others of its loop, in a few words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceview import groups, units
from traceview.analyses.steps.parts import (
    BEFORE_WORK,
    COMPUTING,
    FOREIGN_WORK,
    IDLE,
    OTHER_WORK,
    PARTS,
    WAITING,
    step_parts,
)
from traceview.facts.idle.causes import CAUSES, SYNC_DRAIN
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.ranges.ranges import attribute, range_tree
from traceview.facts.steps.steps import pace
from traceview.tables import Array, Integers, MadeTexts, Texts, TextValues, object_array
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
_DRAINED = PARTS.index(f"{IDLE}{CAUSES[SYNC_DRAIN]}")


@fact
def reasons(trace: Trace) -> Texts:
    """For each warm-up step and outlier the parts that exceed their medians most; else absent."""
    timed = pace(trace)
    unlike = timed.warm_up | timed.outlier
    like = np.flatnonzero(timed.timed & ~unlike)
    some = np.zeros(int(timed.loop.max(initial=-1)) + 1, bool)
    some[timed.loop[like]] = True
    rows = np.flatnonzero(unlike & some[timed.loop])
    codes = np.full(len(unlike), -1, np.int32)
    codes[rows] = np.arange(len(rows))
    return MadeTexts(codes, _Said(trace, rows, like))


@dataclass(frozen=True)
class _Said:
    """What is said of some steps that are unlike the `like` ones of their loops."""

    trace: Trace
    rows: Integers
    like: Integers

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def every(self) -> TextValues:
        return self.some(np.arange(len(self)))

    def some(self, codes: Array) -> TextValues:
        """The texts of some of these steps."""
        timed, rows = pace(self.trace), self.rows[codes]
        parts, between = self._usual
        more = step_parts(self.trace).part_ns[rows] - parts[timed.loop[rows]]
        _net(more)
        excess = (timed.took_ns - timed.median_ns)[rows].tolist()
        apart = step_parts(self.trace).between_ns[rows] - between[timed.loop[rows]]
        drained = _drained_in(self.trace, rows[more[:, _DRAINED] > 0])
        each = zip(rows.tolist(), more, excess, apart.tolist(), strict=True)
        return object_array([_said(drained.get(row, ""), *what) for row, *what in each])

    @cached_property
    def _usual(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Medians of the parts of the like steps of each loop, and of `between_ns`."""
        loop, parts = pace(self.trace).loop, step_parts(self.trace)
        of, loops = loop[self.like], int(loop.max(initial=-1)) + 1
        usual = np.zeros((loops, len(PARTS)), order="F")
        for place in np.flatnonzero(parts.part_ns.any(axis=0)):
            usual[:, place] = groups.medians(of, loops, parts.part_ns[self.like, place])
        return usual, groups.medians(of, loops, parts.between_ns[self.like])


def _net(more: npt.NDArray[np.float64]) -> None:
    """Leaves what grew, less what shrank beside it.

    Idle time of one cause may replace that of another.
    """
    for columns in (np.flatnonzero(~_IS_IDLE), np.flatnonzero(_IS_IDLE)):
        grown = np.clip(more[:, columns], 0.0, None)
        total, net = grown.sum(axis=1), np.maximum(more[:, columns].sum(axis=1), 0.0)
        share = np.divide(net, total, out=np.zeros(len(total)), where=total > 0)
        more[:, columns] = grown * share[:, np.newaxis]


def _said(drained: str, more: npt.NDArray[np.float64], excess: float, between: float) -> str:
    """The parts of one step that grew most. `between` is how much longer the GPU was idle
    while the CPU had left the step before and not begun this one."""
    largest = np.argsort(-more, kind="stable")[:MOST_REASONS]
    telling = [int(part) for part in largest if more[part] >= LEAST_SHARE * excess]
    words = [_words(drained, part, float(more[part]), between) for part in telling]
    return "; ".join(words) or f"{units.duration(excess)} more, of no single cause"


def _words(drained: str, part: int, more_ns: float, between: float) -> str:
    name = PARTS[part]
    idle = name.startswith(IDLE)
    what = _AT_LENGTH.get(name) or (f"idle by {name.removeprefix(IDLE)}" if idle else name)
    if part == _DRAINED:
        what += drained
    elif idle and between >= more_ns / 2:
        what += " while the CPU was between the steps"
    return f"{units.duration(more_ns)} more {what}"


def _drained_in(trace: Trace, rows: Integers) -> dict[int, str]:
    """The call, and its range, that the longest idle time after a synchronization is due to.

    By step, for those of the given ones that have such time.
    """
    timed, drains = pace(trace), _drains(trace)
    if not len(drains.row):
        return {}
    first = np.searchsorted(drains.reach_ns, timed.begin_ns[rows], side="right")
    last = np.searchsorted(drains.start_ns, timed.end_ns[rows], side="left")
    longest = {
        row: drains.longest(slice(*within), begin)
        for row, begin, *within in np.stack((rows, timed.begin_ns[rows], first, last), 1).tolist()
    }
    told = {row: wait for row, wait in longest.items() if wait >= 0}
    return dict(zip(told, _places(trace, np.array(list(told.values()), np.int64)), strict=True))


@dataclass(frozen=True)
class _Drains:
    """Gaps that a synchronization left, in order of start; `reach_ns` is the latest end so far."""

    row: Integers
    start_ns: Integers
    end_ns: Integers
    reach_ns: Integers
    wait: Integers

    def longest(self, within: slice, begin_ns: int) -> int:
        """The wait of the longest gap of some that ends after a time, −1 if none does."""
        late = np.flatnonzero(self.end_ns[within] > begin_ns)
        if not len(late):
            return -1
        length = (self.end_ns[within] - self.start_ns[within])[late]
        longest = late[length == length.max()]
        return int(self.wait[within][longest[np.argmin(self.row[within][longest])]])


@fact
def _drains(trace: Trace) -> _Drains:
    gap = gaps(trace)
    rows = np.flatnonzero((gap.wait >= 0) & (gap.cause == SYNC_DRAIN))
    rows = rows[np.argsort(gap.start_ns[rows], kind="stable")]
    start, end = gap.start_ns[rows], gap.end_ns[rows]
    return _Drains(rows, start, end, np.maximum.accumulate(end), gap.wait[rows])


def _places(trace: Trace, wait: Integers) -> list[str]:
    """The call of each wait and the range that it was made in."""
    stood, tree = waits(trace), range_tree(trace)
    api = trace.api_calls.texts("name").take(stood.call[wait]).decode()
    found = attribute(trace, stood.thread[wait], stood.process[wait], stood.start_ns[wait])
    return [
        f" ({name} in {tree.paths[path]})" if path >= 0 else f" ({name})"
        for name, path in zip(api, found.path(tree).tolist(), strict=True)
    ]
