"""Late launches of code whose graph torch.compile breaks: Python calls its parts one by one."""

from __future__ import annotations

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Array
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


@record
class BrokenGraph:
    """The graph break of the function with most late time, and that of all broken graphs."""

    at: CompiledCode
    late_ns: int


@fact
def broken_graphs(trace: Trace) -> dict[int, BrokenGraph]:
    """By device, the graph break that makes launches late, if most late time is in such code."""
    every, samples, result = gaps(trace), idle_samples(trace), dict[int, BrokenGraph]()
    # Native stacks are behind those of Python.
    unknown = np.zeros(len(stack_sites(trace)) - len(stack_lines(trace).frame), bool)
    broken = np.append(in_broken_graphs(trace), unknown)
    backward = np.append(stack_lines(trace).launches, unknown)
    for device in steady_spans_ns(trace):
        late = samples.take(every.steady(device, LAUNCH_LATE)[samples.gap])
        own = late.take(broken[late.site])
        late_ns = int(own.time_ns.sum())
        if late_ns and late_ns >= MOST * int(late.time_ns[~backward[late.site]].sum()):
            of_process = operations.operations(trace).process[every.after[own.gap]]
            process = int(np.bincount(of_process).argmax())
            breaks = python_events.of_kind(trace, python_events.BREAK, process)
            # What runs without compilation has lines of the program, too.
            without = (python_events.LIMIT, python_events.UNCOMPILED)
            if breaks and not any(python_events.of_kind(trace, kind, process) for kind in without):
                result[device] = BrokenGraph(
                    _of_most(trace, breaks, own.site, own.time_ns), late_ns
                )
    return result


def _of_most(trace: Trace, breaks: list[CompiledCode], site: Array, time_ns: Array) -> CompiledCode:
    """The break of the function with most time; the first where the program is in another one."""
    sites, by_site = stack_sites(trace), np.bincount(site, time_ns)
    for row in np.argsort(-by_site, kind="stable")[: np.count_nonzero(by_site)].tolist():
        file, function = str(sites.file[row]), python_events.plain_name(str(sites.function[row]))
        for each in breaks:
            if each.is_in(file) and each.function == function:
                return each
    return breaks[0]
