"""What the CPU works at in each sampled stack."""

from __future__ import annotations

import re

import numpy as np

from traceview.base.tables import Array, Integers, Mask
from traceview.base.vocabulary.cpu_tasks import TASKS, CpuTask
from traceview.traces.facts.idle.stack_sites import function_name, native_rows, stack_sites
from traceview.traces.facts.samples import leaves_at, program_frames, stacks_through
from traceview.traces.trace import Trace, fact


@fact
def cpu_tasks(trace: Trace) -> Integers:
    """The task of each row of stack_sites, as its place in TASKS; −1 where none is known."""
    result = np.full(len(stack_sites(trace)), -1, np.int64)
    for number, task in reversed([*enumerate(TASKS)]):
        result[_in_task(trace, task)] = number
    return result


def main_task(trace: Trace, site: Integers, weights: Array) -> tuple[CpuTask | None, float]:
    """The task with most of the weight of samples at some sites, and its part of that."""
    of_task = np.bincount(cpu_tasks(trace)[site] + 1, weights, len(TASKS) + 1)
    most, total = int(of_task[1:].argmax()), float(of_task.sum())
    return (TASKS[most], float(of_task[1 + most]) / total) if of_task[1:].any() else (None, 0.0)


def _in_task(trace: Trace, task: CpuTask) -> Mask:
    """True for the stacks, rows of stack_sites, with a frame or at a line of this task."""
    sites, native = stack_sites(trace), trace.recorded("native_frames")
    result: Mask = np.zeros(len(sites), bool)
    names, modules = native.texts("function"), native.texts("module")

    def called(pattern: re.Pattern[str]) -> Mask:
        return names.matching(lambda name: pattern.search(function_name(name)))

    if task.frames:
        result[native_rows(trace, native["stack"][called(task.frames)])] = True
        through = stacks_through(trace, task.frames)
        result[: len(through)] |= through
    if task.source:
        at, _ = leaves_at(trace, task.source)
        result[: len(at)] |= at
    if task.inner:
        result |= sites.inner.matching(task.inner.match)
    if task.named:
        named = called(task.named) & ~modules.matching(_LIBRARY.search)
        result[native_rows(trace, native["stack"][named])] = True
        own, python = program_frames(trace), trace.recorded("python_frames")
        rows = own[python.texts("function").matching(task.named.search)[own]]
        result[python["stack"][rows]] = True
    result[-1] = False
    return result


_LIBRARY = re.compile(r"\.so\b|^\[")
