"""Whether the DataLoader is the limit of a program.

A program that finds no batch ready waits. If that happens again and again, the workers are slower
than the program: launches that came sooner would only wait longer. Waits for the first batch of an
epoch, and the time it takes to receive a batch that is ready, do not count.
"""

from __future__ import annotations

import numpy as np

from traceview.facts.idle.gaps import gaps, steady_spans_ns
from traceview.facts.idle.lines import idle_samples
from traceview.facts.steps.steps import pace
from traceview.findings import MEDIUM
from traceview.trace import Trace, fact
from traceview.vocabulary.activities import DATA_WAIT
from traceview.vocabulary.causes import LAUNCH_LATE

READY_NS = 4_000_000
"""Receiving a batch that is ready took 2 ms where it was sampled (9.8 MB, not pinned)."""
LEAST_WAITS, LEAST_OF_STEPS = 3, 0.1
"""Fewer waits for the workers, or waits in a smaller part of the steps, are not a rhythm."""


@fact
def starved_devices(trace: Trace) -> dict[int, bool]:
    """For each device with steady work, whether its program waits for the DataLoader's workers."""
    every, samples, timed = gaps(trace), idle_samples(trace), pace(trace)
    steady = (every.cause == LAUNCH_LATE) & ~every.one_time
    own = steady[samples.gap] & (samples.doing == DATA_WAIT)
    waited_ns = np.bincount(samples.gap[own], samples.time_ns[own], minlength=len(every))
    steps = int(np.count_nonzero(timed.timed & ~timed.warm_up))
    least = max(LEAST_WAITS, LEAST_OF_STEPS * steps)
    result = {}
    for device, span_ns in steady_spans_ns(trace).items():
        long = (waited_ns >= READY_NS) & (every.device == device)
        enough = waited_ns[long].sum() >= MEDIUM * span_ns
        result[device] = bool(enough and np.count_nonzero(long) >= least)
    return result
