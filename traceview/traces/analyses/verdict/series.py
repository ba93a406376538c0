"""The series of steps that figures per step rest on: none in a recording of cold passes."""

from __future__ import annotations

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import Integers
from traceview.base.vocabulary.causes import FIRST_USES
from traceview.traces.facts.idle import gaps, step_parts
from traceview.traces.facts.operations import operations
from traceview.traces.facts.ranges.selection import selected
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.steps.inferred import FEW_OPERATIONS, LEAST_NS, NEXT_TO_NOTHING
from traceview.traces.facts.steps.series import COMPARABLE_STEPS, WARMED_UP_STEPS
from traceview.traces.facts.steps.steps import pace, steady_operations, steps, steps_source
from traceview.traces.trace import Trace, fact

COLD_FRACTION = 0.5
"""A pass of which first uses and compilation take so much shows next to nothing of the others."""
FIRST_LONGER = 2.0
"""Of two passes the first is cold where it takes so many times as long as the second, besides first
uses. In the shipped recordings with two steps after a warm-up it is 1.8 times as long at most."""

_BESIDE_NOTHING, _MOST_NS, _EARLY = 0.001, 2_000_000, 0.1
"""Less work than this part of the recording and than this, without a loop, is a program's start:
public recordings of set-up and first calls hold 27 to 100 operations, 0.1 to 1.1 ms in 1.6 to 16 s,
that is up to 0.02 %. So are 130 passes of 141 µs in the first tenth of a second of 26 s, 0.03 % of
which the GPU worked (a simulator that is set up): a loop counts that ends after this part. Five
prints of a tensor, 3.8 ms in all, follow a compilation of 1.2 s."""
_MANY_PASSES = 10
_MOST_OF_FEW_NS = 5_000_000
"""First programs add two vectors in four operations, 3.1 ms of 1.1 s (a public recording)."""


@record
class ColdPasses:
    """A recording of first passes, which shows no figures per step.

    First uses and compilation take `once_ns` of `total_ns`, the time of the `passes` of the main
    loop. Without steps (0 passes) that is the time from the first GPU work to the last. `first_ns`
    and `second_ns` are the times of two passes of which the first alone is cold, else 0.
    """

    passes: int
    once_ns: int
    total_ns: int
    first_ns: int = 0
    second_ns: int = 0


@fact
def cold_passes(trace: Trace) -> ColdPasses | None:
    """The passes of the main loop where all that follow a warm-up are cold; None where not.

    From five steps on, the usual ones can be told from the others. Of fewer, each may be mostly
    first uses and compilation. Fewer than three have no warm-up: there, the first may take much
    longer than the second for reasons that were not recorded, such as imports. Without steps, the
    GPU's time may be mostly first uses and compilation. Whoever selects steps means these.
    """
    if trace.selection:
        return None
    every = _every_series(trace)
    if not every:
        return _cold_run(trace)
    times = [pace(trace).duration_ns[rows] for rows in every]
    rows, took, of_all = every[0], times[0], sum(int(each.sum()) for each in times)
    if len(rows) >= COMPARABLE_STEPS or 2 * int(took.sum()) < of_all:
        return None
    once = step_parts.step_parts(trace).once_ns[rows]
    warm = np.isin(rows, after_warm_up(trace, rows))
    if (once >= COLD_FRACTION * took)[warm].all():
        return ColdPasses(len(rows), int(once.sum()), int(took.sum()))
    besides = took - once
    if len(rows) == WARMED_UP_STEPS - 1 and besides[0] >= FIRST_LONGER * besides[1]:
        return ColdPasses(2, int(once.sum()), int(took.sum()), int(took[0]), int(took[1]))
    return None


def _cold_run(trace: Trace) -> ColdPasses | None:
    spans = gaps.steady_spans_ns(trace)
    if not spans:
        return None
    device = max(spans, key=lambda each: spans[each])
    ops, every = operations(trace), gaps.gaps(trace)
    own = ops.device == device
    total_ns = int(ops.end_ns[own].max() - ops.start_ns[own].min())
    # What the program itself does before its first kernel is no first use.
    later = every.start_ns >= gaps.first_compute_ns(trace)[device]
    once = (every.device == device) & every.one_time & (later | np.isin(every.cause, FIRST_USES))
    once_ns = int(every.idle_ns[once].sum())
    return ColdPasses(0, once_ns, total_ns) if once_ns > COLD_FRACTION * total_ns else None


@fact
def is_start_up_alone(trace: Trace) -> bool:
    """Whether next to no GPU work was recorded, in more time than a program would take for it.

    That is less than a hundredth of it in a few operations, or less than a thousandth in any number
    that no loop repeats, or none but an early one or one that is next to nothing itself. Of a
    program without a GPU the steps are all there is to say.
    """
    if trace.selection or not gaps.device_work(trace):
        return False
    steady_ns = sum(work.steady_ns for work in gaps.device_work(trace).values())
    first, last = recorded_span(trace)
    fraction = steady_ns / max(last - first, *gaps.steady_spans_ns(trace).values(), 1)
    few = int(steady_operations(trace).sum()) < FEW_OPERATIONS and steady_ns < _MOST_OF_FEW_NS
    if few and fraction < NEXT_TO_NOTHING:
        return True
    if fraction >= _BESIDE_NOTHING:
        return False
    loops = [rows for rows in _every_series(trace) if len(rows) >= COMPARABLE_STEPS]
    early_ns = first + _EARLY * (last - first)
    took_ns = sum(int(pace(trace).duration_ns[rows].sum()) for rows in loops)
    few = steady_ns < LEAST_NS and all(len(rows) < _MANY_PASSES for rows in loops)
    few &= steps_source(trace) == "repetition"
    if not loops or (few and took_ns < NEXT_TO_NOTHING * (last - first)):
        return steady_ns < _MOST_NS
    return all(pace(trace).end_ns[rows].max() < early_ns for rows in loops)


def series(trace: Trace) -> list[Integers]:
    """The selected steps of each series, in the order of the time that they take.

    None where what repeats is no step: cold passes, or next to no GPU work.
    """
    return [] if is_start_up_alone(trace) or cold_passes(trace) else _every_series(trace)


def after_warm_up(trace: Trace, rows: Integers) -> Integers:
    """The steps after warm-up; all of them where none is."""
    steady = rows[~pace(trace).warm_up[rows]]
    return steady if len(steady) else rows


@fact
def _every_series(trace: Trace) -> list[Integers]:
    all_steps, timed = steps(trace), pace(trace)
    rows = np.flatnonzero(timed.timed & selected(trace, all_steps.process, all_steps.cpu_start_ns))
    total_ns = np.bincount(all_steps.series[rows], timed.duration_ns[rows])
    there = groups.different(all_steps.series[rows])
    order = np.argsort(-total_ns[there], kind="stable")
    return [rows[all_steps.series[rows] == each] for each in there[order].tolist()]
