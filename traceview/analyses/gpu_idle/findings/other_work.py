"""Whether the CPU launches late because it does other work: then fewer launches would not help."""

from __future__ import annotations

from traceview.analyses.gpu_idle.findings.cpu_parts import cpu_parts
from traceview.analyses.gpu_idle.line_sites import LineSite, longest_line, samples_of
from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.late_launches import LateSite, late_idle
from traceview.facts.ranges.origins import is_library_name
from traceview.facts.ranges.ranges import range_tree
from traceview.trace import Trace
from traceview.vocabulary.causes import LAUNCH_LATE


def range_pattern(trace: Trace, site: LateSite) -> str | None:
    """The path pattern of the range that a site is in; None outside any range."""
    return range_tree(trace).patterns[site.pattern] if site.pattern >= 0 else None


def is_in_library(trace: Trace, site: LateSite) -> bool:
    """Whether a site is in a range of a library, whose CPU code is part of the cost of launches."""
    pattern = range_pattern(trace, site)
    return pattern is not None and is_library_name(pattern.rpartition("/")[2])


def is_other_work(trace: Trace, line: LineSite | None, site: LateSite | None) -> bool:
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
    idle_ns, span_ns = int(every.idle_ns[own].sum()), steady_spans_ns(trace)[device]
    parts = cpu_parts(trace, samples_of(trace, own), span_ns)
    if 2 * parts.time_ns > idle_ns:
        return True
    line = longest_line(trace, parts.rest, idle_ns - parts.time_ns)
    site = None if parts.parts else late_idle(trace).longest(device)
    return is_other_work(trace, line, site)
