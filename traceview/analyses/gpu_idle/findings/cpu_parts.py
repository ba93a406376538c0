"""Idle time before late launches, divided by what the CPU did instead of launching."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview import intervals
from traceview.analyses.gpu_idle import accidents, line_sites
from traceview.facts.idle.gaps import Gaps, gaps, steady_spans_ns
from traceview.facts.idle.late_launches import LateSite, late_idle_in
from traceview.facts.idle.lines import IdleSamples
from traceview.facts.idle.stack_sites import stack_sites
from traceview.facts.ranges import origins, ranges
from traceview.findings import LostTime, severity_of
from traceview.intervals import Intervals
from traceview.tables import Integers, Mask
from traceview.trace import Trace
from traceview.vocabulary.activities import CPU
from traceview.vocabulary.causes import LAUNCH_LATE

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
    own &= ~accidents.in_accidents(trace)
    idle_ns, span_ns = int(every.idle_ns[own].sum()), steady_spans_ns(trace)[device]
    parts = cpu_parts(trace, line_sites.samples_of(trace, own), span_ns)
    if 2 * parts.time_ns > idle_ns:
        return True
    line = line_sites.longest_line(trace, parts.rest, idle_ns - parts.time_ns)
    rows = np.flatnonzero(own)
    site = None if parts.parts else late_idle_in(trace, rows).longest(device)
    return is_other_work(trace, line, site)
