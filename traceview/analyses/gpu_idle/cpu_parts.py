"""Idle time before late launches, divided by what the CPU did instead of launching."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceview.analyses.gpu_idle.line_sites import longest_line, off_cpu_times, works_on_cpu
from traceview.analyses.gpu_idle.lines import IdleSamples, lines_of
from traceview.facts.samples.stack_lines import CPU
from traceview.findings import severity_of
from traceview.tables import Mask
from traceview.trace import Trace

MOST_LINES = 2
"""Lines of other CPU work that get a finding of their own."""


class CpuPart(NamedTuple):
    """Idle time in which the CPU did one thing (`doing`, an index into DOINGS) but launching."""

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


def divided(trace: Trace, samples: IdleSamples, idle_ns: int, span_ns: int) -> CpuParts:
    """The parts of `idle_ns` that are a loss of medium severity or more of `span_ns`.

    Waits are one part for each kind, work on the CPU is one for each of the longest lines.
    """
    parts = []
    for doing, time_ns in off_cpu_times(samples).items():
        if _counts(time_ns, span_ns):
            alike = samples.doing == doing
            parts.append(CpuPart(doing, samples.take(alike), time_ns))
            samples = samples.take(~alike)
    for _ in range(MOST_LINES):
        at_work = works_on_cpu(trace, samples)
        line = longest_line(trace, samples.take(at_work), idle_ns)
        if line is None or not _counts(line.time_ns, span_ns):
            break
        of_line: Mask = at_work & (lines_of(trace, samples) == line.number)
        parts.append(CpuPart(CPU, samples.take(of_line), line.time_ns))
        samples = samples.take(~of_line)
    return CpuParts(tuple(parts), samples)


def gaps_of(parts: CpuParts, gaps: int) -> Mask:
    """True for the gaps, of that many, in which a part has samples."""
    result = np.zeros(gaps, bool)
    for part in parts.parts:
        result[part.samples.gap] = True
    return result


def _counts(time_ns: int, span_ns: int) -> bool:
    return severity_of(time_ns, span_ns) in ("high", "medium")
