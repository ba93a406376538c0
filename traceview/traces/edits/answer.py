"""Edits replayed one after the other: the time per step with each, its error, and what then
limits each GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

import numpy as np

from traceview.base import display, errors, groups, intervals
from traceview.base.intervals import Intervals
from traceview.base.records import record
from traceview.base.tables import Array, Mask
from traceview.traces.edits import cpu_time, gpu_work
from traceview.traces.edits.requests import KINDS, EditRequest
from traceview.traces.edits.scope import AppliedEdit, EditScope
from traceview.traces.facts.dependencies import blame, replay
from traceview.traces.facts.dependencies.graph import INFERRED, Dependencies, Edge
from traceview.traces.facts.forecast import Model, StepForecast, StepModel
from traceview.traces.facts.idle.first_calls import shows_first_calls_alone
from traceview.traces.facts.operations import api_calls, operations
from traceview.traces.trace import Trace

# How busy each GPU is over the measured steps, and what it waits for the rest of the time.
#
# Computed from the times of a replay, edited or not, by walking each idle gap back along the
# graph.

IdleReason = Literal[
    "cpu", "calls", "synchronization", "hand-over", "gpu-latency", "other-gpu", "unexplained"
]
_REASON: Mapping[blame.IdlePart, IdleReason] = {
    blame.IdlePart.LAUNCH: "calls",
    blame.IdlePart.CALL: "calls",
    blame.IdlePart.HOST: "cpu",
    blame.IdlePart.TAIL: "synchronization",
    blame.IdlePart.WAKE: "hand-over",
    blame.IdlePart.PITCH: "gpu-latency",
    blame.IdlePart.OTHER: "other-gpu",
    blame.IdlePart.HELD: "unexplained",
    blame.IdlePart.UNKNOWN: "unexplained",
}


@record
class GpuTime:
    """The time per step of a GPU, the mean of the GPUs that work in it: busy, and idle by reason.

    Of the idle time `inferred_ns` is found along edges that no recorder holds.
    """

    step_ns: float
    busy_ns: float
    idle_ns: Mapping[str, float]
    inferred_ns: float

    @property
    def busy_pct(self) -> float:
        return 100 * self.busy_ns / self.step_ns if self.step_ns else 0.0

    @property
    def inferred_pct(self) -> float:
        """Of the idle time."""
        idle = self.step_ns - self.busy_ns
        return 100 * self.inferred_ns / idle if idle > 0 else 0.0


def gpu_time(model: Model, changed: replay.Changed, times: replay.Times) -> GpuTime:
    """The time of the GPUs in a replay with these changes."""
    # The graph as if the replay had been recorded.
    graph = replace(
        model.graph,
        start_ns=times.start_ns,
        end_ns=times.end_ns,
        own_ns=changed.own_ns,
        begin=replace(model.graph.begin, lag_ns=changed.begin_ns),
        finish=replace(model.graph.finish, lag_ns=changed.finish_ns),
    )
    window = _windows(model, times)
    device = operations(model.trace).device[graph.operation]
    used = groups.different(device[model.last - graph.calls])
    idle = dict.fromkeys(_REASON.values(), 0.0)
    inferred = _inferred(graph)
    busy = along_inferred = 0.0
    for number in used.tolist():
        items = np.flatnonzero(device == number) + graph.calls
        covered = intervals.covered(times, items)
        busy += intervals.intersection(covered, window).total()
        parts = _parts(graph, items, covered)
        length = intervals.overlap(window, parts.start_ns, parts.end_ns)
        for kind, time in enumerate(np.bincount(parts.kind, length, len(blame.IdlePart)).tolist()):
            idle[_REASON[blame.IdlePart(kind)]] += time
        along_inferred += float(length[_behind_inferred(parts, inferred)].sum())
    # Loops of several threads overlap: then a step is longer than its part of the window.
    step_ns = float(model.durations(times).mean())
    share = step_ns / (max(window.total(), 1) * max(len(used), 1))
    idle_ns: dict[str, float] = {reason: time * share for reason, time in idle.items() if time}
    # A GPU without work at the ends of a window idles there for no known reason.
    rest = step_ns - busy * share - sum(idle_ns.values())
    if round(rest) > 0:
        idle_ns["unexplained"] = idle_ns.get("unexplained", 0.0) + rest
    return GpuTime(step_ns, busy * share, idle_ns, along_inferred * share)


def _windows(model: Model, times: replay.Times) -> Intervals:
    """The time of the measured steps, or of the run."""
    ends, follows = times.end_ns[model.last], model.follows
    if not len(follows):
        first, last = int(times.start_ns.min(initial=0)), int(ends.max(initial=0))
        return Intervals(np.array([first]), np.array([max(last, first)]))
    end = np.full(len(follows), np.iinfo(np.int64).min)
    np.maximum.at(end, model.step, ends)
    opens = np.flatnonzero(~follows)
    lasts = np.append(opens[1:], len(follows)) - 1
    until = np.array([end[a : b + 1].max() for a, b in zip(opens, lasts, strict=True)])
    return intervals.union(end[opens], until)


def _parts(graph: Dependencies, items: Array, covered: Intervals) -> blame.IdleParts:
    """What held up the work behind each gap between the work of a GPU."""
    gap = intervals.gaps(covered)
    running = items[graph.end_ns[items] > graph.start_ns[items]]
    running = running[np.argsort(graph.start_ns[running], kind="stable")]
    after = running[np.searchsorted(graph.start_ns[running], gap.end)]
    return blame.walk(graph, gap.start.copy(), gap.end.copy(), after.astype(np.int32))


def _inferred(graph: Dependencies) -> Mask:
    """True for the items whose start is explained by inferred edges alone."""
    edges, latest = graph.begin, np.full(len(graph), np.iinfo(np.int64).min)
    on = np.maximum(edges.on, 0)
    ready = np.where(edges.kind == Edge.LAUNCH, graph.start_ns[on], graph.end_ns[on]) + edges.lag_ns
    ready[edges.on < 0] = np.iinfo(np.int64).min
    np.maximum.at(latest, edges.of, ready)
    binding = (ready == latest[edges.of]) & (edges.on >= 0)
    inferred = np.isin(edges.kind, list(INFERRED))
    result = groups.marked(edges.of[binding & inferred], len(graph))
    result[edges.of[binding & ~inferred]] = False
    return result


def _behind_inferred(parts: blame.IdleParts, inferred: Mask) -> Mask:
    """True for the parts that were reached along an inferred edge, on the way back from the work.

    A launch or call has come to the item by then; what waited along an edge is a part of its own.
    """
    along = np.isin(parts.kind, (blame.IdlePart.HOST, blame.IdlePart.WAKE, blame.IdlePart.PITCH))
    crossed = along & (parts.item >= 0) & np.append(inferred, False)[parts.item]
    before = np.cumsum(crossed)
    opens = groups.opens(parts.gap)
    first = np.maximum.accumulate(np.where(opens, np.arange(len(opens)), 0))
    return before > (before - crossed)[first]


APPLY: Mapping[str, Callable[[EditScope, EditRequest], AppliedEdit]] = {
    "kernel": gpu_work.kernels,
    "fuse": gpu_work.fuse,
    "no-sync": cpu_time.no_sync,
    "graph": gpu_work.graph,
    "cpu": cpu_time.cpu,
    "copy": gpu_work.copies,
    "link": gpu_work.link,
    "gpu": gpu_work.gpu,
    "no-recorder": gpu_work.no_recorder,
}
"""What finds the items of each kind of edit."""
assert APPLY.keys() == KINDS.keys()


@record
class EditOutcome:
    """An edit, the forecast with it and all before it, and what it adds to their saving."""

    applied: AppliedEdit
    forecast: StepForecast
    saved_ns: int


@record
class ReplayQuality:
    """How far a replay can be trusted.

    `is_exact` is True where a replay without edits is the recording to the nanosecond. Of the idle
    time of the GPU, `inferred_idle_pct` rests on edges that are inferred. `items` are the calls and
    operations of the graph, of `recorded_items`; those of a long recording are its middle steps.
    `first_calls` is True where a start and first calls alone were recorded: a replay of these tells
    nothing of later passes.
    """

    is_exact: bool
    inferred_idle_pct: float
    items: int
    recorded_items: int
    first_calls: bool = False


@record
class NextLimit:
    """What the program gains, with all edits, from a tenth less GPU work or CPU time, per step.

    GPU work is that of all operations, CPU time that of calls, without waits, and between them.
    """

    gpu_ns: int
    cpu_ns: int


@dataclass(frozen=True, repr=False)
class WhatIfReport(display.Written):
    """What edits of a program would win, in the order given, each on top of those before it.

    Times are per measured step, or of the run as a whole where `steps` is 0. `before` and `after`
    are the time of the GPU as recorded and with all edits, `next` what limits the program then.
    `set_aside` steps, mostly of first uses and compilation, do not count.
    Of a job, `ranks` are those recorded and `edited_ranks` those edited if not all; `path` is that
    of one, and what edits touch and the time of the GPU are the mean of the ranks.
    """

    path: str
    gpus: tuple[str, ...]
    ranges: tuple[str, ...]
    excluded_ranges: tuple[str, ...]
    steps: int
    recorded_ns: int
    edits: tuple[EditOutcome, ...]
    before: GpuTime
    after: GpuTime
    next: NextLimit
    quality: ReplayQuality
    ranks: tuple[int, ...] = ()
    edited_ranks: tuple[int, ...] = ()
    set_aside: int = 0

    @property
    def forecast(self) -> StepForecast:
        """The forecast with all edits."""
        return self.edits[-1].forecast

    @property
    def name(self) -> str:
        """The file of the recording, or of the first of a job's."""
        more = f" and {len(self.ranks) - 1} more" if len(self.ranks) > 1 else ""
        return f"{PurePath(self.path).name}{more}"


def replayed(
    trace: Trace,
    requests: Sequence[EditRequest],
    ranges: Sequence[str] = (),
    excluded_ranges: Sequence[str] = (),
) -> WhatIfReport:
    """The answer for a recording with steps. Raises InputError for an edit that touches nothing."""
    if not requests:
        raise errors.InputError("no edits were given", f"name one or more of: {', '.join(KINDS)}")
    scope = EditScope.of(trace, ranges, excluded_ranges)
    model = scope.model
    if not len(model.graph.operation):
        raise errors.InputError(
            f"{PurePath(trace.path).name} has no GPU work to replay",
            "record the program where it uses a GPU",
        )
    applied = [APPLY[each.kind](scope, each) for each in requests]
    outcomes = outcomes_of(model, applied)
    # The time of the GPU without edits, and whether the replay is the recording.
    changed = replay.Changed(model.graph)
    times = changed.replay()
    same = np.array_equal(times.start_ns, model.graph.start_ns)
    same = same and np.array_equal(times.end_ns, model.graph.end_ns)
    before, is_exact = gpu_time(model, changed, times), bool(same)
    changes = [each.change for each in applied]
    for edit in changes:
        edit(changed)
    return WhatIfReport(
        trace.path,
        tuple(str(name) for name in trace.devices.texts("name").decode() if name),
        tuple(ranges),
        tuple(excluded_ranges),
        scope.steps,
        outcomes[0].forecast.recorded_ns,
        outcomes,
        before,
        gpu_time(model, changed, changed.replay()),
        NextLimit(*model.next_ns(*changes, recorder=True)),
        ReplayQuality(
            is_exact,
            before.inferred_pct,
            len(model.graph),
            recorded_items(trace),
            shows_first_calls_alone(trace),
        ),
        set_aside=model.set_aside,
    )


def outcomes_of(model: StepModel, applied: Sequence[AppliedEdit]) -> tuple[EditOutcome, ...]:
    """Each edit on top of those before it."""
    result: list[EditOutcome] = []
    saved = 0
    for number, each in enumerate(applied, 1):
        forecast = model.forecast(*(edit.change for edit in applied[:number]), recorder=True)
        result.append(EditOutcome(each, forecast, forecast.saved_ns - saved))
        saved = forecast.saved_ns
    return tuple(result)


def recorded_items(trace: Trace) -> int:
    """The calls and operations of a recording."""
    return len(api_calls(trace)) + len(operations(trace))
