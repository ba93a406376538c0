"""Remedies for idle time in which the CPU did one thing but launching, by who did it.

Measured on one H200, steps with and without the remedy: docs/accuracy.md.
"""

from __future__ import annotations

import re

from traceview.analyses.gpu_idle.findings.attention_plans import planning_ns
from traceview.analyses.gpu_idle.findings.cpu_parts import CpuPart
from traceview.analyses.gpu_idle.findings.remedies import other_work_remedy
from traceview.analyses.gpu_idle.line_sites import LineSite
from traceview.facts.operations.frameworks import framework
from traceview.facts.samples.stack_lines import stacks_through
from traceview.trace import Trace
from traceview.vocabulary.activities import ACTIVITIES, CPU

_PLANS = (
    "Turn cuDNN's attention off (torch.backends.cuda.enable_cudnn_sdp(False)), or pad sequences to "
    "a few lengths: it makes a plan on the CPU for each shape that it has not seen."
)


def part_remedy(trace: Trace, part: CpuPart, line: LineSite | None) -> str:
    """The remedy for a part of idle time, by the function that most of it passed in."""
    stack, time_ns = part.samples.site, part.samples.time_ns
    doing = ACTIVITIES[part.doing]
    for frame, remedy in doing.by_frame:
        through = stacks_through(trace, re.compile(frame))
        python = stack < len(through)
        if 2 * int(time_ns[python][through[stack[python]]].sum()) > part.time_ns:
            return remedy
    if part.doing != CPU:
        return doing.action
    if framework(trace) == "torch" and 2 * planning_ns(trace, part.samples) > part.time_ns:
        return _PLANS
    return other_work_remedy(trace, line)
