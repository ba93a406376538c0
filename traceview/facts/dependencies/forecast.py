"""What an edit of the run wins per step, with its error.

The graph of a long recording is that of its middle steps: `MOST_ITEMS` calls and operations are
enough for a forecast. A step ends where its last GPU work does, as in `steps`; without steps the
run counts as one. Of a selection only steps with selected work count.

The error adds, as squares, the spread of the saving over the steps (95 % of the mean's), what
guessed edges between operations make of it (the saving if recorded ones alone explained the same
times), and what the recorder's cost makes of it (the saving if each call were cheaper by that).
Threads that take turns are no guess: forecasts for PyTorch's backward pass came within 2 % of what
was measured on an H200 (docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from traceview import groups, intervals
from traceview.facts.dependencies import graph as dependencies
from traceview.facts.dependencies.graph import INFERRED, NEAR_NS, Dependencies, Edge
from traceview.facts.dependencies.replay import Changed, Edit, Times, replay
from traceview.facts.operations import api_calls, operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.steps import pace, steady_operations, step_of_operations, steps
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers, arrays, row_numbers
from traceview.trace import Trace, fact

MOST_ITEMS = 60_000
"""Building the graph then takes 0.06 s of the 1.3 s of a report on 1 M kernels, a replay 2 ms."""
LEAST_STEPS = 3
"""Fewer steps have no spread."""
RECORDER_CALL_NS = 4_000
"""What nsys adds to a CUDA call: 4 µs as docs/backends.md has it, on one H200's host."""

_GUESSED = INFERRED - {Edge.HAND_OVER}


@record
class StepForecast:
    """The time per step as recorded and replayed, in ns, and the error of the difference (±).

    `steps` is the number of steps that it rests on; 0 where it is of the run as a whole. The error
    is the root of the sum of squares of its terms: `spread_ns` over the steps, `inferred_ns` of the
    inferred edges, `recorder_ns` of the recorder's cost.
    """

    recorded_ns: int
    replayed_ns: int
    error_ns: int
    steps: int
    spread_ns: int = 0
    inferred_ns: int = 0
    recorder_ns: int = 0

    @property
    def saved_ns(self) -> int:
        return self.recorded_ns - self.replayed_ns


@record
class StepModel:
    """The graph that forecasts rest on, and where its steps end.

    `last` are the items that may end a step, `step` the number of the step of each; steps are
    numbered so that those of one loop follow each other, and `follows` is True for those that
    follow another one of their loop.
    """

    graph: Dependencies
    last: RowNumbers
    step: Integers
    follows: Array

    @cached_property
    def recorded(self) -> Integers:
        """The time of each step that follows another, as recorded."""
        return self.durations(Times(self.graph.start_ns, self.graph.end_ns))

    def durations(self, times: Times) -> Integers:
        """The time of each step that follows another, or of the run."""
        if not len(self.follows):
            ends = times.end_ns[self.last]
            return np.array([ends.max(initial=0) - self.graph.start_ns.min(initial=0)])
        end, rows = self._ends(times), np.flatnonzero(self.follows)
        result: Integers = end[rows] - end[rows - 1]
        return result

    def _ends(self, times: Times) -> Integers:
        """When the last GPU work of each step ends."""
        ends = times.end_ns[self.last]
        end = np.full(len(self.follows), np.iinfo(np.int64).min)
        np.maximum.at(end, self.step, ends)
        # Work of a step may end before that of the step before it.
        first = np.flatnonzero(~self.follows)
        for begin, until in zip(first.tolist(), [*first[1:].tolist(), len(end)], strict=True):
            end[begin:until] = np.maximum.accumulate(end[begin:until])
        return end

    def forecast(self, *edits: Edit, alike: RowNumbers | None = None) -> StepForecast:
        """What these edits together win per step.

        Its spread is that over the steps, or over spans of steps that begin at the rows `alike`:
        what wins in every third step differs from step to step all the same.
        """
        saved = self.recorded - self.durations(replay(self.graph, edits))
        recorded, mean = float(self.recorded.mean()), float(saved.mean())
        each = saved if alike is None else np.add.reduceat(saved, alike)
        spread = 0.0
        if len(each) >= LEAST_STEPS:
            spread = 1.96 * float(each.std(ddof=1)) * float(np.sqrt(len(each))) / len(saved)
        inferred = abs(mean - self._mean_without_inferred(edits))
        recorder = abs(mean - self._mean_without_recorder(edits))
        error = float(np.sqrt(spread**2 + inferred**2 + recorder**2))
        steps = len(saved) if len(self.follows) else 0
        return StepForecast(
            round(recorded),
            round(recorded - mean),
            round(error),
            steps,
            round(spread),
            round(inferred),
            round(recorder),
        )

    def saved_ns(self, *edits: Edit) -> int:
        """What these edits together win per step, without an error: one replay."""
        saved = self.recorded - self.durations(replay(self.graph, edits))
        return round(float(saved.mean()))

    def _mean_without_inferred(self, edits: Sequence[Edit]) -> float:
        if not len(self._recorded_alone[0]):
            return self.saved_ns(*edits)
        rows, lag_ns = self._recorded_alone

        def recorded_alone(changed: Changed) -> None:
            changed.begin_ns[rows] = lag_ns

        return float(
            (self.recorded - self.durations(replay(self.graph, [recorded_alone, *edits]))).mean()
        )

    @cached_property
    def _recorded_alone(self) -> tuple[Array, Integers]:
        """Edges of items that something inferred held up, and their lags as if nothing had.

        The recorded edge that would have been the last one then has the lag that was seen.
        """
        graph, edges = self.graph, self.graph.begin
        inferred = np.isin(edges.kind, list(_GUESSED)) & (edges.on >= 0)
        # Work that had to wait for an event, and began when other work ended, waited for that.
        since_ns = graph.start_ns[edges.of] - graph.end_ns[edges.on]
        inferred &= (edges.kind != Edge.EVENT) | (since_ns > NEAR_NS)
        held = np.zeros(len(graph), bool)
        held[edges.of[inferred]] = True
        rows = np.flatnonzero(held[edges.of] & (edges.on >= 0))
        of, on, guess = edges.of[rows], edges.on[rows], inferred[rows]
        launch = edges.kind[rows] == Edge.LAUNCH
        ready = np.where(launch, graph.start_ns[on], graph.end_ns[on])
        lag = edges.lag_ns[rows].copy()
        last = np.full(len(graph), np.iinfo(np.int64).min)
        np.maximum.at(last, of[~guess], (ready + lag)[~guess])
        binds = ~guess & (ready + lag == last[of])
        lag[binds] = (graph.start_ns[of] - ready)[binds]
        # Nothing else is known of what only an inferred edge explains: it stays.
        alone = last[of] == np.iinfo(np.int64).min
        lag[guess & ~alone] = np.iinfo(np.int64).min // 4
        return rows, lag

    def _mean_without_recorder(self, edits: Sequence[Edit]) -> float:
        after = self.durations(replay(self.graph, [self.cheaper, *edits]))
        return float((self.before_cheaper - after).mean())

    @cached_property
    def before_cheaper(self) -> Integers:
        return self.durations(replay(self.graph, [self.cheaper]))

    def cheaper(self, changed: Changed) -> None:
        """The run without what a recorder adds to each call."""
        cheaper(changed)


@record
class Model(StepModel):
    """The graph of a recording."""

    trace: Trace

    @cached_property
    def item_of_operation(self) -> RowNumbers:
        """The item of each operation of the trace, −1 for those outside of the graph."""
        result = np.full(len(operations(self.trace)), -1, np.int32)
        result[self.graph.operation] = np.arange(len(self.graph.operation)) + self.graph.calls
        return result

    def operations(self, rows: Array) -> RowNumbers:
        """The items of operations that are in the graph."""
        item = self.item_of_operation[rows]
        return item[item >= 0]

    def calls(self, rows: Array) -> RowNumbers:
        """The items of API calls that are in the graph, each once."""
        item = self.graph.item_of_call[rows]
        return row_numbers(groups.different(item[item >= 0]))

    @cached_property
    def usual_ns(self) -> tuple[int, int]:
        """The median time of a launch call, and of its thread's pause between it and another."""
        edges = self.graph.begin
        launches = np.zeros(len(self.graph), bool)
        launches[edges.on[(edges.kind == Edge.LAUNCH) & (edges.on >= 0)]] = True
        pauses = (edges.kind == Edge.THREAD) & launches[edges.of] & (edges.on >= 0)
        pauses &= launches[edges.on]
        own, pause = self.graph.own_ns[launches], edges.lag_ns[pauses]
        return (
            int(arrays.median(own)) if len(own) else 0,
            int(arrays.median(pause)) if len(pause) else 0,
        )

    @cached_property
    def timed(self) -> Mask:
        """True for the items that begin within the steps whose time is forecast."""
        if not len(self.follows):
            result = np.ones(len(self.graph), bool)
            result[self.graph.calls :] = False
            result[self.last] = True
            return result
        end = self._ends(Times(self.graph.start_ns, self.graph.end_ns))
        rows = np.flatnonzero(self.follows)
        steps = intervals.union(np.minimum(end[rows - 1], end[rows]), end[rows])
        return intervals.inside(steps, self.graph.start_ns)


def cheaper(changed: Changed) -> None:
    changed.cheaper_calls(RECORDER_CALL_NS)


@fact
def without_recorder(trace: Trace) -> UnrecordedStep | None:
    """The time of a step as recorded and as it would be without the recorder.

    None where the recorder's cost per call is not known, or nothing was recorded but GPU work.
    """
    if trace.recorder != "nsys" or not len(api_calls(trace)) or not len(operations(trace)):
        return None
    replayed = model(trace)
    before, after = replayed.recorded, replayed.before_cheaper
    return UnrecordedStep(float(before.mean()), float(after.mean()))


class UnrecordedStep(NamedTuple):
    """The time of a step in ns, recorded and replayed."""

    recorded_ns: float
    replayed_ns: float


@fact
def model(trace: Trace) -> Model:
    """The graph of the recording, or of middle steps of a long one."""
    ops, all_steps, timed = operations(trace), steps(trace), pace(trace)
    rows = np.flatnonzero(timed.timed & ~timed.warm_up & (all_steps.operations > 0))
    since = until = None
    if len(ops) + len(api_calls(trace)) > MOST_ITEMS:
        since, until, rows = _middle(trace, rows)
    graph = (
        dependencies.dependencies(trace)
        if since is None
        else dependencies.build(trace, since, until)
    )
    number = np.full(len(all_steps) + 1, -1, np.int64)
    number[rows] = np.arange(len(rows))
    step = number[step_of_operations(trace)[graph.operation]]
    follows = np.zeros(len(rows), bool)
    loop = timed.loop[rows]
    follows[1:] = (loop[1:] == loop[:-1]) & (rows[1:] == rows[:-1] + 1)
    if trace.selection:
        selected = groups.different(step_of_operations(trace)[selected_operations(trace)])
        follows &= np.isin(rows, selected)
    if not follows.any():
        follows = follows[:0]
        step = np.where(steady_operations(trace)[graph.operation], 0, -1)
        step = step if (step >= 0).any() else np.zeros(len(step), np.int64)
    chosen = np.flatnonzero(step >= 0)
    return Model(graph, row_numbers(chosen + graph.calls), step[chosen], follows, trace)


def _middle(trace: Trace, rows: Array) -> tuple[int, int | None, Array]:
    """Begin and end of what the graph of a long recording covers, and its steps among `rows`."""
    ops, calls, all_steps = operations(trace), api_calls(trace), steps(trace)
    share = MOST_ITEMS / (len(ops) + len(calls))
    if not len(rows):
        start = calls.start_ns if len(calls) else ops.start_ns
        first = int(len(start) * (1 - share) / 2)
        last = min(first + int(len(start) * share), len(start) - 1)
        return int(start[first]), int(start[last]), rows
    # The loop with most time.
    loop = pace(trace).loop[rows]
    most = np.argmax(np.bincount(loop, pace(trace).duration_ns[rows]))
    rows = rows[loop == most]
    begin, end = all_steps.cpu_start_ns[rows], all_steps.cpu_end_ns[rows]
    inside = sum(
        int(np.diff(np.searchsorted(each.start_ns, [begin.min(), end.max()]))[0])
        for each in (ops, calls)
    )
    each = max(inside / len(rows), 1.0)
    kept = int(np.clip(MOST_ITEMS / each, LEAST_STEPS + 1, len(rows)))
    first = (len(rows) - kept) // 2
    rows = rows[first : first + kept]
    return int(all_steps.cpu_start_ns[rows[0]]), int(all_steps.cpu_end_ns[rows[-1]]), rows
