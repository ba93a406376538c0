"""Idle time in which cuDNN plans its attention on the CPU: once for each shape it has not seen."""

from __future__ import annotations

import re

import numpy as np

from traceview import groups
from traceview.analyses.gpu_idle.lines import IdleSamples
from traceview.facts.idle.gaps import gaps
from traceview.facts.operations.operations import Kind, operations
from traceview.facts.samples.stack_lines import leaves_at, leaves_in
from traceview.tables import Integers, Mask, RowNumbers
from traceview.trace import Trace

_KERNELS = re.compile(r"^cudnn_generated_\w*sdpa_")
_CALLED = r"(?:sdpa|attention|attn|attend)(?!\w*mask)\w*"
_FUNCTION = re.compile(
    rf"::\w*{_CALLED}|/(?:torch|transformers|diffusers|timm)/.*{_CALLED}\.py::"
    # The functions of C++ have no frame: these call what is compiled, and all of backward.
    r"|/torch/(?:_ops\.py::__call__|autograd/graph\.py::_engine_run_backward)$",
    re.IGNORECASE,
)
_ANOTHER = re.compile(r"/transformer_engine/")
"""It calls cuDNN itself, not through PyTorch."""
_LINE = re.compile(rf"{_CALLED}\(", re.IGNORECASE)
_FEW_GRIDS = 2
"""Different grids that layers of fixed shapes have; plans are made again only where shapes vary."""


def planning_ns(trace: Trace, samples: IdleSamples) -> int:
    """Idle time of samples in calls of attention whose kernel is one of cuDNN's, of varying shape.

    Memsets may come between the plan and the kernel, which is the first one on their stream.
    """
    own = _planned_kernels(trace)
    if not own.any():
        return 0
    calls = _calls_attention(trace)
    python = np.flatnonzero(samples.site < len(calls))
    chosen = python[calls[samples.site[python]]]
    kernel = _next_kernels(trace, gaps(trace).after[samples.gap[chosen]])
    hit = (kernel >= 0) & own[kernel]
    if _grids(trace, kernel[hit]) <= _FEW_GRIDS:
        return 0
    return int(samples.time_ns[chosen[hit]].sum())


def _planned_kernels(trace: Trace) -> Mask:
    """True for the rows of kernels that are cuDNN's attention."""
    names = trace.recorded("kernels").texts("name")
    return names.isin([name for name in map(str, names.values) if _KERNELS.match(name)])


def _calls_attention(trace: Trace) -> Mask:
    """True for the stacks that end in a call of PyTorch's attention, by the line if it is known."""
    by_line, line_known = leaves_at(trace, _LINE)
    by_function = leaves_in(trace, _FUNCTION) & ~leaves_in(trace, _ANOTHER)
    result: Mask = np.where(line_known, by_line, by_function)
    return result


def _next_kernels(trace: Trace, operation: Integers) -> RowNumbers:
    """The row of the first kernel from each operation on, on its stream; −1 without one."""
    ops = operations(trace)
    kernels = np.flatnonzero(ops.kind == Kind.KERNEL)
    key = np.sort(ops.stream[kernels] * np.int64(len(ops)) + kernels)
    at = np.searchsorted(key, ops.stream[operation] * np.int64(len(ops)) + operation)
    following = np.append(key, -1)[at]
    on_stream = following // max(len(ops), 1) == ops.stream[operation]
    return np.where(on_stream, ops.row[following % max(len(ops), 1)], -1).astype(np.int32)


def _grids(trace: Trace, kernel: RowNumbers) -> int:
    """The number of different grids of some kernels."""
    kernels = trace.recorded("kernels")
    return len(groups.group(*(kernels[f"grid_{axis}"][kernel] for axis in "xyz")).first)
