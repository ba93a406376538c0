"""A finding for some idle gaps of one GPU, and the parts of late launches by what the CPU
did instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from traceview import intervals, units
from traceview.analyses.gpu_idle import line_sites
from traceview.analyses.wording import lost_in
from traceview.facts.idle.cpu_activity import LateSite, late_idle_in
from traceview.facts.idle.gaps import Gaps, device_work, gaps, steady_spans_ns
from traceview.facts.idle.lines import IdleSamples
from traceview.facts.idle.stack_sites import stack_sites
from traceview.facts.idle.typical import typical_gap
from traceview.facts.ranges import origins, ranges
from traceview.findings import Evidence, Finding, LostTime, Severity, severity_of, share_pct
from traceview.intervals import Intervals
from traceview.rules import gpu_name, gpu_subject
from traceview.tables import Cell, Integers, Mask
from traceview.trace import Trace
from traceview.vocabulary.activities import CPU
from traceview.vocabulary.causes import CAUSE_NAMES, LAUNCH_LATE

# A finding for some idle gaps of one GPU, and which GPU that is.
#
# GPUs that idle at the same time lose the time of the program once. So the time at stake is that
# of one GPU, and a share of its own steady time.

# Message and action of a finding while they are put together.

_LEAST_PART = 0.02


@dataclass
class Wording:
    """Message and action of a finding while they are put together, with their evidence values."""

    template: str
    remedy: str
    values: dict[str, Cell] = field(default_factory=dict)
    names_part: bool = False
    """Whether a sentence names less than all of the idle time: "of that" would refer to it."""

    def add(self, sentence: str, **values: Cell) -> None:
        """Append a sentence, which starts with a blank, and its values."""
        self.template += sentence
        self.values.update(values)

    def add_part(self, name: str, part_ns: int, rest: str, **values: Cell) -> None:
        """Append a sentence on a part of the idle time: `147 ms of that` and the rest.

        Words replace the number where it would read the same as the whole. A part that is too small
        is left out.
        """
        whole = self.values["idle_ns"]
        if part_ns < _LEAST_PART * int(whole or 0):
            return
        self.names_part |= part_ns != whole
        what = f"{{{name}}} of that"
        if part_ns == whole:
            what = "All of it"
        elif units.quantity(name, part_ns) == units.quantity(name, whole):
            what = "Nearly all of it"
        self.add(f" {what} {rest}", **{name: part_ns}, **values)


class LostIdle(NamedTuple):
    """Idle time of one GPU (row in devices): the gaps, and how much of their time counts."""

    device: int
    gaps: Mask
    idle_ns: int


class Shown(NamedTuple):
    """The evidence of a finding: cells of a table row, and a part of a gap, or a typical one."""

    table: str
    row: dict[str, Cell]
    gap: int | None = None


def opening_sentence(trace: Trace, idle: LostIdle, lost: str, action: str) -> Wording:
    """`The GPU sat idle for 147 ms (135 gaps) waiting …`; GPUs are numbered if several worked."""
    device, own, idle_ns = idle
    gpu = "The GPU" if len(device_work(trace)) == 1 else gpu_name(trace, device)
    values: dict[str, Cell] = {"idle_ns": idle_ns, "gaps": gaps(trace).count(own)}
    # Rare samples stand for gaps without samples too, whose number is unknown.
    counted = " ({gaps:gap})" if gaps(trace).idle_ns[own].sum() >= idle_ns else ""
    return Wording(f"{gpu} sat idle for {{idle_ns}}{counted} {lost}.", action, values)


def gap_finding(
    trace: Trace, severity: Severity, wording: Wording, idle: LostIdle, shown: Shown
) -> Finding:
    """The finding for some gaps of one GPU; its window is the gap that shows it.

    Time of warm-up is not part of a step.
    """
    every, (device, own, idle_ns) = gaps(trace), idle
    table, row, gap = shown
    if gap is None and (own & ~every.one_time).any():
        gap = typical_gap(trace, every, own)
    elif gap is None:
        gap = int(np.argmax(np.where(own, every.idle_ns, -1)))
    start_ns, end_ns = int(every.start_ns[gap]), int(every.end_ns[gap])
    steady = not every.one_time[gap]
    return Finding(
        severity,
        wording.template,
        wording.remedy,
        idle_ns,
        gpu_subject(trace, device),
        Evidence(wording.values, table, row, start_ns, end_ns),
        share_pct(idle_ns, steady_spans_ns(trace)[device]) if steady else None,
        CAUSE_NAMES[every.cause[gap]] if steady else "",
        lost_in(every, own) if steady else None,
    )


def most_idle(trace: Trace, chosen: Mask) -> tuple[int, int]:
    """The GPU (row in devices) that idled longest in the chosen gaps, and its time there."""
    every = gaps(trace)
    idle = {
        device: int(every.idle_ns[chosen & (every.device == device)].sum())
        for device in steady_spans_ns(trace)
    }
    device = max(idle, key=lambda each: idle[each], default=-1)
    return device, idle.get(device, 0)


MOST_FUNCTIONS = 2
"""Functions with other CPU work that get a finding of their own."""


class CpuPart(NamedTuple):
    """Idle time in which the CPU did one thing but launching: `doing`, a place in ACTIVITIES."""

    doing: int
    samples: IdleSamples
    time_ns: int


class CpuParts(NamedTuple):
    """The parts that are worth a finding each, and the samples of all other idle time."""

    parts: tuple[CpuPart, ...]
    rest: IdleSamples

    @property
    def time_ns(self) -> int:
        return sum(part.time_ns for part in self.parts)

    def by_doing(self) -> dict[int, int]:
        """Time of the parts in ns, by what the CPU did."""
        doings = {part.doing for part in self.parts}
        return {
            doing: sum(part.time_ns for part in self.parts if part.doing == doing)
            for doing in sorted(doings)
        }


def cpu_parts(trace: Trace, samples: IdleSamples, span_ns: int) -> CpuParts:
    """The parts of idle time that are a loss of medium severity or more of `span_ns`.

    Each kind of wait is one part. Work on the CPU is one part for each of the functions with most
    of it, or for a line outside of functions.
    """
    parts = []
    for doing, time_ns in line_sites.off_cpu_times(samples).items():
        if _counts(time_ns, span_ns):
            alike = samples.doing == doing
            parts.append(CpuPart(doing, samples.take(alike), time_ns))
            samples = samples.take(~alike)
    for _ in range(MOST_FUNCTIONS):
        own = _of_longest_function(trace, samples)
        time_ns = int(samples.time_ns[own].sum())
        if not _counts(time_ns, span_ns) or not line_sites.longest_line(
            trace, samples.take(own), time_ns
        ):
            break
        parts.append(CpuPart(CPU, samples.take(own), time_ns))
        samples = samples.take(~own)
    return CpuParts(tuple(parts), samples)


def _of_longest_function(trace: Trace, samples: IdleSamples) -> Mask:
    """True for the samples at work other than launching, in the function with most of it."""
    function = stack_sites(trace).function_number[samples.site]
    chosen = line_sites.works_on_cpu(trace, samples) & (function >= 0)
    time_ns = np.bincount(function[chosen], samples.time_ns[chosen], minlength=1)
    result: Mask = chosen & (function == np.argmax(time_ns))
    return result


def lost_times(
    every: Gaps, parts: CpuParts, device: int, own: Mask
) -> tuple[list[LostTime], LostTime]:
    """The lost time of each part in its gaps, and of the rest in the gaps `own` of a device.

    Samples show how much of a gap each part took: the gap is divided among the parts in order.
    """
    begin, lost = every.start_ns.copy(), []
    for part in parts.parts:
        took = np.bincount(part.samples.gap, part.samples.time_ns, len(every)).astype(np.int64)
        until = np.minimum(begin + took, every.end_ns)
        lost.append(LostTime(device, _union(begin, until)))
        begin = until
    return lost, LostTime(device, _union(begin[own], every.end_ns[own]))


def _union(start: Integers, end: Integers) -> Intervals:
    some = end > start
    return intervals.union(start[some], end[some])


def _counts(time_ns: int, span_ns: int) -> bool:
    return severity_of(time_ns, span_ns) in ("high", "medium")


# Whether the CPU launches late because it does other work: then fewer launches would not help.


def range_pattern(trace: Trace, site: LateSite) -> str | None:
    """The path pattern of the range that a site is in; None outside any range."""
    return ranges.range_tree(trace).patterns[site.pattern] if site.pattern >= 0 else None


def is_in_library(trace: Trace, site: LateSite) -> bool:
    """Whether a site is in a range of a library, whose CPU code is part of the cost of launches."""
    pattern = range_pattern(trace, site)
    return pattern is not None and origins.is_library_name(pattern.rpartition("/")[2])


def is_other_work(trace: Trace, line: line_sites.LineSite | None, site: LateSite | None) -> bool:
    """Whether the CPU does other work at the line with most of the time, or without one at a site.

    What else a program does can be moved; what a library does can only be done less often.
    """
    if line:
        return line.other_work
    return site is not None and site.other_work and not is_in_library(trace, site)


def does_other_work(trace: Trace, device: int) -> bool:
    """Whether other work or waits of the CPU take most of a device's steady launch-late idle time.

    By the same rules as the remedies of the findings on that time.
    """
    every = gaps(trace)
    own = (every.device == device) & ~every.one_time & (every.cause == LAUNCH_LATE)
    own &= ~line_sites.in_accidents(trace)
    idle_ns, span_ns = int(every.idle_ns[own].sum()), steady_spans_ns(trace)[device]
    parts = cpu_parts(trace, line_sites.samples_of(trace, own), span_ns)
    if 2 * parts.time_ns > idle_ns:
        return True
    line = line_sites.longest_line(trace, parts.rest, idle_ns - parts.time_ns)
    rows = np.flatnonzero(own)
    site = None if parts.parts else late_idle_in(trace, rows).longest(device)
    return is_other_work(trace, line, site)
