"""Edits of a job, replayed on the graphs of all its ranks as one.

A step ends when the last rank has ended it, and a collective once its last rank has begun it: what
one rank wins the others win only as far as they wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.traces.edits.answer import (
    APPLY,
    GpuTime,
    NextLimit,
    ReplayQuality,
    WhatIfReport,
    gpu_time,
    outcomes_of,
    recorded_items,
)
from traceview.traces.edits.requests import EditRequest
from traceview.traces.edits.scope import AppliedEdit, EditScope
from traceview.traces.facts.dependencies.replay import Changed, Edit, Times
from traceview.traces.facts.idle.first_calls import shows_first_calls_alone
from traceview.traces.ranks.clocks import align_clocks, matched_communicators
from traceview.traces.ranks.figures import RankFigures
from traceview.traces.ranks.job_replay import MOST_MISFIT, JobReplay, job_replay
from traceview.traces.ranks.lateness import common_steps
from traceview.traces.ranks.matching import match_ranks
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.trace import Trace

_ONE_JOB = "Pass recordings of the ranks of one job, made at the same time, with their launches."


@record
class _Job:
    """The joint replay, the recording that each part of it is of, and the edited parts."""

    replay: JobReplay
    scopes: dict[int, EditScope]
    edited: tuple[int, ...]

    def applied(self, asked: EditRequest) -> AppliedEdit:
        """An edit on the edited parts: what it touches is the mean of those that it touches.

        Raises InputError where it touches nothing on any.
        """
        found, failure = dict[int, AppliedEdit](), None
        for part in self.edited:
            try:
                found[part] = APPLY[asked.kind](self.scopes[part], asked)
            except InputError as error:
                failure = error
        if failure and not found:
            raise failure
        changes = [
            self.replay.model.graph.on(part, applied.change) for part, applied in found.items()
        ]
        every = [*found.values()]
        first = every[0]
        return replace(
            first,
            items=sum(each.items for each in every) / len(every),
            time_ns=sum(each.time_ns for each in every) / len(every),
            values={
                name: sum(each.values.get(name, 0) for each in every) / len(every)
                for name in first.values
            },
            change=together(changes),
        )

    def gpu_time(self, changes: Sequence[Edit]) -> GpuTime:
        """The mean of the ranks."""
        joint = self.replay.model.graph
        changed = Changed(joint)
        together(changes)(changed)
        times, found = changed.replay(), []
        for part, scope in self.scopes.items():
            of = joint.parts[part]
            own = changed.part(of.graph, of.items, of.begin, of.finish)
            inside = Times(times.start_ns[of.items], times.end_ns[of.items])
            found.append(gpu_time(replace(scope.model, graph=of.graph), own, inside))
        reasons = dict.fromkeys(reason for each in found for reason in each.idle_ns)
        return GpuTime(
            float(np.mean([each.step_ns for each in found])),
            float(np.mean([each.busy_ns for each in found])),
            {name: float(np.mean([e.idle_ns.get(name, 0) for e in found])) for name in reasons},
            float(np.mean([each.inferred_ns for each in found])),
        )

    def next(self, changes: Sequence[Edit], saved_ns: int) -> NextLimit:
        """What a tenth less work of all GPUs, or CPU time of all ranks, wins."""
        model = self.replay.model

        def less_gpu(changed: Changed) -> None:
            changed.scale(np.arange(changed.graph.calls, len(changed.graph)), 0.9)

        def less_cpu(changed: Changed) -> None:
            calls = np.arange(changed.graph.calls)
            changed.scale(calls, 0.9)
            changed.scale_pause(calls, 0.9)

        def won(less: Edit) -> int:
            everywhere = [model.graph.on(part, less) for part in self.scopes]
            return model.saved_ns(*changes, *everywhere, recorder=True) - saved_ns

        return NextLimit(won(less_gpu), won(less_cpu))


def together(edits: Sequence[Edit]) -> Edit:
    """All of these edits as one."""

    def edit(changed: Changed) -> None:
        for each in edits:
            each(changed)

    return edit


def replayed_job(
    traces: Sequence[Trace],
    requests: Sequence[EditRequest],
    ranges: Sequence[str] = (),
    excluded_ranges: Sequence[str] = (),
    ranks: Collection[int] = (),
) -> WhatIfReport:
    """The answer for the recordings of a job, with steps; `ranks` are those edited, by default all.

    Raises InputError for an edit that touches nothing, for ranks that are not there, and for
    recordings whose graphs cannot be joined.
    """
    scopes = [EditScope.of(trace, ranges, excluded_ranges) for trace in traces]
    rows = [(each, scope) for scope in scopes for each in figures_of_ranks(scope.trace)]
    rows.sort(key=lambda row: row[0].name.rank)
    numbers = [each.name.rank for each, _ in rows]
    if len(rows) > len({*numbers}):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise InputError(f"two recordings are of rank {twice}", _ONE_JOB)
    if absent := sorted({*ranks} - {*numbers}):
        raise InputError(
            f"no recording of rank {absent[0]}", f"name one of {', '.join(map(str, numbers))}"
        )
    job = _joint(rows, [at for at, number in enumerate(numbers) if not ranks or number in ranks])
    applied = [job.applied(each) for each in requests]
    model = job.replay.model
    outcomes = outcomes_of(model, applied)
    changes = [each.change for each in applied]
    before, last = job.gpu_time([]), outcomes[-1].forecast
    used = [*job.scopes.values()]
    return WhatIfReport(
        traces[0].path,
        tuple(str(n) for each in traces for n in each.devices.texts("name").decode() if n),
        tuple(ranges),
        tuple(excluded_ranges),
        int(np.count_nonzero(model.follows)),
        last.recorded_ns,
        outcomes,
        before,
        job.gpu_time(changes),
        job.next(changes, last.saved_ns),
        ReplayQuality(
            model.misfit == 0.0,
            before.inferred_pct,
            sum(len(each.model.graph) for each in used),
            sum(recorded_items(each.trace) for each in used),
            all(shows_first_calls_alone(each.trace) for each in used),
        ),
        tuple(numbers),
        tuple(sorted(ranks)),
    )


def _joint(rows: Sequence[tuple[RankFigures, EditScope]], edited: Sequence[int]) -> _Job:
    figures = tuple(each for each, _ in rows)
    whole = {at: scope.model.graph for at, (_, scope) in enumerate(rows)}
    matching = match_ranks(figures)
    clocks = align_clocks(figures, matching.matched)
    matched = matched_communicators(figures, matching.matched, clocks)
    made = None
    if any((of.last >= 0).any() for of in matched):
        steps = common_steps(figures, matched)
        made = job_replay(figures, matched, clocks, steps, edited, whole)
    if made is None:
        raise InputError("these recordings cannot be replayed as one job", _ONE_JOB)
    if made.model.misfit > MOST_MISFIT:
        off = f"{100 * made.model.misfit:.1f} %"
        raise InputError(f"a replay of all ranks is {off} off the recordings", _ONE_JOB)
    part_of = {at: made.ranks[at].part for at in made.ranks}
    scopes = {part_of[at]: scope for at, (_, scope) in enumerate(rows) if at in part_of}
    parts = dict.fromkeys(part_of[at] for at in edited if at in part_of)
    shared = {part_of[at] for at in part_of if at not in edited}
    if both := shared & parts.keys():
        of = scopes[min(both)].trace.path.rpartition("/")[2]
        raise InputError(
            f"{of} has other ranks beside those to edit", "record each rank to a file of its own"
        )
    return _Job(made, scopes, tuple(parts))
