"""Remedies for idle time in which the CPU did one thing but launching, by who did it.

Measured on one H200, steps with and without the remedy: docs/accuracy.md.
"""

from __future__ import annotations

import re

from traceview.analyses.gpu_idle.findings.attention_plans import planning_ns
from traceview.analyses.gpu_idle.findings.cpu_parts import CpuPart
from traceview.analyses.gpu_idle.findings.remedies import other_work_remedy
from traceview.analyses.gpu_idle.line_sites import OFF_CPU_ACTIONS, LineSite
from traceview.facts.operations.frameworks import framework
from traceview.facts.samples.stack_lines import CPU, DATA_WAIT, FILE, stacks_through
from traceview.trace import Trace

_STARTS = (
    "Keep the DataLoader's workers between epochs (persistent_workers=True): each epoch starts "
    "them anew, which takes longer the more they are."
)
_SAVES = (
    "Save less often, or copy into pinned memory and write on another thread "
    "(torch.distributed.checkpoint.async_save)."
)
_LOGS = "Log less often or fewer tensors: each is copied to the CPU and worked through there."
_CALLS_BACK = (
    "Compute this in JAX instead of a host callback, or on the CPU before the step: the GPU waits "
    "for what a callback returns."
)
_TENSORBOARD = re.compile(
    r"(?:site|dist)-packages/(?:torch/utils/tensorboard|tensorboardX|tensorboard)/"
)
_BY_STACK = {
    DATA_WAIT: ((re.compile(r"/multiprocessing/popen_\w+\.py::"), _STARTS),),
    FILE: ((re.compile(r"torch/serialization\.py::save$"), _SAVES),),
    CPU: (
        (_TENSORBOARD, _LOGS),
        (re.compile(r"jax/_src/callback\.py::"), _CALLS_BACK),
    ),
}
_PLANS = (
    "Turn cuDNN's attention off (torch.backends.cuda.enable_cudnn_sdp(False)), or pad sequences to "
    "a few lengths: it makes a plan on the CPU for each shape that it has not seen."
)


def part_remedy(trace: Trace, part: CpuPart, line: LineSite | None) -> str:
    """The remedy for a part of idle time, by the function that most of it passed in."""
    stack, time_ns = part.samples.site, part.samples.time_ns
    for frame, remedy in _BY_STACK.get(part.doing, ()):
        through = stacks_through(trace, frame)
        python = stack < len(through)
        if 2 * int(time_ns[python][through[stack[python]]].sum()) > part.time_ns:
            return remedy
    if part.doing != CPU:
        return OFF_CPU_ACTIONS[part.doing]
    if framework(trace) == "torch" and 2 * planning_ns(trace, part.samples) > part.time_ns:
        return _PLANS
    return other_work_remedy(trace, line)
