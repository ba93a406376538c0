"""Remedies for idle time in which the CPU did one thing but launching, by who did it.

Measured on one H200, steps with and without the remedy: docs/accuracy.md.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.analyses.gpu_idle.findings.cpu_parts import CpuPart
from traceview.analyses.gpu_idle.findings.remedies import other_work_remedy
from traceview.analyses.gpu_idle.line_sites import OFF_CPU_ACTIONS, LineSite
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.samples.stack_lines import CPU, DATA_WAIT, FILE, stacks_through
from traceview.tables import Integers
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
_BY_STACK = {
    DATA_WAIT: ((re.compile(r"torch/utils/data/dataloader\.py::__init__$"), _STARTS),),
    FILE: ((re.compile(r"torch/serialization\.py::save$"), _SAVES),),
    CPU: (
        (re.compile(r"/(torch/utils/tensorboard|tensorboardX|tensorboard)/"), _LOGS),
        (re.compile(r"jax/_src/callback\.py::"), _CALLS_BACK),
    ),
}
_PLANS = (
    "Turn cuDNN's attention off (torch.backends.cuda.enable_cudnn_sdp(False)), or pad sequences to "
    "a few lengths: it makes a plan on the CPU for each shape that it has not seen."
)
_CUDNN_ATTENTION = re.compile(r"^cudnn_generated_\w*sdpa_")


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
    if 2 * _before_attention_ns(trace, part.samples.gap, time_ns) > part.time_ns:
        return _PLANS
    return other_work_remedy(trace, line)


def _before_attention_ns(trace: Trace, gap: Integers, time_ns: Integers) -> int:
    """Time in gaps after which the first kernel is one of cuDNN's attention, behind its memset."""
    names = trace.recorded("kernels").texts("name")
    own = names.isin([name for name in map(str, names.values) if _CUDNN_ATTENTION.match(name)])
    if not own.any():
        return 0
    ops = operations(trace)
    kernels = np.flatnonzero(ops.kind == Kind.KERNEL)
    following = np.searchsorted(kernels, gaps(trace).after[gap]).clip(0, len(kernels) - 1)
    return int(time_ns[own[ops.row[kernels[following]]]].sum())
