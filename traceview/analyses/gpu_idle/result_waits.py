"""Samples in idle gaps of JAX programs that had waited for a result when the GPU ran dry.

XLA launches on threads of its own, and a wait for its results makes no CUDA call, so that the
samples alone show it: the last one before the gap is in the wait.
"""

from __future__ import annotations

import re

import numpy as np

from traceview.analyses.gpu_idle.stack_sites import stack_sites
from traceview.facts.samples.stack_lines import stack_lines, stacks_at
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact
from traceview.vocabulary.activities import CPU, RESULT_WAIT

_CALL = re.compile(r"\bblock_until_ready\s*\(")
_JAX = re.compile(r"(jax|jaxlib|flax|optax|equinox)\.")
_PERIODS = 3
"""The last sample before a gap shows how it began if it is at most this many periods older."""


@fact
def result_waits(trace: Trace) -> Mask:
    """True for the Python stacks in a wait for a result, by its frames or the text of the line."""
    result: Mask = (stack_lines(trace).doing == RESULT_WAIT) | stacks_at(trace, _CALL)
    return result


@fact
def calls_jax(trace: Trace) -> Mask:
    """True for the stacks (rows in stack_sites) at lines that were seen to call JAX.

    A call of a compiled function is C++ without a Python frame; the call that compiles it has some.
    """
    sites = stack_sites(trace)
    inside = sites.inner.isin([str(name) for name in sites.inner.values if _JAX.match(str(name))])
    result: Mask = np.isin(sites.number, sites.number[inside & (sites.number >= 0)])
    return result


def stacks_before(times: Integers, stacks: Integers, start: Integers, period_ns: int) -> Integers:
    """The stack of a thread's last sample before each gap; −1 without a sample shortly before.

    `times` are ascending.
    """
    last = np.searchsorted(times, start, side="right") - 1
    near = (last >= 0) & (times[last] >= start - _PERIODS * period_ns)
    return np.where(near, stacks[last], -1)


def after_waits(
    trace: Trace, doing: Array, stack: Integers, before: Integers
) -> tuple[Array, Integers]:
    """Activity and stack of samples in gaps; after a wait for a result they become the wait's.

    `before` is the stack before the gap. Samples at lines that do not call JAX stay unchanged.
    """
    waited = (before >= 0) & result_waits(trace)[before] & (doing == CPU) & calls_jax(trace)[stack]
    return np.where(waited, RESULT_WAIT, doing).astype(np.uint8), np.where(waited, before, stack)
