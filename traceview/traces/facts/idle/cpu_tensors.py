"""Samples of threads that compute with torch on the CPU: spectrograms, sampling, augmentation.

torch's operators are C++ and most have no Python frame, and the same lines launch GPU work where
the tensors are there. What tells is that for long nothing calls CUDA: a stretch between two calls
of the process. Where most samples in the stretches between two names of calls are at such lines,
all are that are in no other library: tensors that a function leaves behind are freed at the line
that called it.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups
from traceview.base.tables import Array, Integers, Mask
from traceview.traces.facts.idle import stack_sites
from traceview.traces.facts.operations import api_calls
from traceview.traces.facts.samples import (
    leaves_in,
    stack_lines,
    stacks_at,
    stacks_through,
)
from traceview.traces.trace import Trace, fact

QUIET_NS = 2_000_000
"""The Python between two launches of torch takes 10 to 50 µs; a stall of a thread passes this now
and then, which `_ALWAYS` allows for."""
_ALWAYS, _MOST = 0.9, 0.5
"""Parts of the samples: of a line, those in stretches without a call; of stretches, at lines."""
_COMPUTES = re.compile(
    # What holds modules keeps their parameters, as to set gradients to None.
    r"(?:^|/)(?:torch/(?:functional|_tensor|nn/functional|nn/modules/(?!module\.)\w+|fft/\w+"
    r"|linalg/\w+|signal/.+|special/\w+)|torchaudio/.+|torchvision/transforms/.+|kornia/.+)\.py::"
)
_MODULE = re.compile(r"/torch/nn/modules/module\.py::_call_impl$")
_UPDATES = re.compile(r"/torch/(?:optim|utils/data|serialization|distributed)\b")
_TORCH = re.compile(r"(?:torch|torchaudio|torchvision|kornia)\.")
_CALLS = re.compile(r"\btorch(?:audio|vision)?\.\w")


@fact
def _torch_stacks(trace: Trace) -> Mask:
    """True for the Python stacks at what may be an operator of torch on the CPU."""
    found = leaves_in(trace, _COMPUTES) | stacks_at(trace, _CALLS) | stacks_through(trace, _MODULE)
    result: Mask = found & ~stacks_through(trace, _UPDATES)
    return result


@fact
def computing(trace: Trace) -> Mask:
    """True for the rows of python_samples in which a thread computes with torch on the CPU."""
    samples = trace.recorded("python_samples")
    result = np.zeros(len(samples), bool)
    stacks, elsewhere = _torch_stacks(trace), _in_other_libraries(trace)
    if not stacks.any() or not len(api_calls(trace)):
        return result
    line, stack = stack_sites.stack_sites(trace).number[samples["stack"]], samples["stack"]
    for thread, own in groups.rows_of(samples["thread"]).items():
        process = int(trace.threads["process"][thread])
        quiet, between = _stretches(trace, process, samples["time_ns"][own])
        known = line[own] >= 0
        at = np.where(known, line[own], line.max(initial=0) + 1)
        always = _share(at, quiet) >= _ALWAYS
        evident = quiet & known & always[at] & stacks[stack[own]]
        most = _share(between, evident, quiet) >= _MOST
        result[own] = quiet & most[between] & ~elsewhere[stack[own]]
    return result


def _in_other_libraries(trace: Trace) -> Mask:
    """True for the stacks in a function of another library, such as one that decodes images."""
    inner = stack_lines(trace).inner
    of_torch = inner.isin([str(name) for name in inner.values if _TORCH.match(str(name))])
    result: Mask = (inner.codes >= 0) & ~of_torch
    return result


def _share(group: Integers, chosen: Mask, of: Mask | None = None) -> Array:
    """The part of the rows (`of` them) of each group that are chosen."""
    count = np.bincount(group, of, group.max(initial=0) + 1)
    return np.bincount(group, chosen, len(count)) / np.maximum(count, 1)


def _stretches(trace: Trace, process: int, time_ns: Integers) -> tuple[Mask, Integers]:
    """Whether a time lies in a long stretch without CUDA calls of a process; what is around it.

    That is a number for the names of the calls before and behind.
    """
    calls = trace.recorded("api_calls")
    own = np.flatnonzero(calls["process"] == process)
    own = own[np.argsort(calls["start_ns"][own], kind="stable")]
    start, name = calls["start_ns"][own], calls.texts("name").codes[own]
    if not len(own):
        return np.zeros(len(time_ns), bool), np.zeros(len(time_ns), np.int64)
    end = np.maximum.accumulate(calls["end_ns"][own])
    after = np.searchsorted(start, time_ns, side="right")
    inside = (after > 0) & (after < len(own))
    before, after = np.maximum(after - 1, 0), np.minimum(after, len(own) - 1)
    quiet: Mask = inside & (end[before] <= time_ns) & (start[after] - end[before] >= QUIET_NS)
    return quiet, groups.group(name[before], name[after]).ids.astype(np.int64)
