"""The series of steps that figures per step rest on: none in a recording of cold passes."""

from __future__ import annotations

import re

import numpy as np

from traceview.base import groups, intervals
from traceview.base.findings import UNEVEN
from traceview.base.records import record
from traceview.base.tables import NULL, Integers, Mask
from traceview.base.vocabulary.causes import FIRST_USES, LAUNCH_LATE
from traceview.traces.facts import code, compilation
from traceview.traces.facts.idle import gaps, step_parts
from traceview.traces.facts.operations import CallKind, Kind, call_kinds, operations
from traceview.traces.facts.ranges.selection import selected
from traceview.traces.facts.recorded import recorded_span
from traceview.traces.facts.steps.inferred import (
    BESIDE_START,
    FEW_IN_ALL,
    FEW_OPERATIONS,
    LEAST_NS,
    NEXT_TO_NOTHING,
)
from traceview.traces.facts.steps.series import COMPARABLE_STEPS, WARMED_UP_STEPS
from traceview.traces.facts.steps.steps import (
    pace,
    steady_operations,
    steps,
    steps_source,
    time_by_series,
)
from traceview.traces.trace import Trace, fact

COLD_FRACTION = 0.5
"""A pass of which first uses and compilation take so much shows next to nothing of the others."""
SINGLE_PASS = 0.25
"""So much of a run without steps is cold where what ran before its longest first use does not run
again: 0.37 and 0.50 of the only step of two ranks. Three passes with 0.49 in the first do."""
FIRST_LONGER = 2.0
"""Of two passes the first is cold where it takes so many times as long as the second, besides first
uses; of few without a warm-up none is usual where one takes so many times the median. In the
shipped recordings with two steps after a warm-up it is 1.8 times as long at most."""

_BESIDE_NOTHING, _MOST_NS, _EARLY = 0.002, 2_000_000, 0.1
"""Less work than this part of the recording and than this, without a loop, is a program's start:
public recordings of set-up and first calls hold 27 to 100 operations, 0.1 to 1.1 ms in 0.4 to 16 s,
that is up to 0.11 %. So are 130 passes of 141 µs in the first tenth of a second of 26 s, 0.03 % of
which the GPU worked (a simulator that is set up): a loop counts that ends after this part. Five
prints of a tensor, 3.8 ms in all, follow a compilation of 1.2 s."""
_MANY_PASSES = 10
_LOADING = 0.1
"""Copies without a kernel, of less than this part of the recording, load what a program would work
on: 235 MB of weights take 1.6 % of the start of a training that never began (a public recording).
Programs that measure copies make little else."""
_HANDFULS = (
    (3, 8_000_000, 0.018),
    (FEW_OPERATIONS - 1, 5_500_000, NEXT_TO_NOTHING),
    (FEW_OPERATIONS - 1, 1_000_000_000, 0.003),
)
"""So many operations, of less than this in ns and than this part of the recording, are its start
whatever repeats. First programs add two vectors in four operations, 3.1 ms of 1.1 s, 5.2 of 0.57
and 6.0 of 0.34. Longer work of a few is a smaller part: 5.1 ms of 4.2 s, 13 of 4.7, 30 of 16, of
CPU work (public recordings)."""


@record
class ColdPasses:
    """A recording of first passes, which shows no figures per step.

    First uses and compilation take `once_ns` of `total_ns`, the time of the `passes` of the main
    loop. Without steps (0 passes) that is the time from the first GPU work to the last, besides
    long pauses of the CPU, and compilation takes `compiled_ns`. `uneven_ns` are the times of few
    passes that show by these that they are cold.
    """

    passes: int
    once_ns: int
    total_ns: int
    uneven_ns: tuple[int, ...] = ()
    compiled_ns: int = 0

    @property
    def is_almost_all(self) -> bool:
        """Whether the run or its passes are next to nothing but what comes once."""
        return self.once_ns >= _ALMOST_ALL * self.total_ns

    @property
    def is_compilation(self) -> bool:
        """Whether most of a run without steps is compilation, which `phases` tells."""
        compiles = 2 * self.compiled_ns > self.once_ns
        return compiles and self.is_almost_all and not self.passes


_ALMOST_ALL = 0.95
"""From this part on, compilation is all that a run does: 0.99 in a public benchmark of four first
calls."""


@fact
def cold_passes(trace: Trace) -> ColdPasses | None:
    """The passes of the main loop where all that follow a warm-up are cold; None where not.

    From five steps on, the usual ones can be told from the others. Of fewer, each may be mostly
    first uses and compilation. Fewer than three have no warm-up: there, the first may take much
    longer than the second for reasons that were not recorded, such as imports. Uneven ones beside a
    long start without a warm-up are as little comparable. Without steps, the
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
        return _cold_run(trace) if _in_first_pass(trace, after_warm_up(trace, rows)) else None
    once = step_parts.step_parts(trace).once_ns[rows]
    warm = np.isin(rows, after_warm_up(trace, rows))
    # Of the first, what comes before its first kernel is not known to be once.
    warm[0] &= len(rows) == 1
    if (once >= COLD_FRACTION * took)[warm].all():
        return ColdPasses(len(rows), int(once.sum()), int(took.sum()))
    besides, (first, last) = took - once, recorded_span(trace)
    uneven = len(rows) == WARMED_UP_STEPS - 1 and besides[0] >= FIRST_LONGER * besides[1]
    short = took.sum() < _PART * (last - first) and not pace(trace).warm_up[rows].any()
    uneven |= bool(short and took.max() >= FIRST_LONGER * np.median(took))
    total_ns, once_ns = int(took.sum()), int(once.sum())
    return ColdPasses(len(rows), once_ns, total_ns, (*took.tolist(),)) if uneven else None


def _in_first_pass(trace: Trace, rows: Integers) -> bool:
    """Whether what repeats are parts of one first pass, such as its layers, and no steps."""
    took, ops = pace(trace).duration_ns[rows], operations(trace)
    uneven = took.mean() > UNEVEN * np.median(took)
    whole_ns = int(ops.end_ns.max() - ops.start_ns.min()) if len(ops) else 0
    short = took.sum() < _PART * whole_ns
    return bool(uneven and short and steps_source(trace) == "repetition")


_PART = 0.02
"""Eleven blocks of a vision transformer, 3 to 83 ms, take 1.0 % of its first pass of 11.9 s: the
rest are loads of code. Three calls of a data frame, 4 to 28 ms, take 1.4 % of 2.98 s, most of which
is the start (public recordings)."""


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
    pause = (every.device == device) & ~once & (every.cause == LAUNCH_LATE)
    pause &= every.idle_ns >= _PAUSE * total_ns
    total_ns -= int(every.idle_ns[pause].sum())
    if once_ns <= SINGLE_PASS * total_ns:
        return None
    may_be_more = once_ns <= COLD_FRACTION * total_ns
    if may_be_more and (is_start_up_alone(trace) or _runs_again(trace, once)):
        return None
    windows = compilation.compilation(trace)
    compiled = intervals.covered(windows, windows.tool != code.CUDNN)
    return ColdPasses(0, once_ns, total_ns, compiled_ns=compiled.total())


def _runs_again(trace: Trace, once: Mask) -> bool:
    """Whether most kernels before the longest of these gaps run after it, too: in a later pass."""
    every, ops = gaps.gaps(trace), operations(trace)
    runs = ops.kind == Kind.KERNEL
    names = trace.recorded("kernels").texts("name").codes[ops.row[runs]]
    longest = int(np.argmax(np.where(once, every.idle_ns, -1)))
    before = ops.start_ns[runs] < every.end_ns[longest]
    return bool(2 * np.isin(names[before], names[~before]).sum() > before.sum())


_PAUSE = 0.25
"""So long a part of a run is no work on passes: 0.77 and 0.91 s of 1.62 s in which two ranks build
the model whose only pass follows (a public recording)."""


def shows_first_calls_alone(trace: Trace) -> bool:
    """Whether a recording holds a start and first calls: what is left of these, its share of GPU
    work, or how early the CPU launches, is of no loop, and no later pass can be told from it."""
    alone = is_start_up_alone(trace) or cold_passes(trace) is not None
    return alone or first_batch(trace) is not None


LOADS = re.compile(r"data loading$|enumerate\(DataLoader\)")
"""Ranges around a batch: of `traceview record`, and of torch.profiler."""


@fact
def first_batch(trace: Trace) -> tuple[int, int] | None:
    """The time in which a program without steps loads its first batch, and the GPU's span behind.

    None unless that is shorter. A public recording of one call of a model waited 5.1 s for it, and
    then worked for 67 ms.
    """
    ops, ranges = operations(trace), trace.recorded("ranges")
    if not len(ops) or len(steps(trace)) or trace.selection:
        return None
    first_ns, last_ns = int(ops.start_ns.min()), int(ops.end_ns.max())
    loads = ranges.texts("name").matching(LOADS.match)
    own = ranges.take(loads & (ranges["end_ns"] != NULL) & (ranges["end_ns"] <= first_ns))
    loading_ns = intervals.union(own["start_ns"], own["end_ns"]).total()
    return (loading_ns, last_ns - first_ns) if loading_ns > last_ns - first_ns else None


@fact
def is_start_up_alone(trace: Trace) -> bool:
    """Whether next to no GPU work was recorded, in more time than a program would take for it.

    That is less than a hundredth of it in a few operations, or a little more in fewer, or less than
    a five-hundredth in any number that no loop repeats, or very little in some that half of it has
    none of, or none but an early loop or one that is next to nothing itself, or a few copies
    without a kernel. Of a program without a GPU the steps are all there is to say.
    """
    if trace.selection or not gaps.device_work(trace):
        return False
    steady_ns = sum(work.steady_ns for work in gaps.device_work(trace).values())
    first, last = recorded_span(trace)
    spans_ns, many = gaps.steady_spans_ns(trace).values(), int(steady_operations(trace).sum())
    fraction, loops = steady_ns / max(last - first, *spans_ns, 1), _every_series(trace)
    if fraction < _LOADING and not runs_kernels(trace):
        return True
    if any(
        many <= most and steady_ns < most_ns and fraction < part
        for most, most_ns, part in _HANDFULS
    ):
        return True
    few = not loops and many < FEW_IN_ALL and max(spans_ns) < COLD_FRACTION * (last - first)
    if few and steady_ns < min(LEAST_NS, BESIDE_START * (last - first)):
        return True
    if fraction >= _BESIDE_NOTHING:
        return False
    loops = [rows for rows in loops if len(rows) >= COMPARABLE_STEPS]
    # The first passes, which load and connect, last as long as they need.
    warm = (after_warm_up(trace, rows) for rows in loops)
    took_ns = sum(int(pace(trace).duration_ns[rows].sum()) for rows in warm)
    few = steady_ns < LEAST_NS and all(len(rows) < _MANY_PASSES for rows in loops)
    few &= steps_source(trace) == "repetition"
    if not loops or (few and took_ns < NEXT_TO_NOTHING * (last - first)):
        return steady_ns < _MOST_NS
    early_ns = first + _EARLY * (last - first)
    return all(pace(trace).end_ns[rows].max() < early_ns for rows in loops)


def runs_kernels(trace: Trace) -> bool:
    """Whether kernels or whole graphs were recorded, or may have run without a record."""
    rows = (len(trace.recorded(name)) for name in ("kernels", "graph_launches"))
    called = (call_kinds(trace) == CallKind.LAUNCH).any()
    # What a recording warns of, such as events that were not read, may have been kernels.
    may_lack = "kernels" not in trace.tables or bool(trace.warnings)
    return may_lack or any(rows) or bool(called)


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
    total_ns = time_by_series(trace, rows)
    there = groups.different(all_steps.series[rows])
    order = np.argsort(-total_ns[there], kind="stable")
    return [rows[all_steps.series[rows] == each] for each in there[order].tolist()]
