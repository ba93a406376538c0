"""Late launches of code whose graph torch.compile breaks: Python calls its parts one by one."""

from __future__ import annotations

import numpy as np

from traceview.base.vocabulary.causes import LAUNCH_LATE
from traceview.traces.facts import operations, python_events
from traceview.traces.facts.idle.gaps import gaps, steady_spans_ns
from traceview.traces.facts.idle.lines import idle_samples
from traceview.traces.facts.idle.stack_sites import stack_sites
from traceview.traces.facts.python_events import CompiledCode
from traceview.traces.facts.samples import in_broken_graphs, stack_lines
from traceview.traces.trace import Trace, fact

MOST = 0.5
"""Of the late time outside of backward passes, which show no line, from which on breaks make it."""
_UNCOMPILED = (python_events.LIMIT, python_events.UNCOMPILED)
"""What runs without compilation has lines of the program, too."""


@fact
def broken_graphs(trace: Trace) -> dict[int, tuple[CompiledCode, int]]:
    """By device, the graph break that makes launches late, if most late time is in such code.

    It is that of the function with most late time; the time is that of all broken graphs.
    """
    every, samples, sites = gaps(trace), idle_samples(trace), stack_sites(trace)
    result = dict[int, tuple[CompiledCode, int]]()
    # Native stacks are behind those of Python.
    unknown = np.zeros(len(sites) - len(stack_lines(trace).frame), bool)
    broken = np.append(in_broken_graphs(trace), unknown)
    backward = np.append(stack_lines(trace).launches, unknown)
    for device in steady_spans_ns(trace):
        late = samples.take(every.steady(device, LAUNCH_LATE)[samples.gap])
        own = late.take(broken[late.site])
        late_ns = int(own.time_ns.sum())
        if not late_ns or late_ns < MOST * int(late.time_ns[~backward[late.site]].sum()):
            continue
        process = np.bincount(operations.operations(trace).process[every.after[own.gap]]).argmax()
        breaks = python_events.of_kind(trace, python_events.BREAK, int(process))
        if any(python_events.of_kind(trace, kind, int(process)) for kind in _UNCOMPILED):
            continue
        by_site = np.bincount(own.site, own.time_ns)
        most_first = np.argsort(-by_site, kind="stable")[: np.count_nonzero(by_site)].tolist()
        places = [(str(sites.file[row]), str(sites.function[row])) for row in most_first]
        at = (each for place in places for each in breaks if each.has(*place))
        if breaks:
            result[device] = next(at, breaks[0]), late_ns
    return result
