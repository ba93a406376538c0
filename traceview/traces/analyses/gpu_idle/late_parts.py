"""Idle time of one cause on one GPU: the parts in which the CPU did one thing but launching, and
the line or range with most of the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import LostTime, severity_of
from traceview.base.records import record
from traceview.base.tables import Mask
from traceview.base.vocabulary.activities import CPU
from traceview.base.vocabulary.causes import GARBAGE_COLLECTION, LAUNCH_LATE
from traceview.traces.analyses.gpu_idle import line_sites
from traceview.traces.facts.idle.cpu_activity import ELSEWHERE_NS, LateSite, late_idle_in
from traceview.traces.facts.idle.gaps import gaps, steady_spans_ns
from traceview.traces.facts.idle.lines import IdleSamples
from traceview.traces.facts.idle.stack_sites import stack_sites
from traceview.traces.facts.ranges import origins, ranges
from traceview.traces.facts.samples import UNNAMED_FUNCTIONS
from traceview.traces.trace import Trace

MOST_FUNCTIONS = 2
"""Functions with other CPU work that get a finding of their own."""


class CpuPart(NamedTuple):
    """Idle time in which the CPU did one thing but launching: `doing`, a place in ACTIVITIES.

    Where it is `hidden`, samples tell that it was around calls of a function, not where it was.
    """

    doing: int
    samples: IdleSamples
    time_ns: int
    hidden: bool = False


@record
class Habit:
    """Idle time of one cause on one GPU, but for accidents: `gaps`, a mask.

    `parts` are worth a finding each; `idle_ns` is the time without them, `rest` its samples. Most
    of that is at `line`, and of late launches, the parts among them, at `site`.
    """

    device: int
    gaps: Mask
    parts: tuple[CpuPart, ...]
    rest: IdleSamples
    idle_ns: int
    line: line_sites.LineSite | None
    site: LateSite | None

    def by_doing(self) -> dict[int, int]:
        """Time of the parts in ns, by what the CPU did."""
        result: dict[int, int] = {}
        for part in sorted(self.parts, key=lambda each: each.doing):
            result[part.doing] = result.get(part.doing, 0) + part.time_ns
        return result

    def lost(self, trace: Trace) -> list[LostTime]:
        """The lost time of each part in its gaps, and behind them that of the rest.

        Samples show how much of a gap each part took: the gap is divided among the parts in order.
        """
        every, result = gaps(trace), []
        begin = every.start_ns
        for part in self.parts:
            took = np.bincount(part.samples.gap, part.samples.time_ns, len(every)).astype(np.int64)
            until = np.minimum(begin + took, every.end_ns)
            some = until > begin
            result.append(LostTime(self.device, intervals.union(begin[some], until[some])))
            begin = until
        some = self.gaps & (every.end_ns > begin)
        rest = intervals.union(begin[some], every.end_ns[some])
        return [*result, LostTime(self.device, rest)]


def habit(trace: Trace, cause: int, device: int, own: Mask) -> Habit:
    """What most steady idle time `own` of a cause on a device passed in."""
    late, every = cause == LAUNCH_LATE, line_sites.samples_of(trace, own)
    parts, rest = _parts(trace, own, every, steady_spans_ns(trace)[device]) if late else ([], every)
    idle_ns = int(gaps(trace).idle_ns[own].sum()) - sum(part.time_ns for part in parts)
    # Where Python collects garbage, the line at that moment did not make it.
    line = None if cause == GARBAGE_COLLECTION else line_sites.longest_line(trace, rest, idle_ns)
    site = late_idle_in(trace, np.flatnonzero(own)).longest(device) if late else None
    return Habit(device, own, tuple(parts), rest, idle_ns, line, site)


def _parts(
    trace: Trace, of: Mask, samples: IdleSamples, span_ns: int
) -> tuple[list[CpuPart], IdleSamples]:
    """The parts of idle time that are a loss of medium severity or more of `span_ns`, and the rest.

    It is that of the gaps `of`, with these samples.

    Each kind of wait is one part. Work on the CPU is one part for each of the functions with most
    of it, or for a line outside of functions.
    """
    parts = []
    for doing, time_ns in line_sites.off_cpu_times(samples).items():
        if severity_of(time_ns, span_ns) in ("high", "medium"):
            alike = samples.doing == doing
            parts.append(CpuPart(doing, samples.take(alike), time_ns))
            samples = samples.take(~alike)
    hidden = None if parts else _hidden(trace, of, samples, span_ns)
    if hidden:
        return [hidden], samples.take(~groups.isin(samples.gap, hidden.samples.gap))
    function_of = stack_sites(trace).function_number
    for _ in range(MOST_FUNCTIONS):
        # The samples at work other than launching, in the function with most of it.
        function = function_of[samples.site]
        own = line_sites.works_on_cpu(trace, samples) & (function >= 0)
        own &= function == np.argmax(np.bincount(function[own], samples.time_ns[own], minlength=1))
        some, time_ns = samples.take(own), int(samples.time_ns[own].sum())
        counts = severity_of(time_ns, span_ns) in ("high", "medium")
        if not counts or not line_sites.longest_line(trace, some, time_ns):
            break
        parts.append(CpuPart(CPU, some, time_ns))
        samples = samples.take(~own)
    return parts, samples


def _hidden(trace: Trace, own: Mask, samples: IdleSamples, span_ns: int) -> CpuPart | None:
    """All long gaps as one part, around the function with most samples, where these miss the rest.

    None where that has no name, the part is small, or most samples are of launching.
    """
    if not line_sites.hides_python(trace, samples):
        return None
    every, function_of = gaps(trace), stack_sites(trace).function_number
    rows = np.flatnonzero(own & (every.idle_ns > ELSEWHERE_NS))
    inside = groups.isin(samples.gap, rows)
    seen = samples.site[inside & line_sites.works_on_cpu(trace, samples)]
    names = stack_sites(trace).function.isin(UNNAMED_FUNCTIONS)
    seen = seen[(function_of[seen] >= 0) & ~names[seen]]
    time_ns = every.idle_ns[rows].astype(np.int64)
    counts = severity_of(int(time_ns.sum()), span_ns) in ("high", "medium")
    if not counts or 2 * len(seen) <= np.count_nonzero(inside):
        return None
    most = int(np.argmax(np.bincount(function_of[seen])))
    site = np.full(len(rows), seen[function_of[seen] == most][0])
    none = np.zeros(len(rows), bool)
    doing = np.full(len(rows), CPU, np.uint8)
    part = IdleSamples(rows, site, time_ns, doing, none, every.start_ns[rows])
    return CpuPart(CPU, part, int(time_ns.sum()), hidden=True)


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
    own = every.steady(device, LAUNCH_LATE)
    late = habit(trace, LAUNCH_LATE, device, own & ~line_sites.in_accidents(trace))
    if sum(part.time_ns for part in late.parts) > late.idle_ns:
        return True
    return is_other_work(trace, late.line, None if late.parts else late.site)
