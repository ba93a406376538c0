"""The time that a rank's CPU needs for each step, and where its program spends it."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.analyses.gpu_idle.stack_sites import stack_sites
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.operations.cuda_api import CallKind, api_calls
from traceview.facts.operations.operations import first_launch_calls, operations
from traceview.facts.samples.stack_lines import stack_lines
from traceview.facts.steps.steps import steps
from traceview.intervals import Intervals
from traceview.ranks.extraction.owners import RankOwner
from traceview.ranks.figures import Place
from traceview.tables import Integers
from traceview.trace import Trace
from traceview.vocabulary.activities import ACTIVITIES, SLEEP

MOST_PLACES = 32
LAUNCH_NS = 100_000
"""A longer launch call waits for a full queue; the excess is not the CPU's own time."""
_LEAST_OF_LAUNCHES, _MOST_PERIODS = 0.05, 10
_SLEEPS = re.compile(r"\bsleep\(")


class CpuPace(NamedTuple):
    """The CPU's own time per step, and by place; shapes (steps,) and (steps, places)."""

    cpu_ns: Integers
    places: tuple[Place, ...]
    place_ns: Integers


def cpu_pace(trace: Trace, owner: RankOwner, loop: Integers) -> CpuPace:
    """The CPU's time from the start of each step to the start of the next one.

    Time blocked in synchronizing calls, or in launches by a full queue, is left out. Places need
    sampled stacks of the thread.
    """
    none = np.zeros((len(loop), 0), np.int64)
    if not len(loop) or not len(trace.recorded("api_calls")):
        return CpuPace(np.zeros(0, np.int64), (), none)
    all_steps = steps(trace)
    start = all_steps.cpu_start_ns[loop]
    end = np.append(start[1:], all_steps.cpu_end_ns[loop[-1]])
    blocked = _blocked(trace, owner)
    cpu = end - start - intervals.overlap(blocked, start, end)
    places, place_ns = _places(trace, int(all_steps.thread[loop[0]]), start, end, blocked)
    return CpuPace(cpu, places, place_ns)


def _blocked(trace: Trace, owner: RankOwner) -> Intervals:
    """The time in which a thread that launches much of the rank's work waited for the GPU."""
    calls, ops, held = api_calls(trace), operations(trace), waits(trace)
    own = ops.call[(ops.process == owner.process) & (ops.device == owner.device) & ops.launched]
    count = np.bincount(calls.thread[own], minlength=int(calls.thread.max(initial=0)) + 1)
    launching = count >= _LEAST_OF_LAUNCHES * max(len(own), 1)
    syncs = np.isin(held.does, (CallKind.SYNCHRONIZE, CallKind.COPY)) & launching[held.thread]
    full = (calls.does == CallKind.LAUNCH) & (calls.duration_ns > LAUNCH_NS)
    full &= launching[calls.thread] & ~first_launch_calls(trace)
    return intervals.union(
        np.concatenate((held.start_ns[syncs], calls.start_ns[full] + LAUNCH_NS)),
        np.concatenate((held.end_ns[syncs], calls.end_ns[full])),
    )


def _places(
    trace: Trace, thread: int, start: Integers, end: Integers, blocked: Intervals
) -> tuple[tuple[Place, ...], Integers]:
    """The lines at which the thread was sampled, and its time there in each step."""
    samples, sites = trace.recorded("python_samples"), stack_sites(trace)
    rows = np.flatnonzero(samples["thread"] == thread)
    time = samples["time_ns"][rows]
    if len(rows) < 2:
        return (), np.zeros((len(start), 0), np.int64)
    lasted = np.diff(time, append=time[-1:] + 1)
    lasted = np.minimum(lasted, _MOST_PERIODS * max(int(np.median(lasted)), 1))
    step = np.searchsorted(start, time, side="right") - 1
    site = samples["stack"][rows].astype(np.int64)
    known = (step >= 0) & (sites.number[site] >= 0) & ~intervals.inside(blocked, time)
    known &= time < end[np.maximum(step, 0)]
    step, site, lasted = step[known], site[known], lasted[known]
    if not len(step):
        return (), np.zeros((len(start), 0), np.int64)
    by = groups.group(sites.number[site])
    table = np.zeros((len(start), by.size), np.int64)
    np.add.at(table, (step, by.ids), lasted)
    kept = np.argsort(-table.max(axis=0), kind="stable")[:MOST_PLACES]
    return tuple(_place(trace, int(site[by.first[each]])) for each in kept), table[:, kept]


def _place(trace: Trace, site: int) -> Place:
    sites = stack_sites(trace)
    doing = int(stack_lines(trace).doing[site])
    if not ACTIVITIES[doing].rank and _SLEEPS.search(str(sites.source[site] or "")):
        doing = SLEEP
    told = ACTIVITIES[doing].name if ACTIVITIES[doing].rank else ""
    line = int(sites.line[site])
    return Place(
        str(sites.file[site] or ""), max(line, 0), str(sites.function[site] or ""), what=told
    )
