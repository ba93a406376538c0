"""Idle time of late launches, by where the launching thread was meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceview import groups, units
from traceview.facts.idle.cpu_activity import ON_ITS_WAY, OUTSIDE, PLACES, cpu_places
from traceview.facts.idle.gaps import LAUNCH_LATE, gaps
from traceview.facts.ranges.paths import UNATTRIBUTED, Paths
from traceview.facts.ranges.ranges import range_tree
from traceview.findings import shortened
from traceview.tables import Array, Column, Integers, Table, Texts, object_array
from traceview.trace import Trace, fact

ELSEWHERE_NS = 200_000
"""The Python of one torch operation takes some 10 to 50 µs: a gap that holds more than this of
work outside CUDA is not about how costly launches are."""
TAKE_OUT = (
    "Take this CPU work out of the loop: do it on another thread or process (DataLoader workers) "
    "or earlier, so that launches come before the GPU runs dry."
)
"""What to do where it is of the kind that `Worst.elsewhere` means."""


@dataclass(frozen=True)
class Worst:
    """The place with most steady idle time, as the end of a sentence.

    `elsewhere` is True where the CPU did other work there, rather than prepare its launches.
    """

    text: str
    elsewhere: bool


@dataclass(frozen=True)
class LatePlaces:
    """One row a device, range pattern and place; `time_ns` adds up to all launch-late idle.

    `device` is its row in devices, which several machines number alike (`device_id`).
    `steady_ns` is what of it a longer run repeats, `steady_gaps` the gaps with some of that.
    """

    device: Array
    device_id: Array
    pattern: Array
    where: Integers
    place: Array
    gaps: Integers
    time_ns: Integers
    steady_ns: Integers
    steady_gaps: Integers
    share_pct: Array

    def table(self, columns: Sequence[Column]) -> Table:
        """The rows, most steady idle first, then most idle."""
        order = np.lexsort((-self.time_ns, -self.steady_ns))
        data: dict[str, Array | Texts] = {
            "device_id": self.device_id,
            "range_pattern": Texts.of(self.pattern),
            "where": Texts.of(self.place),
            "gaps": self.gaps,
            "idle_ns": self.time_ns,
            "share_pct": self.share_pct,
            "steady_idle_ns": self.steady_ns,
        }
        return Table(columns, data).take(order)

    def worst(self, device: int) -> Worst | None:
        """Where the CPU itself was longest after set-up while that GPU idled; None if nowhere."""
        asked = (self.where != ON_ITS_WAY) & (self.device == device)
        steady = np.where(asked, self.steady_ns, 0)
        if not steady.any():
            return None
        row = int(np.argmax(steady))
        path = str(self.pattern[row])
        where = "outside any range" if path == UNATTRIBUTED else f"in {shortened(path)}"
        outside = int(self.where[row]) == OUTSIDE
        doing = f"{self.place[row]} (Python or other work)" if outside else f"in {self.place[row]}"
        if self.where[row] < OUTSIDE:
            doing = str(self.place[row])
        time = units.duration(int(steady[row]))
        long = int(steady[row]) > ELSEWHERE_NS * int(self.steady_gaps[row])
        return Worst(f"for {time} of it the launching thread was {doing} {where}", outside and long)


@fact
def late_places(trace: Trace) -> LatePlaces:
    late = gaps(trace)
    part = cpu_places(trace).of(late.cause == LAUNCH_LATE)
    pattern, texts = _patterns(trace, part.range)
    each = groups.group(late.device[part.gap], pattern, part.where)
    time = groups.sums(each, part.time_ns)
    first = each.first
    device = late.device[part.gap[first]]
    mine = late.cause == LAUNCH_LATE
    whole = np.array([late.idle_ns[mine & (late.device == d)].sum() for d in device], np.int64)
    names = trace.recorded("api_calls").texts("name").values
    steady = ~late.one_time[part.gap]
    where = part.where[first]
    return LatePlaces(
        device=device,
        device_id=trace.devices["device_id"][device],
        pattern=object_array(
            [texts[p] if p >= 0 else UNATTRIBUTED for p in pattern[first].tolist()]
        ),
        where=where,
        place=object_array([str(names[w]) if w >= 0 else PLACES[w] for w in where.tolist()]),
        gaps=_distinct(each.ids, part.gap, each.size),
        time_ns=time,
        steady_ns=groups.sums(each, np.where(steady, part.time_ns, 0)),
        steady_gaps=_distinct(each.ids[steady], part.gap[steady], each.size),
        share_pct=100.0 * time / np.maximum(whole, 1),
    )


def _patterns(trace: Trace, rows: Integers) -> tuple[Integers, Paths]:
    tree = range_tree(trace)
    if not len(tree.path):
        return np.full(len(rows), -1, np.int64), tree.patterns
    return np.where(rows >= 0, tree.path_pattern[tree.path[rows]], -1), tree.patterns


def _distinct(ids: Integers, gap: Integers, size: int) -> Integers:
    """How many different gaps each group holds parts of."""
    pairs = groups.group(ids, gap)
    return np.bincount(ids[pairs.first], minlength=size).astype(np.int64)
