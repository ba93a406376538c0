"""What an edit of the run wins per step, with its error.

The graph of a long recording is that of its middle steps: `MOST_ITEMS` calls and operations are
enough for a forecast. A step ends where its last GPU work does, as in `steps`; without steps the
run counts as one. Of a selection only steps with selected work count.

A recorder makes calls longer, and with them the CPU the limit where it is not: what counts is the
share of a step that an edit wins where each call is cheaper by that cost, in terms of the recorded
step.

The error adds, as squares, the spread of the saving over steps of equal length (see `spread_of`),
what guessed edges between operations make of it (the saving if recorded ones alone explained the
same times), and half of what the recorder's cost makes of it, which is known to a factor of two.
Threads that take turns are no guess: forecasts for PyTorch's backward pass came within 2 % of what
was measured on an H200 (docs/accuracy.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from traceview.base import groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.statistics import t_quantile
from traceview.base.tables import Array, Integers, Mask, RowNumbers, arrays, row_numbers
from traceview.traces.facts.dependencies import recorded_graph
from traceview.traces.facts.dependencies.graph import INFERRED, Dependencies, Edge
from traceview.traces.facts.dependencies.replay import Changed, Edit, Times, replay
from traceview.traces.facts.idle.step_parts import step_parts
from traceview.traces.facts.operations import api_calls, operations
from traceview.traces.facts.ranges.selection import selected_operations
from traceview.traces.facts.steps.steps import pace, steady_operations, step_of_operations, steps
from traceview.traces.trace import Trace, fact

MOST_ITEMS = 60_000
"""Building the graph then takes 0.06 s of the 1.3 s of a report on 1 M kernels, a replay 2 ms."""
LEAST_STEPS = 3
"""Fewer steps have no spread."""
LEAST_COMPARED = 10
"""From so many steps on, they show how the saving depends on the length of a step."""
RECORDER_CALL_NS = 16_000
"""What a recorder adds to a CUDA call and the pause before it, at most; see `KEPT`."""
MOST_CALL_NS = 128_000
REACHED = 0.005
_LESS = 0.9
NOISE = 0.05
"""Two windows of one process, one right after the other, differ by 1 to 10 % of a step (median 6 %,
eight programs that the CPU limits)."""

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
class StepModel(ABC):
    """The graph that forecasts rest on, and where its steps end.

    `last` are the items that may end a step, `step` the number of the step of each; steps are
    numbered so that those of one loop follow each other, and `follows` is True for those that
    follow another one of their loop and count.
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
        return end[rows] - end[rows - 1]

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

    def forecast(
        self,
        *edits: Edit,
        recorder: bool = False,
        alike: RowNumbers | None = None,
        given: Sequence[Edit] = (),
    ) -> StepForecast:
        """What these edits together win per step; with the `recorder`, as it was recorded.

        It is what they win on top of what is `given`.

        Its spread is that over the steps, or over spans of steps that begin at the rows `alike`:
        what wins in every third step differs from step to step all the same.
        """

        def beyond(saved: Callable[[Sequence[Edit]], Array]) -> Array:
            every = saved([*given, *edits])
            return every - saved(given) if given else every

        as_recorded, without = beyond(self._as_recorded), beyond(self._unrecorded)
        saved, other = (as_recorded, without) if recorder else (without, as_recorded)
        recorded, mean = float(self.recorded.mean()), float(saved.mean())
        spans = np.arange(len(saved)) if alike is None else alike
        each, lasted = (np.add.reduceat(times, spans) for times in (saved, self.recorded))
        spread = spread_of(each, lasted) * len(each) / len(saved)
        inferred = abs(float((as_recorded - beyond(self._without_inferred)).mean()))
        cost = abs(mean - float(other.mean())) / (1 if recorder else 2)
        error = float(np.sqrt(spread**2 + inferred**2 + cost**2))
        steps = len(saved) if len(self.follows) else 0
        return StepForecast(
            round(recorded),
            round(recorded - mean),
            round(error),
            steps,
            round(spread),
            round(inferred),
            round(cost),
        )

    def saved_ns(self, *edits: Edit, recorder: bool = False) -> int:
        """What these edits together win per step, without an error: one replay."""
        saved = self._as_recorded(edits) if recorder else self._unrecorded(edits)
        return round(float(saved.mean()))

    def next_ns(self, *edits: Edit, recorder: bool = False) -> tuple[int, int]:
        """What a tenth less GPU work, and a tenth less CPU time, win per step on top of edits."""
        calls, items = self.graph.calls, len(self.graph)

        def less_gpu(changed: Changed) -> None:
            changed.scale(np.arange(calls, items), _LESS)

        def less_cpu(changed: Changed) -> None:
            changed.scale(np.arange(calls), _LESS)
            changed.scale_pause(np.arange(calls), _LESS)

        saved_ns = self.saved_ns(*edits, recorder=recorder)
        gpu_ns, cpu_ns = (
            self.saved_ns(*edits, less, recorder=recorder) - saved_ns
            for less in (less_gpu, less_cpu)
        )
        return gpu_ns, cpu_ns

    def _as_recorded(self, edits: Sequence[Edit]) -> Array:
        return self.recorded - self.durations(replay(self.graph, edits))

    def _unrecorded(self, edits: Sequence[Edit]) -> Array:
        """What edits win of each step without the recorder, in terms of the recorded step."""
        after = self.durations(replay(self.graph, [self.cheaper, *edits]))
        times = float(self.recorded.mean()) / max(float(self.before_cheaper.mean()), 1.0)
        return (self.before_cheaper - after) * times

    def _without_inferred(self, edits: Sequence[Edit]) -> Array:
        if not len(self._recorded_alone[0]):
            return self._as_recorded(edits)
        rows, lag_ns = self._recorded_alone

        def recorded_alone(changed: Changed) -> None:
            changed.begin_ns[rows] = lag_ns

        return self._as_recorded([recorded_alone, *edits])

    @cached_property
    def _recorded_alone(self) -> tuple[Array, Integers]:
        """Edges of items that something inferred held up, and their lags as if nothing had.

        The recorded edge that would have been the last one then has the lag that was seen.
        """
        graph, edges = self.graph, self.graph.begin
        inferred = np.isin(edges.kind, list(_GUESSED)) & (edges.on >= 0)
        # Work that had to wait for an event, and began when other work ended, waited for that.
        since_ns = graph.start_ns[edges.of] - graph.end_ns[edges.on]
        inferred &= (edges.kind != Edge.EVENT) | (since_ns > recorded_graph.NEAR_NS)
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

    @cached_property
    def before_cheaper(self) -> Integers:
        return self.durations(replay(self.graph, [self.cheaper]))

    @abstractmethod
    def cheaper(self, changed: Changed) -> None:
        """The edit that takes the recorder's cost off each call."""


@record
class Model(StepModel):
    """The graph of a recording; `loop` is that of each step.

    Of the steps that follow another, `set_aside` do not count: those mostly of first uses and
    compilation, which no longer run repeats, and of which no time per step is stated elsewhere.
    `loop_ns` is the time of each loop with these: of ranks that take turns waiting, none is shorter
    for having compiled.
    """

    trace: Trace
    loop: Integers
    set_aside: int = 0
    loop_ns: Array = field(default_factory=lambda: np.zeros(0))

    def saved_time(self, edit: Edit) -> Intervals:
        """As much of the end of each step as the edit wins of it; empty without several loops.

        A graph of middle steps has one loop, and compares none. Steps of all loops are in the order
        of their ends: those of two kinds take turns.
        """
        if not len(self.follows) or len(groups.different(self.loop[self.follows])) < 2:
            return intervals.EMPTY
        end = self._ends(Times(self.graph.start_ns, self.graph.end_ns))
        earlier = end - self._ends(replay(self.graph, [edit]))
        order = np.argsort(end, kind="stable")
        won = np.clip(np.diff(earlier[order], prepend=0), 0, None)
        end, won = end[order], np.where(self.follows[order], won, 0)
        return intervals.union(end - won, end)

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
        edges, between = self.graph.begin, self.graph.pauses.time_ns
        launches = groups.different(edges.on[(edges.kind == Edge.LAUNCH) & (edges.on >= 0)])
        own = self.graph.own_ns[launches]
        return (
            int(arrays.median(own)) if len(own) else 0,
            int(arrays.median(between)) if len(between) else 0,
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

    @cached_property
    def call_ns(self) -> int:
        """What the recorder adds to a call: RECORDER_CALL_NS.

        Where `traceview record --steps` timed steps without it, and a replay with that cost takes
        another time, the nearest cost with which it takes as long. Steps that the GPU limits take
        as long with any.
        """
        told = unrecorded_step_ns(self.trace)
        if told is None or not len(self.follows):
            return RECORDER_CALL_NS

        def step_ns(call_ns: int) -> float:
            return float(self.durations(replay(self.graph, [cheaper_by(call_ns)])).mean())

        usual_ns = step_ns(RECORDER_CALL_NS)
        longer = usual_ns > told
        near, far = RECORDER_CALL_NS, MOST_CALL_NS if longer else 0
        # Of a time that no cost explains, the nearest that one does.
        wanted_ns = (max if longer else min)(told, step_ns(far))
        if abs(usual_ns - wanted_ns) <= NOISE * wanted_ns:
            return near
        while abs(far - near) > MOST_CALL_NS // 512:
            middle = (near + far) // 2
            off_ns = step_ns(middle) - wanted_ns
            reached = (off_ns if longer else -off_ns) <= REACHED * wanted_ns
            near, far = (near, middle) if reached else (middle, far)
        return (near + far) // 2

    def cheaper(self, changed: Changed) -> None:
        changed.cheaper_calls(self.call_ns)


def unrecorded_step_ns(trace: Trace) -> int | None:
    """The mean step before the recorded window, where `traceview record --steps` timed these.

    Of selected steps, which may be the slow ones, it says nothing.
    """
    told = trace.run.get("unrecorded_step_ns", "")
    return int(told) if told.isdecimal() and not trace.selection else None


def cheaper_by(call_ns: int) -> Edit:
    """The edit that takes so much off each call."""
    return lambda changed: changed.cheaper_calls(call_ns)


def spread_of(saved_ns: Array, recorded_ns: Integers) -> float:
    """The error (95 %) of the mean saving of steps that take as long as the recorded ones.

    A saving is told of a recorded whole, `9.8 of 12.1 ms`: how many long steps there were is no
    error of it. So of many steps the distance counts of each saving to the line through the others,
    over the length of their steps, where that halves the error: the lesser of two that are alike is
    often too small. In simulated programs whose steps are uneven, at least nine in ten errors hold
    the truth (tests/facts/dependencies/test_spread.py).
    """
    count = len(saved_ns)
    if count < LEAST_STEPS:
        return 0.0
    off = saved_ns - saved_ns.mean()
    plain = _error_of_mean(off, 1 / count, count - 1)
    longer = recorded_ns - recorded_ns.mean()
    squares = float(longer @ longer)
    if count < LEAST_COMPARED or not squares:
        return plain
    beside = off - longer * float(longer @ off) / squares
    compared = _error_of_mean(beside, 1 / count + longer**2 / squares, count - 2)
    return compared if 2 * compared < plain else plain


def _error_of_mean(off: Array, leverage: Array | float, freedom: int) -> float:
    """The error (95 %) of a mean by the distance of each value to what the others expect of it."""
    alone = off / np.maximum(1 - leverage, 1e-9)
    return t_quantile(0.975, freedom) * float(np.sqrt(alone @ alone)) / len(off)


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
        recorded_graph.dependencies(trace)
        if since is None
        else recorded_graph.build(trace, since, until)
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
    loop_ns = np.bincount(loop, np.where(follows, timed.duration_ns[rows], 0))
    once = follows & (2 * step_parts(trace).once_ns[rows] > timed.duration_ns[rows])
    set_aside = int(once.sum()) if (follows & ~once).any() else 0
    follows = follows & ~once if set_aside else follows
    if not follows.any():
        follows = follows[:0]
        step = np.where(steady_operations(trace)[graph.operation], 0, -1)
        step = step if (step >= 0).any() else np.zeros(len(step), np.int64)
    chosen = np.flatnonzero(step >= 0)
    last = row_numbers(chosen + graph.calls)
    return Model(graph, last, step[chosen], follows, trace, loop, set_aside, loop_ns)


def main_loop(of: Model) -> Model:
    """The model of the steps of the loop with most time alone."""
    if not len(of.follows) or (of.loop == of.loop[0]).all():
        return of
    return replace(of, follows=of.follows & (of.loop == np.argmax(of.loop_ns)))


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
